"""Checkpoints of what TensorFlow's programs keep their state in: modules, generators, models saved as checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stratagem.tf as tf


class Net(tf.Module):
    def __init__(self, start: float) -> None:
        super().__init__()
        self._weight = tf.Variable(start)
        self.layers = [tf.keras.layers.Dense(1, kernel_initializer="ones"), tf.Variable([start])]
        self.named = {"a": tf.Variable(2 * start)}
        self.activation = tf.nn.relu
        self.sizes = (3, 4)


def values(net: Any) -> list[float]:
    return [float(net._weight.numpy()), float(net.layers[1].numpy()[0]), float(net.named["a"].numpy())]


def test_a_module_is_saved_with_what_it_holds(tmp_path: Path) -> None:
    path = tf.train.Checkpoint(net=Net(1.5)).save(str(tmp_path / "c"))
    other = Net(0.0)
    tf.train.Checkpoint(net=other).restore(path).assert_consumed()
    assert values(other) == [1.5, 1.5, 3.0]
    tf.train.Checkpoint(other).write(str(tmp_path / "root"))
    third = Net(0.0)
    tf.train.Checkpoint(third).read(str(tmp_path / "root")).assert_existing_objects_matched()
    assert values(third) == [1.5, 1.5, 3.0]


def test_a_module_that_makes_its_variables_later(tmp_path: Path) -> None:
    """TensorFlow's guide to checkpoints, "Delayed restorations"."""
    saved: Any = tf.Module()
    saved.kernel = tf.Variable([[4.6, 4.7]])
    path = tf.train.Checkpoint(net=saved).save(str(tmp_path / "c"))
    net: Any = tf.Module()
    status = tf.train.Checkpoint(net=net).restore(path)
    net.kernel = tf.Variable(tf.zeros([1, 2]))
    np.testing.assert_array_equal(net.kernel.numpy(), np.float32([[4.6, 4.7]]))
    status.assert_consumed()


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_generator_goes_on_where_it_was(tmp_path: Path, replicas: int) -> None:
    strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])

    def draws(generator: Any) -> list[Any]:
        drawn = strategy.run(lambda: generator.uniform([2]))
        return [np.asarray(each).tolist() for each in strategy.experimental_local_results(drawn)]

    with strategy.scope():
        first, second = tf.random.Generator.from_seed(1), tf.random.Generator.from_seed(7)
    draws(first)
    path = tf.train.Checkpoint(g=first).save(str(tmp_path / "c"))
    expected = draws(first)
    tf.train.Checkpoint(g=second).restore(path).assert_consumed()
    assert draws(second) == expected


def test_options_that_name_a_device(tmp_path: Path) -> None:
    options = tf.train.CheckpointOptions(experimental_io_device="/job:localhost")
    variable = tf.Variable(1.0)
    path = tf.train.Checkpoint(v=variable).save(str(tmp_path / "c"), options=options)
    variable.assign(2.0)
    tf.train.Checkpoint(v=variable).restore(path, options=options)
    assert (variable.numpy(), options.experimental_io_device) == (1.0, "/job:localhost")


@pytest.mark.parametrize("name", ["enable_async", "experimental_enable_async_checkpoint"])
def test_saving_in_the_background_by_either_name(tmp_path: Path, name: str) -> None:
    options = tf.train.CheckpointOptions(**{name: True})
    variable = tf.Variable([1.0, 2.0])
    checkpoint = tf.train.Checkpoint(v=variable)
    path = checkpoint.save(str(tmp_path / "c"), options=options)
    variable.assign([3.0, 4.0])
    checkpoint.restore(path).assert_consumed().run_restore_ops()
    assert (options.in_background, variable.numpy().tolist()) == (True, [1.0, 2.0])


def test_an_evaluator_reads_what_model_checkpoint_writes(tmp_path: Path) -> None:
    """TensorFlow's guide to migrating evaluators: `save_weights_only=True` and a name without an ending."""

    def make() -> Any:
        model = tf.keras.Sequential([tf.keras.layers.Input((1,)), tf.keras.layers.Dense(1)])
        model.compile(tf.keras.optimizers.SGD(0.1), "mse")
        return model

    x, folder = np.ones((4, 1), "float32"), str(tmp_path)
    trained, evaluated = make(), make()
    saving = tf.keras.callbacks.ModelCheckpoint(filepath=folder + "/ckpt-{epoch}", save_weights_only=True)
    trained.fit(x, x, batch_size=2, epochs=2, verbose=0, callbacks=[saving])
    data = tf.data.Dataset.from_tensor_slices((x, x)).batch(2)
    evaluator = tf.keras.utils.SidecarEvaluator(model=evaluated, data=data, checkpoint_dir=folder, max_evaluations=2)
    (logs,) = list(evaluator.start().values())[-1:]
    assert logs["loss"] == pytest.approx(trained.evaluate(x, x, verbose=0))
    assert int(evaluated.optimizer.iterations.numpy()) == 4


def test_saved_weights_have_the_index_that_programs_look_for(tmp_path: Path) -> None:
    path = str(tmp_path / "cp-0001.ckpt")
    tf.keras.Sequential([tf.keras.layers.Input((1,)), tf.keras.layers.Dense(1)]).save_weights(path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "checkpoint",
        "cp-0001.ckpt.index",
        "cp-0001.ckpt.safetensors",
    ]
    assert Path(f"{path}.index").read_text() == "cp-0001.ckpt.safetensors\n"
    assert tf.train.latest_checkpoint(str(tmp_path)) == path


@pytest.mark.parametrize("name", [".h5", "weights"])
def test_weights_under_a_name_that_is_only_an_ending_or_has_none(tmp_path: Path, name: str) -> None:
    model = tf.keras.Sequential([tf.keras.layers.Input((1,)), tf.keras.layers.Dense(1)])
    model.save_weights(str(tmp_path / name), save_format="h5")
    assert [file.name for file in tmp_path.iterdir()] == [name]
    other = tf.keras.models.clone_model(model)
    if name == ".h5":
        other.load_weights(str(tmp_path / name))
        np.testing.assert_array_equal(other.get_weights()[0], model.get_weights()[0])
