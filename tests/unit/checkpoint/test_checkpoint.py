"""Round trips of every kind of object, deferred restoring, what does not fit, saving in the background."""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest

import stratagem
from stratagem.checkpoint import storage
from stratagem.core.errors import CheckpointError, InputError, UnmatchedError, UsageError
from stratagem.train import Checkpoint, CheckpointManager, CheckpointOptions

X = np.linspace(-1, 1, 24, dtype="float32").reshape(8, 3)
Y = X.sum(1, keepdims=True)


class Block(keras.layers.Layer):
    """A layer with private sublayers, sublayers in containers, and a weight without a name."""

    def __init__(self) -> None:
        super().__init__()
        self._first = keras.layers.Dense(4, activation="relu")
        self.more = [keras.layers.Dense(4), {"norm": keras.layers.BatchNormalization()}]

    def build(self, input_shape: Any) -> None:
        self.scale = self.add_weight(shape=(4,))
        self.late = keras.layers.Dense(2)

    def call(self, x: Any, training: bool = False) -> Any:
        x = self.more[0](self._first(x))
        return self.late(self.more[1]["norm"](x, training=training) * self.scale)


class Net(keras.Model):
    """A model that is built by its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block()
        self.drop = keras.layers.Dropout(0.5, seed=1)
        self.head = keras.layers.Dense(1)
        self.seen = keras.metrics.Mean()

    def call(self, x: Any, training: bool = False) -> Any:
        return self.head(self.drop(self.block(x, training=training), training=training))


def sequential() -> keras.Model:
    return keras.Sequential([keras.layers.Dense(4, activation="relu"), keras.layers.Dense(1)])


def functional() -> keras.Model:
    inputs = keras.Input((3,))
    shared = keras.layers.Dense(3)
    return keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Add()([shared(shared(inputs)), inputs])))


def bidirectional() -> keras.Model:
    layers = keras.layers
    return keras.Sequential([layers.Reshape((3, 1)), layers.Bidirectional(layers.GRU(2)), layers.Dense(1)])


def trained(make: Any) -> keras.Model:
    keras.utils.set_random_seed(7)
    model = make()
    model.compile(keras.optimizers.Adam(0.01), loss="mse")
    model.fit(X, Y, batch_size=4, epochs=2, verbose=0)
    return model


def values(model: keras.Model) -> list[np.ndarray]:
    return [np.asarray(variable.value) for variable in (*model.variables, *model.optimizer.variables)]


def assert_same(ours: list[np.ndarray], theirs: list[np.ndarray]) -> None:
    assert len(ours) == len(theirs) > 0
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)


def saved_names(path: str) -> set[str]:
    return set(storage.decode(storage.read(path), path).arrays)


class Cursor:
    def __init__(self, state: Any) -> None:
        self.state = state

    def get_state(self) -> Any:
        return self.state

    def set_state(self, state: Any) -> None:
        self.state = state


MODELS = [sequential, functional, bidirectional, Net]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("built", [True, False])
def test_model_and_optimizer_come_back(tmp_path: Path, make: Any, built: bool) -> None:
    model = trained(make)
    path = Checkpoint(model=model).save(tmp_path / "ckpt")
    keras.utils.set_random_seed(8)
    other = make()
    other.compile(keras.optimizers.Adam(0.5), loss="mse")
    if built:
        other.fit(X, Y, batch_size=4, verbose=0)
    status = Checkpoint(model=other).restore(path)
    if not built:
        np.testing.assert_array_equal(model(X), other(X))
        with pytest.raises(UnmatchedError, match=r"took optimizer.*not built yet|took model/optimizer"):
            status.assert_consumed()
        other.optimizer.build(other.trainable_variables)
    status.assert_consumed()
    assert_same(values(model), values(other))
    for one in (model, other):
        one.fit(X, Y, batch_size=4, epochs=1, shuffle=False, verbose=0)
    assert_same(values(model), values(other))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("use", ["fit", "evaluate", "predict"])
def test_first_use_of_an_unbuilt_model_sees_restored_values(tmp_path: Path, make: Any, use: str) -> None:
    model = trained(make)
    path = Checkpoint(model=model).save(tmp_path / "ckpt")
    other = make()
    other.compile(keras.optimizers.Adam(0.5), loss="mse")
    Checkpoint(model=other).restore(path).expect_partial()
    arguments = {"fit": (X, Y), "evaluate": (X, Y), "predict": (X,)}[use]
    options: dict[str, Any] = {"shuffle": False} if use == "fit" else {}
    results = [getattr(one, use)(*arguments, batch_size=4, verbose=0, **options) for one in (model, other)]
    if use == "fit":
        assert_same(values(model), values(other))
    else:
        np.testing.assert_array_equal(*results)


def test_names_come_from_the_program_not_from_counters(tmp_path: Path) -> None:
    model = trained(Net)
    names = saved_names(Checkpoint(model=model, optimizer=model.optimizer).save(tmp_path / "ckpt"))
    assert {
        "model/block/_first/kernel",
        "model/block/more/1/norm/moving_mean",
        "model/block/variable",
        "model/block/late/bias",
        "model/drop/seed_generator_state",
        "model/seen/total",
        "optimizer/iteration",
        "optimizer/learning_rate",
        "optimizer/slots/0/momentum",
        "save_counter",
    } <= names
    assert not [name for name in names if "dense" in name]
    assert len(names) == 1 + 13 + 1 + 2 + len(model.optimizer.variables)


def test_shared_optimizer_is_found_by_either_name(tmp_path: Path) -> None:
    model = trained(sequential)
    path = Checkpoint(optimizer=model.optimizer, model=model).save(tmp_path / "ckpt")
    other = trained(sequential)
    other.fit(X, Y, verbose=0)
    Checkpoint(model=other).restore(path).assert_consumed()
    assert_same(values(model), values(other))


def test_every_other_kind_comes_back(tmp_path: Path) -> None:
    def make(number: int) -> dict[str, Any]:
        mean = keras.metrics.Mean()
        mean.update_state([number, number + 1])
        variable = keras.Variable(np.full((2, 2), number), dtype="bfloat16")
        return {
            "metric": mean,
            "seed": keras.random.SeedGenerator(number),
            "nested": {
                "a/b": [variable, (keras.Variable(number, dtype="int32"),)],
                "epoch": number,
                "note": f"{number}",
            },
            "data": Cursor({"position": number}),
            "stream": Cursor(b"\x00\xff" * number),
            "inner": Checkpoint(layer=keras.layers.Rescaling(1.0), step=keras.Variable(float(number))),
        }

    one, other = make(3), make(5)
    path = Checkpoint(**one, best=0.25).save(tmp_path / "ckpt")
    checkpoint = Checkpoint(**other, best=None)
    checkpoint.restore(path).assert_consumed()
    assert float(other["metric"].result()) == 3.5
    np.testing.assert_array_equal(other["seed"].state.value, one["seed"].state.value)
    nested = other["nested"]
    np.testing.assert_array_equal(np.asarray(nested["a/b"][0].value, "float32"), np.full((2, 2), 3.0))
    assert (int(nested["a/b"][1][0]), nested["epoch"], nested["note"]) == (3, 3, "3")
    assert (other["data"].state, other["stream"].state) == ({"position": 3}, b"\x00\xff" * 3)
    assert (float(other["inner"].step), checkpoint.best) == (3.0, 0.25)


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype:UserWarning")
def test_counter_of_int64_comes_back(tmp_path: Path) -> None:
    """TensorFlow's tutorial of a multi-worker loop counts epochs in int64, which JAX holds as int32."""
    step = keras.Variable(7, dtype="int64", trainable=False)
    path = Checkpoint(step=step).save(tmp_path / "ckpt")
    step.assign(0)

    Checkpoint(step=step).restore(path).assert_consumed()
    assert int(step) == 7
    narrow = Checkpoint(step=keras.Variable(0, dtype="int16", trainable=False))
    with pytest.raises(InputError, match=r"is int16\[\], the checkpoint has int32\[\]"):
        narrow.restore(path)


