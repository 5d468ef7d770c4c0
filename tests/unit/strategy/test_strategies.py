from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

import stratagem
import stratagem.tf as tf
from stratagem.cluster.resolver import SimpleClusterResolver
from stratagem.cluster.spec import ClusterSpec
from stratagem.core.errors import InputError, PeerError, UsageError
from stratagem.data import Dataset
from stratagem.mesh.mesh import ReplicaMesh
from stratagem.mesh.values import PerReplica
from stratagem.strategy.tpu import TPUStrategy

TWO_WORKERS = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": %s, "index": 0}}'


def mirrored(replicas: int) -> stratagem.MirroredStrategy:
    return stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)])


@pytest.mark.parametrize(
    "name", ["cpu:1", "CPU:1", "/cpu:1", "/device:CPU:1", "/job:localhost/replica:0/task:0/device:CPU:1"]
)
def test_device_names_of_tensorflow(name: str) -> None:
    assert stratagem.OneDeviceStrategy(name).mesh.devices == (jax.devices()[1],)


def test_a_kind_alone_is_its_first_device_and_what_tf_config_lists_is_one() -> None:
    assert stratagem.MirroredStrategy(devices=["CPU"]).mesh.devices == (jax.devices()[0],)
    listed = tf.config.list_logical_devices("CPU")
    assert stratagem.MirroredStrategy(devices=listed[1:3]).mesh.devices == tuple(jax.devices()[1:3])
    physical = tf.config.list_physical_devices("CPU")
    assert stratagem.OneDeviceStrategy(physical[0]).mesh.devices == (jax.devices()[0],)


@pytest.mark.parametrize(
    ("name", "extra"), [("gpu:0", "jax[cuda12]"), ("/device:GPU:1", "jax[cuda12]"), ("tpu:0", "jax[tpu]")]
)
def test_an_accelerator_that_jax_does_not_see(name: str, extra: str) -> None:
    with pytest.raises(InputError, match=rf"JAX finds no [GT]PU .*\n.*pip install '{re.escape(extra)}'"):
        stratagem.MirroredStrategy([name])


@pytest.mark.parametrize("devices", [2, "cpu:0", {"cpu:0"}])
def test_devices_that_are_no_list(devices: Any) -> None:
    with pytest.raises(InputError, match=r'Write a list of names: devices=\["GPU:0", "GPU:1"\]'):
        stratagem.MirroredStrategy(devices)


def test_devices_by_their_numbers() -> None:
    with pytest.raises(InputError, match="A device is named 0, of type int"):
        stratagem.MirroredStrategy([0, 1])  # type: ignore[list-item]  # pyright: ignore


@pytest.mark.parametrize("name", ["cpu:9", "nonsense", "cpu:"])
def test_a_device_that_is_not_there(name: str) -> None:
    with pytest.raises(InputError, match=r"virtual_devices"):
        stratagem.OneDeviceStrategy(name)


@pytest.mark.parametrize("devices", [[], ["cpu:0", "cpu:0"]])
def test_devices_must_be_some_and_different(devices: list[str]) -> None:
    with pytest.raises(InputError, match="Name each device once"):
        stratagem.MirroredStrategy(devices)


def test_mirrored_takes_all_devices() -> None:
    assert stratagem.MirroredStrategy().num_replicas_in_sync == len(jax.devices())


