"""Models and weights under the names that Keras 2 allowed."""

from __future__ import annotations

import copy
import os
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import stratagem.tf as tf
from stratagem.core.errors import InputError

X = np.random.default_rng(0).normal(size=(16, 3)).astype("float32")
Y = X.sum(axis=1, keepdims=True)
FIT: dict[str, Any] = {"batch_size": 8, "shuffle": False, "verbose": 0}


def made() -> Any:
    keras.utils.set_random_seed(1)
    model = tf.keras.Sequential([tf.keras.layers.InputLayer(input_shape=(3,)), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.Adam(0.1), "mse", metrics=["mae"])
    return model


@pytest.fixture(scope="module")
def trained() -> list[Any]:
    """A model after two epochs: its weights after the first, and after the second."""
    model = made()
    model.fit(X, Y, **FIT)
    first = model.get_weights()
    model.fit(X, Y, **FIT)
    return [first, model.get_weights()]


@pytest.mark.parametrize("name", ["folder", "model.keras", "named.model", Path("nested") / "folder"])
def test_a_model_that_is_loaded_trains_on(name: str | Path, tmp_path: Path, trained: list[Any]) -> None:
    model = made()
    model.fit(X, Y, **FIT)
    tf.keras.models.save_model(model, tmp_path / name, save_format="tf")
    loaded = tf.keras.models.load_model(tmp_path / name)
    np.testing.assert_array_equal(loaded.predict(X, verbose=0), model.predict(X, verbose=0))
    loaded.fit(X, Y, **FIT)
    for value, expected in zip(loaded.get_weights(), trained[1], strict=True):
        np.testing.assert_array_equal(value, expected)
    model.save(tmp_path / name)  # over it
    assert int(tf.keras.models.load_model(tmp_path / name).optimizer.iterations) == 2
    assert tf.keras.models.load_model(tmp_path / name, compile=False).compiled is False


def test_a_kill_while_a_folder_is_written_leaves_the_old_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, folder = made(), tmp_path / "model"
    model.save(folder)
    before = (folder / "model.keras").read_bytes()

    def killed(*_: Any) -> None:
        raise SystemExit

    monkeypatch.setattr(os, "replace", killed)
    monkeypatch.setattr(Path, "replace", killed)
    model.fit(X, Y, **FIT)
    with pytest.raises(SystemExit):
        model.save(folder)
    assert (folder / "model.keras").read_bytes() == before
    assert [file.name for file in folder.iterdir()] == ["model.keras"]


@pytest.mark.parametrize("name", ["ckpt", "ckpt_1.5", "weights.h5", "new/weights.hdf5"])
def test_weights_under_any_name(name: str, tmp_path: Path) -> None:
    model = made()
    model.fit(X, Y, **FIT)
    model.save_weights(tmp_path / name)
    other = made()
    other.load_weights(tmp_path / name)
    for value, expected in zip(other.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(value, expected)


def test_checkpoints_of_weights_are_found(tmp_path: Path, trained: list[Any]) -> None:
    """As the tutorial "Distributed training with Keras" does."""
    model, prefix = made(), os.path.join(tmp_path, "ckpt_{epoch}")
    saves = tf.keras.callbacks.ModelCheckpoint(filepath=prefix, save_weights_only=True)
    model.fit(X, Y, epochs=2, callbacks=[saves], **FIT)
    latest = tf.train.latest_checkpoint(tmp_path)
    assert latest == str(tmp_path / "ckpt_2")
    other = made()
    other.load_weights(latest).assert_existing_objects_matched()
    for value, expected in zip(other.get_weights(), trained[1], strict=True):
        np.testing.assert_array_equal(value, expected)
    third = made()
    third.load_weights(tmp_path / "ckpt_1").expect_partial()
    third.fit(X, Y, **FIT)  # with the optimizer's state, as in TensorFlow
    for value, expected in zip(third.get_weights(), trained[1], strict=True):
        np.testing.assert_array_equal(value, expected)
    with pytest.raises(InputError, match="given None"):
        other.load_weights(tf.train.latest_checkpoint(tmp_path / "elsewhere"))


def test_weights_for_a_model_with_another_optimizer(tmp_path: Path) -> None:
    model, other, alone = made(), made(), tf.keras.models.clone_model(made())
    model.fit(X, Y, **FIT)
    model.save_weights(tmp_path / "w")
    other.compile(tf.keras.optimizers.RMSprop(centered=True, momentum=0.5), "mse")
    other.fit(X, Y, **FIT)
    for kind in (other, alone):
        kind.load_weights(tmp_path / "w").expect_partial()
        for value, expected in zip(kind.get_weights(), model.get_weights(), strict=True):
            np.testing.assert_array_equal(value, expected)
    with pytest.raises(InputError, match="does not fit the program"):
        tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)]).load_weights(tmp_path / "w")


