"""Variables in one place: where they lie, what a step moves, and that nothing else differs from other strategies."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import keras
import numpy as np
import pytest

import stratagem
from stratagem.core.errors import InputError, UnsupportedError, UsageError
from stratagem.program.rules import at_centre as rule
from stratagem.train import Checkpoint

COMPUTE = ["cpu:0", "cpu:1", "cpu:2"]
CENTRE = 3


def at_centre() -> stratagem.CentralStorageStrategy:
    return stratagem.CentralStorageStrategy(COMPUTE, f"cpu:{CENTRE}")


def bytes_on_devices(arrays: list[jax.Array]) -> dict[int, int]:
    """Return how many bytes of arrays lie on each device that has some."""
    found: dict[int, int] = {}
    for array in arrays:
        for device, index in array.sharding.devices_indices_map(array.shape).items():
            rows = [len(range(*s.indices(size))) for s, size in zip(index, array.shape, strict=True)]
            found[device.id] = found.get(device.id, 0) + int(np.prod(rows)) * array.dtype.itemsize
    return found


def held_since(before: list[jax.Array]) -> dict[int, int]:
    gc.collect()
    old = {id(array) for array in before}
    return bytes_on_devices([array for array in jax.live_arrays() if id(array) not in old])


def make_model(**arguments: Any) -> keras.Model:
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(32, use_bias=False),
            keras.layers.BatchNormalization(synchronized=arguments.pop("synchronized", True)),
            keras.layers.ReLU(),
            keras.layers.Dense(3),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss=loss, metrics=["accuracy"], **arguments)
    return model


def data() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(29, 6)).astype("float32")
    return x, (np.arange(29) % 3).astype("int32")


def sizes(variables: Any) -> int:
    return sum(variable.value.nbytes for variable in variables)


class Watch(keras.callbacks.Callback):
    """Notes how many bytes lie on each device between steps."""

    def __init__(self) -> None:
        super().__init__()
        self.before = jax.live_arrays()
        self.held: list[dict[int, int]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.held.append(held_since(self.before))


def fitted(strategy: stratagem.Strategy, watch: Watch) -> keras.Model:
    with strategy.scope():
        model = make_model()
    model.fit(*data(), batch_size=12, epochs=2, shuffle=False, verbose=0, callbacks=[watch])
    return model


class Trained(NamedTuple):
    """A model that was trained at the centre, what was held between its steps, and the bytes that each step copied."""

    model: keras.Model
    watch: Watch
    copied: list[int]


@pytest.fixture(scope="module")
def trained() -> Trained:
    """To be read only: several tests look at it."""
    copied: list[int] = []

    def noting(mesh: Any, values: Any, specs: Any) -> Any:
        # np.asarray: JAX 0.7.2's literals do not say how many bytes they have.
        copied.append(sum(np.asarray(value).nbytes for value, spec in zip(values, specs, strict=True) if not spec))
        return original(mesh, values, specs)

    original = rule._on_mesh
    watch = Watch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rule, "_on_mesh", noting)
        return Trained(fitted(at_centre(), watch), watch, copied)


@pytest.mark.thorough
def test_between_steps_only_the_centre_holds_variables(trained: Trained) -> None:
    model, watch, copied = trained
    state = sizes([*model.variables, *model.optimizer.variables, *model.metrics_variables])
    slots = sizes(model.optimizer.variables)

    assert slots > 2 * sizes(model.trainable_variables)
    assert len(watch.held) == 6
    for held in watch.held:  # metrics are among the model's variables too; logs are a few numbers more
        assert held.keys() == {CENTRE}
        assert slots + sizes(model.variables) <= held[CENTRE] <= state + 64
    # A step sends weights, statistics and metrics to the devices, also where rows do not divide; never a slot.
    # (And where they do not, a few numbers that say which replica has which.)
    assert len(copied) == 6
    assert max(copied) < sizes(model.variables) + 256 < slots

    mirrored = Watch()
    model = fitted(stratagem.MirroredStrategy(COMPUTE), mirrored)
    assert all(held[device] >= state - 64 for held in mirrored.held for device in (0, 1, 2))


@pytest.mark.thorough
def test_evaluate_and_predict_leave_nothing_on_the_devices(trained: Trained) -> None:
    x, y = data()
    model = trained.model
    before = jax.live_arrays()
    logs = model.evaluate(x, y, batch_size=12, verbose=0, return_dict=True)
    outputs = model.predict(x, batch_size=12, verbose=0)

    assert held_since(before).keys() <= {CENTRE}
    plain = make_model()
    plain.set_weights(model.get_weights())
    np.testing.assert_allclose(outputs, plain.predict(x, verbose=0), rtol=1e-5, atol=1e-6)
    assert logs == pytest.approx(plain.evaluate(x, y, verbose=0, return_dict=True), rel=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("compute", [["cpu:1"], ["cpu:0", "cpu:1"]], ids=["one device", "the centre computes too"])
def test_other_numbers_of_devices_train_alike(compute: list[str]) -> None:
    reference = make_model(synchronized=False)
    expected = reference.fit(*data(), batch_size=12, epochs=2, shuffle=False, verbose=0).history
    strategy = stratagem.CentralStorageStrategy(compute, "cpu:0")
    with strategy.scope():
        model = make_model(steps_per_execution=2)
    history = model.fit(*data(), batch_size=12, epochs=2, shuffle=False, verbose=0).history

    assert history["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    for own, other in zip(model.get_weights(), reference.get_weights(), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-6)
    assert {device.id for v in model.optimizer.variables for device in v.value.devices()} == {0}


@pytest.mark.thorough
def test_run_eagerly_trains_alike() -> None:
    """One device: with several, each operation is compiled by itself, which takes a minute on a busy machine."""
    losses = []
    for eager in (False, True):
        with stratagem.CentralStorageStrategy(["cpu:0"], f"cpu:{CENTRE}").scope():
            model = make_model(synchronized=False, run_eagerly=eager)
        losses.append(model.fit(*data(), batch_size=29, shuffle=False, verbose=0).history["loss"])
        assert {device.id for v in model.variables for device in v.value.devices()} == {CENTRE}
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


# Custom loops --------------------------------------------------------------------------------------


def test_a_step_may_read_what_it_has_updated() -> None:
    """Two optimizers, and the second's gradient depends on the weight that the first has changed."""
    with at_centre().scope() as strategy:
        first, second = keras.Variable(3.0), keras.Variable(5.0)
        optimizers = [keras.optimizers.SGD(0.1), keras.optimizers.SGD(0.1, momentum=0.5)]
    x = strategy.experimental_distribute_values_from_function(
        lambda context: np.float32(context.replica_id_in_sync_group + 1)
    )

    @stratagem.function
    def step(x: Any) -> Any:
        def replica(x: Any) -> Any:
            with stratagem.GradientTape() as tape:
                loss = first * x
            optimizers[0].apply_gradients([(tape.gradient(loss, first), first)])
            with stratagem.GradientTape() as tape:
                loss = first * second * x
            optimizers[1].apply_gradients([(tape.gradient(loss, second), second)])
            return first * second

        return strategy.reduce("SUM", strategy.run(replica, args=(x,)), axis=None)

    result = step(x)
    # Gradients: 1 + 2 + 3 = 6; then 2.4 * 6.
    assert float(first.value) == pytest.approx(3.0 - 0.1 * 6)
    assert float(second.value) == pytest.approx(5.0 - 0.1 * 2.4 * 6)
    assert float(result) == pytest.approx(3 * 2.4 * (5.0 - 1.44))
    variables = [first, second, *optimizers[1].variables]
    assert bytes_on_devices([variable.value for variable in variables]).keys() == {CENTRE}