@pytest.mark.parametrize(
    ("variables", "workers"),
    [
        ({"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "head", "MASTER_PORT": "29500"}, 3),
        ({"TF_CONFIG": TWO_WORKERS % '"worker"'}, 2),
        ({"TF_CONFIG": TWO_WORKERS % '"evaluator"'}, 1),
        ({}, 1),
    ],
)
def test_mirrored_on_one_of_several_workers_is_said(
    variables: dict[str, str], workers: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    stratagem.MirroredStrategy()
    said = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == (workers > 1)
    assert workers == 1 or said[0].startswith(f"MirroredStrategy was made on one of {workers} workers.")


def test_mirrored_refuses_other_cross_device_ops() -> None:
    assert stratagem.MirroredStrategy(["cpu:0"], stratagem.NcclAllReduce()).num_replicas_in_sync == 1
    with pytest.raises(InputError, match="NcclAllReduce"):
        stratagem.MirroredStrategy(["cpu:0"], cross_device_ops="nccl")  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class FakeDevice:
    platform: str
    process_index: int
    id: int


def test_tpu_wants_tpus() -> None:
    with pytest.raises(UsageError, match="no TPU"):
        TPUStrategy(devices=jax.devices)
    with pytest.raises(UsageError, match="device_assignment"):
        TPUStrategy(experimental_device_assignment=object())


def test_tpu_takes_the_tpus_of_all_workers_in_order() -> None:
    tpus = [FakeDevice("tpu", 1, 3), FakeDevice("tpu", 0, 1), FakeDevice("tpu", 1, 2), FakeDevice("tpu", 0, 0)]
    strategy = TPUStrategy(devices=lambda: [FakeDevice("cpu", 0, 9), *tpus])  # pyright: ignore[reportArgumentType]
    assert [device.id for device in strategy.mesh.devices] == [0, 1, 2, 3]
    assert strategy.num_replicas_in_sync == 4
    assert strategy.worker_count == 2
    assert strategy.is_chief
    assert strategy.mesh.local_replicas == (0, 1)


def test_workers_must_have_equal_numbers_of_devices() -> None:
    devices = [FakeDevice("tpu", 0, 0), FakeDevice("tpu", 0, 1), FakeDevice("tpu", 1, 2)]
    with pytest.raises(PeerError, match=r"worker 0: 2, worker 1: 1"):
        ReplicaMesh(devices)  # pyright: ignore[reportArgumentType]


def test_scopes() -> None:
    strategy = mirrored(2)
    assert not stratagem.has_strategy()
    assert not stratagem.in_cross_replica_context()
    assert stratagem.get_strategy().num_replicas_in_sync == 1
    with strategy.scope(), strategy.scope():
        assert stratagem.get_strategy() is strategy
        assert stratagem.has_strategy()
        assert stratagem.in_cross_replica_context()
        assert stratagem.get_replica_context() is None
        with pytest.raises(UsageError, match="scope of OneDeviceStrategy was entered inside"), mirrored_one().scope():
            pass
        with pytest.raises(UsageError, match="experimental_set_strategy"):
            stratagem.experimental_set_strategy(None)
    assert not stratagem.has_strategy()


def mirrored_one() -> stratagem.OneDeviceStrategy:
    return stratagem.OneDeviceStrategy("cpu:0")


def test_set_strategy_for_the_whole_program() -> None:
    strategy = mirrored(2)
    stratagem.experimental_set_strategy(strategy)
    try:
        assert stratagem.get_strategy() is strategy
    finally:
        stratagem.experimental_set_strategy(None)
    assert not stratagem.has_strategy()


def _replica_numbers() -> jax.Array:
    context = stratagem.get_replica_context()
    assert context is not None
    assert not stratagem.in_cross_replica_context()
    return context.replica_id_in_sync_group * 10 + jnp.arange(3)


def test_run_and_reduce() -> None:
    strategy = mirrored(3)
    value = strategy.run(_replica_numbers)
    np.testing.assert_array_equal(strategy.experimental_local_results(value), [[0, 1, 2], [10, 11, 12], [20, 21, 22]])
    for op, axis, expected in [
        ("SUM", None, [30, 33, 36]),
        ("mean", None, [10, 11, 12]),
        (stratagem.ReduceOp.MIN, None, [0, 1, 2]),
        (stratagem.ReduceOp.MAX, None, [20, 21, 22]),
        ("SUM", 0, 99),
        ("MEAN", (0,), 11),
        ("MAX", -1, 22),
    ]:
        np.testing.assert_allclose(strategy.reduce(op, value, axis=axis), expected)
    np.testing.assert_array_equal(strategy.gather(value, axis=0), [0, 1, 2, 10, 11, 12, 20, 21, 22])


def test_all_reduce_and_all_gather_inside_run() -> None:
    strategy = mirrored(4)

    def replica(scale: jax.Array) -> dict[str, jax.Array]:
        context = stratagem.get_replica_context()
        assert context is not None
        own = (context.replica_id_in_sync_group + 1.0) * scale
        gathered = context.all_gather({"v": own[None]}, axis=0)["v"]
        mean, least = context.all_reduce("mean", own), context.all_reduce("min", own)
        slope = jax.grad(lambda s: context.all_reduce("sum", s * (context.replica_id_in_sync_group + 1.0)))(scale)
        return {"gathered": gathered, "mean": mean, "least": least, "slope": slope}

    result = strategy.run(replica, args=(np.float32(2.0),))
    first = {name: strategy.experimental_local_results(value)[2] for name, value in result.items()}
    np.testing.assert_array_equal(first["gathered"], [2, 4, 6, 8])
    assert first["mean"] == 5.0
    assert first["least"] == 2.0
    # Each replica's objective is the same sum; a cotangent of 1 from each of 4 reaches own slope 3.
    assert first["slope"] == 12.0


def test_variables_in_run_follow_their_aggregation() -> None:
    strategy = mirrored(4)
    with strategy.scope():
        total = keras.Variable(5.0, trainable=False, aggregation="sum")
        mean = keras.Variable(0.0, trainable=False, aggregation="mean")
        first = keras.Variable(0, trainable=False, dtype="int32", aggregation="only_first_replica")
        read = keras.Variable(3.0)

    def replica() -> None:
        context = stratagem.get_replica_context()
        assert context is not None
        own = context.replica_id_in_sync_group + 1
        total.assign_add(keras.ops.cast(own, "float32") * read)
        mean.assign(keras.ops.cast(own, "float32"))
        first.assign(own * 7)

    strategy.run(replica)
    assert float(total.value) == 5.0 + 3.0 * (1 + 2 + 3 + 4)
    assert float(mean.value) == 2.5
    assert int(first.value) == 7
    assert float(read.value) == 3.0


def test_variables_follow_the_first_replica_that_has_rows() -> None:
    strategy = mirrored(2)
    with strategy.scope():
        first = keras.Variable(5, trainable=False, dtype="int32", aggregation="only_first_replica")
        total = keras.Variable(5.0, trainable=False, aggregation="sum")
    rows = PerReplica(strategy.mesh.shard_blocks(np.array([[0, 0], [3, 4]], "int32")), strategy.mesh, ((0,), (2,)))

    def replica(x: jax.Array) -> None:
        first.assign(x[-1])
        total.assign_add(keras.ops.sum(x))

    strategy.run(replica, args=(rows,))
    assert int(first.value) == 4
    assert float(total.value) == 12.0


def test_values_of_variables_outlive_a_step() -> None:
    """A step must not give the memory of what it rewrites to something else: programs keep such values."""
    strategy = mirrored(2)
    with strategy.scope():
        variable = keras.Variable([1.0, 2.0])
    kept: list[Any] = []
    for _ in range(3):
        strategy.run(lambda: variable.assign_add(variable))
        value: Any = variable.value
        kept += [value, np.asarray(value), value.addressable_shards[0].data]
    assert [[float(v) for v in held] for held in kept[::3]] == [[2, 4], [4, 8], [8, 16]]
    assert all(kept[i + k].tolist() == kept[i].tolist() for i in (0, 3, 6) for k in (1, 2))


def test_one_replica_gives_plain_values() -> None:
    strategy = mirrored_one()
    assert float(strategy.run(lambda x: x + 1, args=(np.float32(1),))) == 2.0
    assert float(strategy.reduce("SUM", np.float32(4), axis=None)) == 4.0


def test_misuse_is_explained() -> None:
    strategy = mirrored(2)
    with pytest.raises(UsageError, match=r"Write `with strategy.scope\(\):`"), strategy:  # pyright: ignore
        pass
    with pytest.raises(InputError, match=r"The first argument of strategy.run is 3, of type int"):
        strategy.run(3)  # type: ignore[arg-type]  # pyright: ignore
    with pytest.raises(InputError, match=r"args=\(value,\)"):
        strategy.run(lambda x: x, args=np.ones(2))  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="Call the inner function directly"):
        strategy.run(lambda: strategy.run(lambda: 1.0))
    with pytest.raises(UsageError, match="all_reduce"):
        strategy.run(lambda: strategy.reduce("sum", 1.0, axis=None))
    with pytest.raises(InputError, match="not a per-replica value"):
        strategy.reduce("SUM", 1.0, axis=None)
    with pytest.raises(InputError, match="SUM, MEAN, MIN or MAX"):
        strategy.reduce("product", 1.0, axis=None)
    with pytest.raises(InputError, match="no such axis"):
        strategy.reduce("SUM", strategy.run(_replica_numbers), axis=1)
    with pytest.raises(InputError, match="scalars"):
        strategy.gather(strategy.run(lambda: jnp.float32(1)), axis=0)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("compiled", [False, True], ids=["run", "function"])
def test_reduce_of_a_structure(replicas: int, compiled: bool) -> None:
    strategy = mirrored(replicas)

    def total() -> Any:
        return strategy.reduce("SUM", strategy.run(lambda: (1.0, {"two": 2.0})), axis=None)

    one, rest = (stratagem.function(total) if compiled else total)()
    assert (float(one), float(rest["two"])) == (1.0 * replicas, 2.0 * replicas)


def test_a_model_that_was_never_compiled_predicts() -> None:
    strategy = mirrored(2)
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones")])
    assert model.predict(np.ones((3, 2)), verbose=0).tolist() == [[2.0], [2.0], [2.0]]


def test_a_variable_that_steps_only_read_is_placed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Placing it takes a talk among the workers: at each step it would cost more than a small step."""
    strategy = stratagem.MirroredStrategy(["cpu:0", "cpu:1"])
    rate, total = keras.Variable(2.0), keras.Variable(1.0)  # made outside the scope
    talks: list[Any] = []
    monkeypatch.setattr(strategy, "check_agreement", lambda *facts: talks.append(facts))
    for _ in range(3):
        strategy.run(lambda: total.assign(total * rate))
    assert (float(total.value), float(rate.value), len(talks)) == (8.0, 2.0, 1)
    assert strategy.mesh.is_replicated(rate.value)


@pytest.mark.parametrize("task_type", ["foobar", "1", ""])
def test_a_type_of_task_that_there_is_not_ends_at_once(task_type: str) -> None:
    spec = ClusterSpec({"chief": ["localhost:23456"], "worker": ["localhost:23457"], "ps": ["localhost:23458"]})
    for kind in (stratagem.ParameterServerStrategy, stratagem.MultiWorkerMirroredStrategy):
        resolver = SimpleClusterResolver(spec, task_type=task_type, task_id=0)
        with pytest.raises(ValueError, match=f"{task_type!r} is not a type of task"):
            kind(resolver)


@pytest.mark.parametrize("name", ["cpu:1", "CPU:1", "/cpu:1"])
def test_keras_device_by_name(name: str) -> None:
    mirrored(1)
    with keras.device(name):
        assert keras.ops.zeros((2,)).devices() == {jax.devices()[1]}
    with keras.device("cpu"), keras.device(jax.devices()[2]):
        assert keras.ops.zeros((2,)).devices() == {jax.devices()[2]}


def test_keras_device_that_is_not_there() -> None:
    mirrored(1)
    with pytest.raises(InputError, match=r"'cpu:9' was asked for; this process has CPU:0, "), keras.device("cpu:9"):
        pass
    with pytest.raises(ValueError, match=r"Invalid value for argument `device_name`"), keras.device(3):  # type: ignore[arg-type]
        pass


def test_the_default_strategy_counts_as_none() -> None:
    """As in TensorFlow, also in its scope, where programs for one device come in by `get_strategy().scope()`."""
    with stratagem.get_strategy().scope():
        assert (stratagem.has_strategy(), stratagem.in_cross_replica_context()) == (False, False)
        context: Any = stratagem.get_replica_context()
        assert context.num_replicas_in_sync == 1
        assert context is stratagem.get_replica_context()
        assert float(stratagem.nn.compute_average_loss([1.0, 3.0])) == 2.0
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
        model.compile(keras.optimizers.SGD(0.5), "mse")
    model.fit(np.ones((4, 1)), np.zeros((4, 1)), batch_size=4, verbose=0)
    assert [weight.tolist() for weight in model.get_weights()] == [[[0.0]], [-1.0]]


def test_run_by_its_name_in_older_programs() -> None:
    strategy = stratagem.MirroredStrategy(["cpu:0", "cpu:1"])
    doubled = strategy.extended.call_for_each_replica(lambda x, y: x * y, args=(3.0,), kwargs={"y": 2.0})
    assert [float(each) for each in strategy.experimental_local_results(doubled)] == [6.0, 6.0]


def test_the_old_name_of_run() -> None:
    strategy = stratagem.MirroredStrategy(["cpu:0", "cpu:1"])
    with pytest.warns(DeprecationWarning, match=r"is now strategy\.run"):
        doubled = strategy.experimental_run_v2(lambda x: 2 * x, args=(3.0,))
    assert [float(each) for each in strategy.experimental_local_results(doubled)] == [6.0, 6.0]


def test_either_spelling_names_the_strategy_of_several_workers() -> None:
    old, new = stratagem.experimental.MultiWorkerMirroredStrategy, stratagem.MultiWorkerMirroredStrategy
    assert [isinstance(made, kind) for made in (old(), new()) for kind in (old, new)] == [True] * 4
    assert not isinstance(stratagem.OneDeviceStrategy("cpu:0"), old)


@pytest.mark.parametrize(
    "ask",
    [
        lambda strategy: strategy.worker_count,
        lambda strategy: strategy.worker_index,
        lambda strategy: strategy.is_chief,
        lambda strategy: strategy.distribute_datasets_from_function(lambda context: Dataset.range(2).batch(1)),
        lambda strategy: strategy.experimental_distribute_dataset(iter([np.zeros((2, 1))])),
    ],
    ids=["count", "index", "chief", "function", "generator"],
)
def test_one_that_prepares_waits_where_the_program_asks_for_its_place(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[[Any], object]
) -> None:
    """And only there: a global dataset, for example, is divided anew when it has one."""
    strategy = stratagem.MirroredStrategy(["cpu:0", "cpu:1"])
    waited: list[bool] = []
    world = SimpleNamespace(
        own_state=SimpleNamespace(has_begun=False),
        layout=strategy.layout,
        take_place=lambda: waited.append(True),
        keeps_rows_of_workers=False,
    )
    monkeypatch.setattr(strategy.mesh, "world", world)
    assert strategy.num_replicas_in_sync == 2
    iter(strategy.experimental_distribute_dataset(Dataset.range(4).batch(2)))
    with strategy.scope():
        keras.Variable(1.0)
    assert waited == []
    ask(strategy)
    assert waited