def test_checkpoints_of_models_by_batches_and_by_periods(tmp_path: Path) -> None:
    by_batch = tf.keras.callbacks.ModelCheckpoint(tmp_path / "batch" / "{epoch}-{batch}", save_freq=3)
    by_period = tf.keras.callbacks.ModelCheckpoint(tmp_path / "period" / "{epoch}", period=2)
    best = tf.keras.callbacks.ModelCheckpoint(tmp_path / "best.h5", monitor="loss", save_best_only=True)
    made().fit(X, Y, epochs=4, callbacks=[best, by_batch, by_period], **FIT)  # HDF5 before Keras's own: it forgot Adam
    assert sorted(os.listdir(tmp_path / "batch")) == ["2-1", "3-2"]
    assert sorted(os.listdir(tmp_path / "period")) == ["2", "4"]
    assert int(tf.keras.models.load_model(tmp_path / "batch" / "3-2").optimizer.iterations) == 6
    assert (tmp_path / "best.h5").is_file()
    with pytest.raises(InputError, match="BackupAndRestore"):
        tf.keras.callbacks.ModelCheckpoint(tmp_path, load_weights_on_restart=True)


def test_the_lower_level_api(tmp_path: Path) -> None:
    model = made()
    assert not tf.saved_model.contains_saved_model(tmp_path)
    tf.saved_model.save(model, tmp_path, options=tf.saved_model.SaveOptions(experimental_io_device="/job:localhost"))
    assert tf.saved_model.contains_saved_model(str(tmp_path))
    loaded = tf.saved_model.load(tmp_path)
    predict = loaded.signatures[tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY]
    expected = model.predict(X, verbose=0)
    (name,) = predict(X)
    assert name == model.layers[-1].name
    for found in (predict(X)[name], predict(inputs=X)[name], loaded(X)):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
    dataset = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(X).batch(16))
    (rows,) = [strategy.gather(strategy.run(predict, args=(batch,))[name], axis=0) for batch in dataset]
    np.testing.assert_allclose(rows, expected, rtol=1e-5)
    assert len(loaded.variables) >= len(loaded.trainable_variables) == 2


def test_a_signature_with_names(tmp_path: Path) -> None:
    a, b = tf.keras.Input((1,), name="a"), tf.keras.Input((1,), name="b")
    sums = {"sum": tf.keras.layers.Add()([a, b]), "difference": tf.keras.layers.Subtract()([a, b])}
    tf.saved_model.save(tf.keras.Model({"a": a, "b": b}, sums), tmp_path)
    predict = tf.saved_model.load(tmp_path).signatures["serving_default"]
    found = predict(a=np.float32([[3]]), b=np.float32([[1]]))
    assert {name: float(value[0, 0]) for name, value in found.items()} == {"sum": 4.0, "difference": 2.0}


class Dense(tf.keras.layers.Layer):
    """A class that is called like one of Keras's."""

    def call(self, inputs: Any) -> Any:
        return inputs * 2.0


class Own(tf.keras.Model):
    """A class as Keras 2's guides write them: its `__init__` takes nothing that Keras 3 would give it."""

    def __init__(self) -> None:
        super().__init__()
        self.double, self.dense = Dense(), tf.keras.layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        return self.dense(self.double(inputs))


def test_classes_of_the_program_are_found(tmp_path: Path) -> None:
    model = Own()
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
    model.fit(X, Y, **FIT)
    model.save(tmp_path / "folder")
    loaded = tf.keras.models.load_model(tmp_path / "folder")
    assert (type(loaded), type(loaded.double)) == (Own, Dense)
    np.testing.assert_array_equal(loaded.predict(X, verbose=0), model.predict(X, verbose=0))
    assert int(loaded.optimizer.iterations) == 2
    serve = tf.saved_model.load(str(tmp_path / "folder")).signatures["serving_default"]
    np.testing.assert_allclose(serve(X)["output_1"], model.predict(X, verbose=0), rtol=1e-6)
    model.save(tmp_path / "model.keras")
    with pytest.raises(TypeError, match="Could not locate class 'Own'"):  # as in Keras 3
        tf.keras.models.load_model(tmp_path / "model.keras")