def _iterated(replicas: int | None) -> tuple[Any, Callable[[Any], list[int]]]:
    """Begin a program's pass over its data, shuffled with a seed of its own; None: without a strategy.

    Returns:
        The iterator, and how to get the rows of an element's global batch.
    """
    dataset = stratagem.data.Dataset.from_tensor_slices(np.arange(22)).shuffle(22).repeat(2).batch(4)
    if replicas is None:
        return iter(dataset), np.ndarray.tolist
    strategy = stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)])
    iterator = iter(strategy.experimental_distribute_dataset(dataset))
    return iterator, lambda element: np.asarray(strategy.gather(element, axis=0)).tolist()


@pytest.mark.parametrize("saved_on", [None, 1, 2, 4])
@pytest.mark.parametrize("restored_on", [None, 1, 3])
def test_iterator_of_a_dataset_goes_on_where_it_was(
    tmp_path: Path, saved_on: int | None, restored_on: int | None
) -> None:
    iterator, rows = _iterated(saved_on)
    seen = [rows(next(iterator)) for _ in range(7)]  # into the second repetition
    path = Checkpoint(iterator=iterator).save(tmp_path / "ckpt")
    rest = [rows(element) for element in iterator]
    again, rows_again = _iterated(restored_on)
    next(again)
    Checkpoint(iterator=again).restore(path).assert_consumed()
    assert [rows_again(element) for element in again] == rest
    assert len(rest) == 4
    assert sorted(itertools.chain(*seen, *rest)) == sorted([*range(22), *range(22)])