def test_results_can_be_combined_with_variables() -> None:
    with at_centre().scope() as strategy:
        variable = keras.Variable(1.0)
        total = keras.metrics.Mean()
    values = strategy.run(lambda: variable * (stratagem.get_replica_context().replica_id_in_sync_group + 1.0))
    reduced = strategy.reduce("SUM", values, axis=None)
    variable.assign_add(reduced)
    total.update_state(reduced)
    assert (float(variable.value), float(total.result())) == (7.0, 6.0)

    updated = strategy.extended.update(variable, lambda v, x: v.assign_add(x), args=(reduced,))
    assert (float(updated), float(variable.value)) == (13.0, 13.0)
    assert variable.value.devices() == {jax.devices()[CENTRE]}

    def merge(strategy: Any, x: Any) -> Any:
        mean = strategy.extended.reduce_to("MEAN", x, variable)
        return strategy.extended.update(variable, lambda v, x: v.assign_sub(x), args=(mean,))

    strategy.run(lambda: stratagem.get_replica_context().merge_call(merge, args=(variable * 0.5,)))
    assert float(variable.value) == 6.5
    assert variable.value.devices() == {jax.devices()[CENTRE]}


@pytest.mark.thorough
def test_checkpoints_are_those_of_other_strategies(trained: Trained, tmp_path: Path) -> None:
    optimizer = trained.model.optimizer
    path = Checkpoint(model=trained.model, optimizer=optimizer).save(str(tmp_path / "central"))
    expected = [np.asarray(v.value) for v in [*trained.model.variables, *optimizer.variables]]
    continued = []
    for strategy in (stratagem.MirroredStrategy(COMPUTE), None, at_centre()):
        if strategy is None:
            model = make_model(synchronized=False)
        else:
            with strategy.scope():
                model = make_model()
        model.optimizer.build(model.trainable_variables)
        Checkpoint(model=model, optimizer=model.optimizer).restore(path)
        for variable, value in zip([*model.variables, *model.optimizer.variables], expected, strict=True):
            np.testing.assert_array_equal(variable.value, value)
        continued.append(model.fit(*data(), batch_size=12, shuffle=False, verbose=0).history["loss"])
    assert continued[0] == pytest.approx(continued[2], rel=1e-5)
    assert continued[1] == pytest.approx(continued[2], rel=1e-5)