def test_classes_of_the_program_that_runs_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keras writes no module for them."""
    monkeypatch.setattr(sys.modules["__main__"], "Own", Own, raising=False)
    monkeypatch.setattr(Own, "__module__", "__main__")
    model = Own()
    expected = model.predict(X, verbose=0)
    model.save(tmp_path / "folder")
    np.testing.assert_array_equal(tf.keras.models.load_model(tmp_path / "folder").predict(X, verbose=0), expected)


def test_a_class_within_a_function_is_not_found(tmp_path: Path) -> None:
    class Hidden(Dense):
        pass

    tf.keras.Sequential([tf.keras.Input((3,)), Hidden()]).save(tmp_path / "folder")
    with pytest.raises(TypeError, match="Could not locate class 'Hidden'"):
        tf.keras.models.load_model(tmp_path / "folder")
    assert tf.keras.models.load_model(tmp_path / "folder", {"Hidden": Dense}).count_params() == 0


def test_what_cannot_be_loaded_is_explained(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="contains no model"):
        tf.keras.models.load_model(tmp_path)
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(InputError, match="SavedModel of TensorFlow"):
        tf.keras.models.load_model(tmp_path)
    with pytest.raises(InputError, match="that is a file"):
        made().save(tmp_path / "saved_model.pb")


def test_signatures_of_a_model(tmp_path: Path) -> None:
    """The serving function of TensorFlow's guides takes and returns tensors by name, and does more than the call."""
    model = made()
    offset = tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None, X.shape[1]], tf.float32, name="rows")])
    def serve(rows: Any) -> Any:
        scores = model(rows, training=False) + offset
        return {"scores": scores, "best": tf.argmax(scores, axis=-1)}

    call = tf.function(lambda x: model(x)).get_concrete_function(tf.TensorSpec([4, X.shape[1]], tf.float32, name="x"))
    tf.saved_model.save(model, tmp_path, signatures={"serving_default": serve, "call": call})
    loaded = tf.saved_model.load(tmp_path)
    expected = model.predict(X, verbose=0)
    assert sorted(loaded.signatures) == ["call", "serving_default"]
    found = loaded.signatures["serving_default"](rows=tf.constant(X))
    np.testing.assert_allclose(found["scores"], expected + 2, rtol=1e-5)
    np.testing.assert_array_equal(found["best"], np.argmax(expected, -1))
    np.testing.assert_allclose(loaded.signatures["call"](tf.constant(X[:4]))["output_0"], expected[:4], rtol=1e-5)
    np.testing.assert_allclose(loaded(X), expected, rtol=1e-5)
    loaded.model.set_weights([np.zeros_like(each) for each in loaded.model.get_weights()])  # they share the variables
    np.testing.assert_array_equal(loaded.signatures["serving_default"](rows=X)["scores"], np.full_like(expected, 2))
    model = tf.keras.models.load_model(tmp_path, compile=False)
    np.testing.assert_allclose(model.predict(X, verbose=0), expected, rtol=1e-5)


def test_a_folder_holds_what_was_saved_last(tmp_path: Path) -> None:
    model = made()
    serve = tf.function(input_signature=[tf.TensorSpec([None, X.shape[1]])])(lambda x: model(x))
    tf.saved_model.save(model, tmp_path, signatures={"own": serve})
    model.save(tmp_path)
    assert list(tf.saved_model.load(tmp_path).signatures) == ["serving_default"]
    tf.saved_model.save(tf.Module(), tmp_path)
    assert not hasattr(tf.saved_model.load(tmp_path), "model")
    with pytest.raises(InputError, match="The function does not say which tensors it takes"):
        tf.saved_model.save(model, tmp_path, signatures={"own": tf.function(lambda x: model(x))})
    assert not hasattr(tf.saved_model.load(tmp_path), "model")  # bad input has cost nothing
    with pytest.raises(InputError, match=r"tf\.saved_model\.save\(model, folder, signatures="):
        model.save(tmp_path, signatures=serve)


def test_a_model_in_shards_loads_weights_of_any_name_into_shards(tmp_path: Path) -> None:
    strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"], shard="parameters", shard_min_size=8)

    def make() -> Any:
        with strategy.scope():
            return tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(8)])

    first, second = make(), make()
    first.save_weights(tmp_path / "checkpoint")
    second.load_weights(tmp_path / "checkpoint")
    kernel, expected = second.weights[0], np.asarray(first.weights[0].value)
    np.testing.assert_array_equal(np.asarray(kernel.value), expected)
    assert [shard.data.shape for shard in kernel.value.addressable_shards] == [(2, 8), (2, 8)]
    same = copy.deepcopy(second)
    first.weights[0].assign(expected + 1.0)
    first.save_weights(tmp_path / "later")
    same.load_weights(tmp_path / "later")
    np.testing.assert_array_equal(np.asarray(same.weights[0].value), expected + 1.0)
    np.testing.assert_array_equal(np.asarray(kernel.value), expected)