def test_batches_read_by_hand_go_on_where_they_were(tmp_path: Path) -> None:
    dataset = stratagem.data.Dataset.range(20).shuffle(20, seed=1).batch(4)
    batches = dataset.batches()
    next(batches)
    path = Checkpoint(data=batches).save(tmp_path / "ckpt")
    rest = [batch.data.tolist() for batch in batches]
    elements = dataset.as_numpy_iterator()  # another view of the same pass
    Checkpoint(data=elements).restore(path).assert_consumed()
    assert [element.tolist() for element in elements] == rest
    assert len(rest) == 4


def test_root_lends_its_parts(tmp_path: Path) -> None:
    model = trained(sequential)
    path = Checkpoint(model, step=keras.Variable(1)).save(tmp_path / "ckpt")
    assert "layers/0/kernel" in saved_names(path)
    other = trained(sequential)
    Checkpoint(other, step=keras.Variable(0)).restore(path).assert_consumed()


def test_save_counts_and_write_does_not(tmp_path: Path) -> None:
    checkpoint = Checkpoint(x=keras.Variable(1.0))
    assert [checkpoint.save(tmp_path / "a" / "ckpt")[-6:] for _ in range(2)] == ["ckpt-1", "ckpt-2"]
    written = checkpoint.write(tmp_path / "a" / "best")
    assert int(checkpoint.save_counter) == 2
    assert stratagem.train.latest_checkpoint(tmp_path / "a") == str(tmp_path / "a" / "ckpt-2")
    again = Checkpoint(x=keras.Variable(0.0))
    again.read(f"{written}.safetensors").assert_consumed()
    assert int(again.save_counter) == 2
    assert again.save(tmp_path / "a" / "ckpt")[-6:] == "ckpt-3"


def test_what_does_not_fit_is_named_and_changes_nothing(tmp_path: Path) -> None:
    path = Checkpoint(a=keras.Variable(np.ones(3)), b=keras.Variable(np.ones((2, 3))), n=1).save(tmp_path / "ckpt")
    other = Checkpoint(a=keras.Variable(np.zeros(3)), b=keras.Variable(np.zeros((3, 2)), name="weights"), n=2)
    with pytest.raises(InputError, match=r"b \(weights\) is float32\[3, 2\], the checkpoint has float32\[2, 3\]"):
        other.restore(path)
    assert (float(np.sum(other.a.value)), other.n) == (0.0, 2)
    other = Checkpoint(a=keras.Variable(np.zeros(3), dtype="float16"))
    with pytest.raises(InputError, match=r"is float16\[3\], the checkpoint has float32\[3\]"):
        other.restore(path)


def test_slots_of_another_optimizer_do_not_fit(tmp_path: Path) -> None:
    path = Checkpoint(model=trained(sequential)).save(tmp_path / "ckpt")
    other = sequential()
    other.compile(keras.optimizers.Adamax(), loss="mse")
    other.fit(X, Y, verbose=0)
    status = Checkpoint(model=other).restore(path).expect_partial()
    with pytest.raises(UnmatchedError, match="has nothing for model/optimizer/slots/1/norm"):
        status.assert_existing_objects_matched()


def test_partial_restores_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = trained(sequential)
    path = Checkpoint(model=model, extra=keras.Variable(1.0)).save(tmp_path / "ckpt")
    other = trained(sequential)
    with caplog.at_level(logging.WARNING, "stratagem"):
        Checkpoint(model=other).restore(path).assert_existing_objects_matched().expect_partial()
        gc.collect()
        assert caplog.messages == []
        status = Checkpoint(model=other).restore(path)
        with pytest.raises(UnmatchedError, match=r"no object of the program took extra\."):
            status.assert_consumed()
        del status
        gc.collect()
    assert caplog.messages == [
        f"{path!r}: no object of the program took extra. Call status.expect_partial() if this is intended."
    ]
    status = Checkpoint(model=other, new=keras.Variable(2.0)).restore(path).expect_partial()
    with pytest.raises(UnmatchedError, match=r"has nothing for new\."):
        status.assert_existing_objects_matched()