# What it is made with ------------------------------------------------------------------------------


def test_devices_are_those_of_tensorflow() -> None:
    strategy = stratagem.experimental.CentralStorageStrategy(COMPUTE)
    assert isinstance(strategy, stratagem.CentralStorageStrategy)
    task = "/job:localhost/replica:0/task:0/device:"
    assert strategy.extended.worker_devices == tuple(f"{task}CPU:{i}" for i in range(3))
    assert strategy.extended.parameter_devices == (f"{task}CPU:0",)
    assert at_centre().extended.parameter_devices == (f"{task}CPU:3",)
    assert stratagem.CentralStorageStrategy().num_replicas_in_sync == len(jax.devices())
    with pytest.raises(InputError, match=r"virtual_devices"):
        stratagem.CentralStorageStrategy(COMPUTE, "cpu:9")


def test_it_stands_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = {"worker": ["a:1", "b:1"], "evaluator": ["c:1"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 1}}))
    with pytest.raises(UsageError, match=r"one of 2 workers(.|\n)*strategy = stratagem\.MultiWorkerMirroredStrategy"):
        stratagem.CentralStorageStrategy(COMPUTE)
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "evaluator", "index": 0}}))
    assert stratagem.CentralStorageStrategy(COMPUTE).num_replicas_in_sync == 3


@pytest.mark.parametrize("told", [{"skip_gradients_aggregation": True}, {"experimental_aggregate_gradients": False}])
def test_gradients_of_one_replica_alone_are_refused(told: dict[str, bool]) -> None:
    strategy = at_centre()
    with strategy.scope():
        weight, optimizer = keras.Variable(1.0), keras.optimizers.SGD(1.0)
    apply: Any = optimizer.apply_gradients
    with pytest.raises(UnsupportedError, match="The gradient of a single replica would change"):
        strategy.run(lambda: apply([(1.0 + weight.value, weight)], **told))
    assert float(weight.value) == 1.0


def test_values_are_reduced_in_a_compiled_function() -> None:
    strategy = at_centre()
    values = strategy.experimental_distribute_values_from_function(lambda c: float(c.replica_id_in_sync_group + 1))
    with strategy.scope():
        v = keras.Variable(2.0)
    total = stratagem.function(lambda: strategy.reduce("SUM", values, axis=None))()
    assert float(total) == 6.0
    assert float(v + total) == 8.0