def test_restoring_none_asserts_nothing(tmp_path: Path) -> None:
    status = Checkpoint(x=keras.Variable(1.0)).restore(stratagem.train.latest_checkpoint(tmp_path)).expect_partial()
    with pytest.raises(UnmatchedError, match="the path was None"):
        status.assert_consumed()


def test_second_restore_of_an_unbuilt_model_wins(tmp_path: Path) -> None:
    model = trained(sequential)
    first = Checkpoint(model=model).save(tmp_path / "ckpt")
    model.fit(X, Y, verbose=0)
    second = Checkpoint(model=model).save(tmp_path / "ckpt")
    other = sequential()
    checkpoint = Checkpoint(model=other)
    checkpoint.restore(first).expect_partial()
    checkpoint.restore(second).expect_partial()
    np.testing.assert_array_equal(model(X), other(X))
    assert "restore" not in other.build.__qualname__


@pytest.mark.parametrize(
    ("thing", "found"),
    [(np.zeros(2), "x is '.*' of type ndarray"), ({"k": [object()]}, "x/k/0 is"), ((1,), "x/0 is '1' of type int")],
)
def test_what_cannot_be_saved_is_named(tmp_path: Path, thing: Any, found: str) -> None:
    with pytest.raises(InputError, match=found):
        Checkpoint(x=thing).save(tmp_path / "ckpt")
    with pytest.raises(InputError, match=r"get_state\(\) of x, a Cursor, returned a value that JSON cannot hold"):
        Checkpoint(x=Cursor({"array": np.zeros(2)})).save(tmp_path / "ckpt")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["save", "_root", "save_counter"])
def test_names_of_its_own_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"under the name '{name}'"):
        Checkpoint(**{name: keras.Variable(1.0)})
    with pytest.raises(InputError, match="as root"):
        Checkpoint(3)


def test_inside_run_is_refused(tmp_path: Path) -> None:
    checkpoint = Checkpoint(x=keras.Variable(1.0))
    strategy = stratagem.OneDeviceStrategy("cpu:0")
    with pytest.raises(UsageError, match=r"Checkpoint\.save was called inside"):
        strategy.run(lambda: checkpoint.save(tmp_path / "ckpt"))
    assert int(checkpoint.save_counter) == 0


def test_saving_in_the_background_keeps_the_values_of_the_call(tmp_path: Path) -> None:
    x = keras.Variable(np.zeros(100_000, "float32"))
    checkpoint = Checkpoint(x=x)
    step = jax.jit(lambda value: value + 1, donate_argnums=0)
    for _ in range(3):
        checkpoint.save(tmp_path / "ckpt", CheckpointOptions(enable_async=True))
        x.assign(step(x.value))
    checkpoint.sync()
    for number in (1, 2, 3):
        Checkpoint(x=x).restore(str(tmp_path / f"ckpt-{number}")).assert_consumed()
        assert set(np.asarray(x.value).tolist()) == {number - 1.0}


@pytest.mark.thorough
def test_interpreter_waits_for_the_background(tmp_path: Path) -> None:
    program = (
        "import sys, keras, numpy\n"
        "from stratagem.train import Checkpoint, CheckpointOptions\n"
        "x = keras.Variable(numpy.ones(2_000_000, 'float32'))\n"
        "Checkpoint(x=x).save(sys.argv[1], CheckpointOptions(enable_async=True))\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "ckpt")], check=True, timeout=50)
    x = keras.Variable(np.zeros(2_000_000, "float32"))
    Checkpoint(x=x).restore(str(tmp_path / "ckpt-1")).assert_consumed()
    assert float(np.min(x.value)) == 1.0


def test_inside_a_compiled_function_is_refused(tmp_path: Path) -> None:
    x = keras.Variable(1.0)
    checkpoint = Checkpoint(x=x)

    def step(value: Any) -> Any:
        with keras.StatelessScope(state_mapping=[(x, value)]):
            checkpoint.save(tmp_path / "ckpt")

    with pytest.raises(UsageError, match="x has no value yet"):
        jax.jit(step)(2.0)
    assert list(tmp_path.iterdir()) == []


def test_failure_in_the_background_is_raised_by_the_next_call(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    checkpoint = Checkpoint(x=keras.Variable(1.0))
    for then in (checkpoint.sync, lambda: checkpoint.save(tmp_path / "ckpt"), lambda: checkpoint.restore(None)):
        checkpoint.save(tmp_path / "file" / "ckpt", CheckpointOptions(enable_async=True))
        with pytest.raises(CheckpointError, match=r"file.* could not be written"):
            then()
        checkpoint.sync()
    assert caplog.messages[0].startswith("A checkpoint was not saved in the background")


def test_failed_save_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    checkpoint = Checkpoint(x=keras.Variable(1.0))
    with pytest.raises(CheckpointError, match="could not be written"):
        checkpoint.save(tmp_path / "file" / "ckpt")
    assert int(checkpoint.save_counter) == 0


def test_saving_in_a_callback_sees_the_step_that_ran(tmp_path: Path) -> None:
    model = sequential()
    model.compile("sgd", loss="mse")
    checkpoint = Checkpoint(model=model)

    def save(batch: int, logs: Any) -> None:
        checkpoint.save(tmp_path / "ckpt")

    callback = keras.callbacks.LambdaCallback(on_train_batch_end=save)
    model.fit(X, Y, batch_size=4, epochs=1, verbose=0, callbacks=[callback])
    counts = [_iterations(str(tmp_path / f"ckpt-{number}")) for number in (1, 2)]
    assert counts == [1, 2]


def _accumulators(folder: Path, replicas: int | None) -> tuple[list[list[np.ndarray]], list[np.ndarray]]:
    """Save at each step of a fit that updates at every third; return the accumulators saved and the last weights."""
    keras.utils.set_random_seed(3)
    strategy = None if replicas is None else stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)])
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = sequential()
        model.compile(keras.optimizers.Adam(0.01, gradient_accumulation_steps=3), loss="mse")
    manager = CheckpointManager(Checkpoint(model=model), folder, max_to_keep=None)
    save = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: manager.save())
    model.fit(X, Y, batch_size=2, epochs=2, shuffle=False, verbose=0, callbacks=[save])
    saved = []
    for path in manager.checkpoints:
        arrays = storage.decode(storage.read(path), path).arrays
        saved.append([array for name, array in sorted(arrays.items()) if name.endswith("accumulator")])
    return saved, [np.asarray(v.value) for v in model.variables]


@pytest.mark.parametrize(
    "replicas", [pytest.param(1, marks=pytest.mark.thorough), 2, pytest.param(4, marks=pytest.mark.thorough)]
)
def test_gradients_accumulated_so_far_are_saved_whole(tmp_path: Path, replicas: int) -> None:
    """One replica's part would be a fraction of them, and the training that goes on must not count them twice."""
    saved, weights = _accumulators(tmp_path / "replicas", replicas)
    expected, expected_weights = _accumulators(tmp_path / "plain", None)
    assert len(saved) == len(expected) == 8
    assert [bool(np.any(step[0])) for step in expected] == [True, True, False] * 2 + [True, True]
    for step, expected_step in zip(saved, expected, strict=True):
        assert len(step) == len(expected_step) == 4
        for value, expected_value in zip(step, expected_step, strict=True):
            np.testing.assert_allclose(value, expected_value, rtol=1e-5, atol=1e-6)
    for value, expected_value in zip(weights, expected_weights, strict=True):
        np.testing.assert_allclose(value, expected_value, rtol=1e-5, atol=1e-6)


def _iterations(path: str) -> int:
    return int(storage.decode(storage.read(path), path).arrays["model/optimizer/iteration"])


def test_opens_under_another_strategy_and_under_none(tmp_path: Path) -> None:
    keras.utils.set_random_seed(3)
    with stratagem.MirroredStrategy(["cpu:0", "cpu:1"]).scope():
        model = functional()
        model.compile(keras.optimizers.Adam(0.01), loss="mse")
    model.fit(X, Y, batch_size=4, epochs=2, verbose=0)
    path = Checkpoint(model=model, optimizer=model.optimizer).save(tmp_path / "ckpt")
    model.fit(X, Y, batch_size=4, epochs=1, shuffle=False, verbose=0)
    expected = model.predict(X, verbose=0)
    plain = functional()
    Checkpoint(model=plain).restore(path).expect_partial()
    three = stratagem.MirroredStrategy(["cpu:0", "cpu:1", "cpu:2"])
    with three.scope():
        other = functional()
        other.compile(keras.optimizers.Adam(0.5), loss="mse")
        Checkpoint(model=other, optimizer=other.optimizer).restore(path).expect_partial()
    np.testing.assert_array_equal(plain(X), other(X))
    other.fit(X, Y, batch_size=4, epochs=1, shuffle=False, verbose=0)
    np.testing.assert_allclose(other.predict(X, verbose=0), expected, rtol=1e-5, atol=1e-6)
    assert int(other.optimizer.iterations) == 6
