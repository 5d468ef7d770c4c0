"""Scheduling on a cluster in this process: TensorFlow's tutorial loop, its error rules, what travels to workers."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Iterator
from typing import Any, cast

import keras
import numpy as np
import pytest
from tests.unit.ps import servers
from tests.unit.ps.servers import small_cluster

import stratagem
import stratagem.tf as tf
from stratagem.cluster.spec import ClusterSpec
from stratagem.cluster_resolver import SimpleClusterResolver
from stratagem.coordinator import (
    ClusterCoordinator,
    PerWorkerValues,
    RemoteValue,
    experimental_get_current_worker_index,
)
from stratagem.core.errors import CancelledError, ClusterError, InputError, UsageError
from stratagem.ps.partitioners import FixedShardsPartitioner


@pytest.fixture
def coordinator() -> Iterator[ClusterCoordinator]:
    strategy = stratagem.ParameterServerStrategy()
    yield ClusterCoordinator(strategy)
    strategy.close()


@pytest.fixture
def one_worker() -> Iterator[SimpleClusterResolver]:
    with small_cluster() as resolver:
        yield resolver


class OwnError(Exception):
    pass


FEATURES = np.random.default_rng(3).normal(size=(32, 4)).astype("float32")
LABELS = (FEATURES.sum(axis=1, keepdims=True) > 0).astype("float32")


def make_parts() -> tuple[Any, Any, Any]:
    keras.utils.set_random_seed(5)
    layers = [keras.Input((4,)), keras.layers.Dense(6, activation="tanh"), keras.layers.BatchNormalization()]
    model = keras.Sequential([*layers, keras.layers.Dense(1, activation="sigmoid")])
    return model, keras.optimizers.RMSprop(0.05), keras.metrics.BinaryAccuracy()


def make_dataset(context: stratagem.InputContext) -> Any:
    dataset = stratagem.data.Dataset.from_tensor_slices((FEATURES, LABELS)).repeat()
    return dataset.batch(context.get_per_replica_batch_size(8))


def make_step(strategy: Any, model: Any, optimizer: Any, accuracy: Any) -> Any:
    loss_of = keras.losses.BinaryCrossentropy(reduction="none")

    @stratagem.function
    def step_fn(iterator: Any) -> Any:
        def replica_fn(features: Any, labels: Any) -> Any:
            with stratagem.GradientTape() as tape:
                predictions = model(features, training=True)
                loss = stratagem.nn.compute_average_loss(loss_of(labels, predictions), global_batch_size=8)
            weights = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            accuracy.update_state(labels, predictions)
            return loss

        losses = strategy.run(replica_fn, args=next(iterator))
        return strategy.reduce("SUM", losses, axis=None)

    return step_fn


def test_the_tutorial_loop_has_the_numbers_of_one_device(one_worker: SimpleClusterResolver) -> None:
    """With one worker there is no asynchrony; tensorflow.org/tutorials/distribute/parameter_server_training."""
    plain = stratagem.OneDeviceStrategy("cpu:0")
    parts = make_parts()
    iterator = iter(plain.distribute_datasets_from_function(make_dataset))
    step = make_step(plain, *parts)
    expected = [float(step(iterator)) for _ in range(6)]
    iterator.close()

    strategy = stratagem.ParameterServerStrategy(one_worker, variable_partitioner=FixedShardsPartitioner(2))
    coordinator = ClusterCoordinator(strategy)
    with strategy.scope():
        model, optimizer, accuracy = make_parts()
    step_fn = make_step(strategy, model, optimizer, accuracy)

    @stratagem.function
    def per_worker_dataset_fn() -> Any:
        return strategy.distribute_datasets_from_function(make_dataset)

    per_worker_iterator = iter(coordinator.create_per_worker_dataset(per_worker_dataset_fn))
    values = [coordinator.schedule(step_fn, args=(per_worker_iterator,)) for _ in range(6)]
    coordinator.join()
    assert coordinator.done()
    np.testing.assert_allclose(coordinator.fetch(values), expected, rtol=1e-4)
    for ours, theirs in zip(model.get_weights(), parts[0].get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)
    assert float(accuracy.result()) == pytest.approx(float(parts[2].result()))
    assert int(optimizer.iterations) == 6
    assert len(model.trainable_variables[0].parts) == 2

    optimizer.learning_rate = 0.0  # the workers' next steps take it
    before = model.trainable_variables[0].numpy()
    coordinator.schedule(step_fn, args=(per_worker_iterator,)).fetch()
    np.testing.assert_array_equal(model.trainable_variables[0].numpy(), before)
    strategy.close()


def test_results_come_back_as_they_were(coordinator: ClusterCoordinator) -> None:
    def results(x: Any, *, scale: float) -> Any:
        return {"pair": (x * scale, [None, "text", True]), "number": 2.5, "integer": 1 << 40}

    value = coordinator.schedule(results, args=(np.arange(3),), kwargs={"scale": 2.0})
    assert isinstance(value, RemoteValue)
    fetched = coordinator.fetch({"one": value, "plain": 7})
    assert fetched["plain"] == 7
    assert fetched["one"]["pair"][0].tolist() == [0.0, 2.0, 4.0]
    assert fetched["one"]["pair"][1] == [None, "text", True]
    assert (fetched["one"]["number"], fetched["one"]["integer"]) == (2.5, 1 << 40)
    assert type(value.get()["pair"][0]).__module__.startswith("jax")
    assert value.fetch()["pair"][0].dtype == np.float64


def test_additions_from_all_workers_are_counted(coordinator: ClusterCoordinator) -> None:
    with coordinator.strategy.scope():
        total = keras.Variable(0.0, trainable=False)

    @stratagem.function
    def add(x: Any) -> None:
        total.assign_add(x)

    for number in range(60):
        coordinator.schedule(add, args=(float(number),))
    coordinator.join()
    assert float(total.value) == sum(range(60))
    total.assign(1.0)
    coordinator.schedule(lambda: total.assign_add(0.5) and None)
    coordinator.join()
    assert float(total.value) == 1.5


def test_per_worker_values_are_those_of_the_worker(coordinator: ClusterCoordinator) -> None:
    dataset = coordinator.create_per_worker_dataset(lambda: [experimental_get_current_worker_index()] * 500)
    iterator = iter(dataset)
    assert isinstance(iterator, PerWorkerValues)
    servers.gates["met"] = threading.Barrier(2)  # neither worker gets both functions

    def look(iterator: Any) -> tuple[int, int]:
        servers.gates["met"].wait(20)
        return next(iterator), experimental_get_current_worker_index()

    values = [coordinator.schedule(look, args=(iterator,)) for _ in range(2)]
    assert sorted(coordinator.fetch(values)) == [(0, 0), (1, 1)]
    with pytest.raises(UsageError, match="on the chief"):
        next(iterator)
    with pytest.raises(UsageError, match="no current worker"):
        experimental_get_current_worker_index()


def test_an_error_is_raised_once_and_clears_the_queue(coordinator: ClusterCoordinator) -> None:
    def fail(text: str) -> None:
        raise OwnError(text)

    def wait() -> str:
        return "ran"

    def schedule_on() -> None:
        for _ in range(100_000):
            coordinator.schedule(wait)

    def ask_on() -> None:
        while not coordinator.done():
            pass

    first = coordinator.schedule(fail, args=("first",))
    with pytest.raises(OwnError, match="first") as caught:
        coordinator.join()
    assert "in fail" in caught.value.__notes__[0]
    assert "On worker" in caught.value.__notes__[0]
    with pytest.raises(OwnError, match="first"):
        first.fetch()
    coordinator.join()  # cleared
    assert coordinator.schedule(wait).fetch() == "ran"
    coordinator.schedule(fail, args=("second",))
    with pytest.raises(OwnError, match="second"):
        schedule_on()
    assert coordinator.metrics()["in flight"] == 0
    assert coordinator.metrics()["queued"] == 0
    aborted = coordinator.metrics()["aborted"]
    assert coordinator.metrics()["scheduled"] == aborted + coordinator.metrics()["finished"] + 2
    coordinator.schedule(fail, args=("third",))
    with pytest.raises(OwnError, match="third"):
        ask_on()


def test_an_assertion_in_a_compiled_function_is_raised_once(coordinator: ClusterCoordinator) -> None:
    @stratagem.function
    def step(x: Any) -> Any:
        import stratagem.tf as tf

        tf.debugging.assert_positive(x, "widths")
        return x + 1.0

    assert float(coordinator.schedule(step, args=(1.0,)).fetch()) == 2.0
    coordinator.schedule(step, args=(-1.0,))
    with pytest.raises(InputError, match=r"widths: assert_positive does not hold, in .*test_coordinator.py:\d+.*-1\.0"):
        coordinator.join()
    coordinator.join()


def test_what_waits_behind_an_error_is_cancelled(coordinator: ClusterCoordinator) -> None:
    release = servers.gates["release"] = threading.Event()

    started = servers.gates["started"] = threading.Barrier(3)

    def hold() -> None:
        servers.gates["started"].wait(20)
        servers.gates["release"].wait(20)
        raise OwnError("held")

    values = [coordinator.schedule(hold) for _ in range(2)]
    waiting = [coordinator.schedule(lambda: 1) for _ in range(3)]
    with pytest.raises(TimeoutError):
        waiting[0].fetch(timeout=0.0)
    started.wait(20)  # both workers have begun
    release.set()
    for value in waiting:
        with pytest.raises(CancelledError, match="Another scheduled function failed"):
            value.fetch()
    with pytest.raises(OwnError, match="held"):
        coordinator.join()
    for value in values:
        with pytest.raises(OwnError):
            value.fetch()


def test_what_could_not_be_made_on_a_worker_is_tried_again(one_worker: SimpleClusterResolver) -> None:
    """As `testErrorInCreateDataset` of TensorFlow's cluster_coordinator_test.py; each try tells the same error."""
    servers.gates["faults"] = 2
    strategy = stratagem.ParameterServerStrategy(one_worker)
    coordinator = ClusterCoordinator(strategy)

    def make() -> Any:
        if servers.gates["faults"]:
            servers.gates["faults"] -= 1
            raise OwnError("the disk is not there yet")
        return stratagem.data.Dataset.range(10).batch(2)

    iterator = iter(coordinator.create_per_worker_dataset(make))
    for _ in range(2):
        coordinator.schedule(lambda it: next(it), args=(iterator,))
        with pytest.raises(OwnError, match="not there yet"):
            coordinator.join()
    for expected in ([0, 1], [2, 3]):
        assert coordinator.schedule(lambda it: next(it), args=(iterator,)).fetch().tolist() == expected
    strategy.close()


def test_who_waits_for_a_cluster_that_has_ended_is_told() -> None:
    strategy = stratagem.ParameterServerStrategy()
    coordinator = ClusterCoordinator(strategy)
    gates = servers.gates
    gates["started"], gates["release"] = threading.Barrier(3), threading.Event()

    def hold() -> None:
        servers.gates["started"].wait(20)
        servers.gates["release"].wait(20)

    values = [coordinator.schedule(hold) for _ in range(3)]
    gates["started"].wait(20)
    told: list[BaseException] = []

    def wait() -> None:
        with pytest.raises(UsageError) as caught:
            values[2].fetch(timeout=60)
        told.append(caught.value)
        gates["release"].set()  # the workers end what they do, only then can `close` be done

    waiting = threading.Thread(target=wait)
    waiting.start()
    strategy.close()
    waiting.join()
    assert "was closed" in str(told[0])
    for call in (lambda: coordinator.schedule(lambda: 1), coordinator.join, coordinator.done):
        with pytest.raises(UsageError, match="was closed"):
            call()


def test_a_fault_of_the_coordinators_own_is_raised(
    coordinator: ClusterCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(coordinator._workers, "_understand", fail)

    # A worker's greeting may come while this runs, so that schedule itself already finds the fault.
    def ask() -> int:
        return coordinator.schedule(lambda: 1).fetch(timeout=60)

    for call in (ask, coordinator.join):
        with pytest.raises(RuntimeError, match="a fault"):
            call()


def test_functions_are_sent_once(coordinator: ClusterCoordinator) -> None:
    ballast = np.zeros(1 << 16, np.uint8)

    def step(x: int) -> int:
        return x + len(ballast)

    coordinator.fetch([coordinator.schedule(step, args=(1,)) for _ in range(4)])
    sent = coordinator.metrics()["bytes sent"]
    assert sent < 4 * len(ballast)  # to two workers at most
    coordinator.fetch([coordinator.schedule(step, args=(1,)) for _ in range(20)])
    assert coordinator.metrics()["bytes sent"] - sent < len(ballast) + 20_000


def test_functions_that_are_made_anew_do_not_pile_up(coordinator: ClusterCoordinator) -> None:
    for number in range(400):
        coordinator.schedule(functools.partial(lambda x: x, number))
    coordinator.join()
    coordinator.schedule(lambda: None).fetch()
    assert len(coordinator._workers._shared) < 140
    assert not coordinator._workers._jobs


@dataclasses.dataclass
class Adder:
    """A function that no dict takes as a key."""

    number: int

    def __call__(self, x: int) -> int:
        return x + self.number


def test_functions_need_no_hash(coordinator: ClusterCoordinator) -> None:
    adders = [Adder(1), Adder(2), Adder(1)]
    results = [coordinator.schedule(adder, args=(10,)) for adder in [*adders, *adders]]
    assert coordinator.fetch(results) == [11, 12, 11] * 2


class Trainer:
    """A program's own class, whose functions refer to the coordinator by it."""

    def __init__(self, coordinator: ClusterCoordinator) -> None:
        self.coordinator = coordinator
        with coordinator.strategy.scope():
            self.total = keras.Variable(1.0)

    @stratagem.function
    def step(self, x: Any) -> Any:
        self.total.assign_add(x)
        return self.total.value

    @stratagem.function
    def asks(self) -> Any:
        return self.coordinator.done()

    def asks_for_its_strategy(self) -> Any:
        return type(self.coordinator.strategy).__name__, self.coordinator.strategy.num_replicas_in_sync


def test_a_function_may_refer_to_the_coordinator_and_not_use_it(coordinator: ClusterCoordinator) -> None:
    trainer = Trainer(coordinator)
    result = coordinator.schedule(trainer.step, args=(2.0,))
    coordinator.join()
    assert (float(result.fetch()), float(trainer.total.value)) == (3.0, 3.0)
    assert coordinator.schedule(trainer.asks_for_its_strategy).fetch() == ("WorkerStrategy", 1)
    coordinator.schedule(trainer.asks)
    with pytest.raises(UsageError, match=r"coordinator\.done was asked for in a function that a worker runs"):
        coordinator.join()


def test_attributes_of_a_class_stay_the_chiefs(coordinator: ClusterCoordinator) -> None:
    class Job:
        strategy, made = coordinator.strategy, coordinator

        def ask(self) -> str:
            return type(self.strategy).__name__

    results = [coordinator.schedule(job.ask) for job in (Job(), Job())]
    assert coordinator.fetch(results) == ["WorkerStrategy"] * 2
    assert (Job.strategy, Job.made) == (coordinator.strategy, coordinator)


def test_run_on_the_chief_computes_there_and_says_so_once(
    coordinator: ClusterCoordinator, capfd: pytest.CaptureFixture[str]
) -> None:
    strategy = coordinator.strategy
    with strategy.scope():
        total = keras.Variable(1.0)
    coordinator.schedule(lambda: total.assign_add(1.0))  # from now on it is on a server
    coordinator.join()

    def step(x: Any) -> Any:
        total.assign_add(x)
        return total.value + x

    assert [float(strategy.run(step, args=(x,))) for x in (1.0, 2.0)] == [4.0, 7.0]
    assert float(strategy.reduce("SUM", total.value, axis=None)) == 5.0
    assert capfd.readouterr().err.count("was called on the chief, which computes alone") <= 1


def first_batches(coordinator: ClusterCoordinator, dataset: Any) -> list[Any]:
    """Return the first batch of each of two workers, which wait for each other."""
    iterator = iter(coordinator.create_per_worker_dataset(dataset))
    servers.gates["both"] = threading.Barrier(2)

    def read(iterator: Any) -> Any:
        servers.gates["both"].wait(30)
        return np.asarray(next(iterator))

    results = [coordinator.schedule(read, args=(iterator,)) for _ in range(2)]
    coordinator.join()
    return [result.fetch().tolist() for result in results]


def test_a_distributed_dataset_is_made_anew_on_each_worker(coordinator: ClusterCoordinator) -> None:
    strategy, numbers = coordinator.strategy, stratagem.data.Dataset.range(8).batch(4)
    shared = strategy.experimental_distribute_dataset(numbers)
    assert first_batches(coordinator, shared) == [[0, 1, 2, 3]] * 2
    own = strategy.distribute_datasets_from_function(
        lambda c: stratagem.data.Dataset.range(8).shard(c.num_input_pipelines, c.input_pipeline_id).batch(4)
    )
    assert first_batches(coordinator, own) == [[0, 1, 2, 3]] * 2  # one pipeline, as in TensorFlow: nobody divides
    for dataset in (shared, own):
        with pytest.raises(InputError, match="iterated over on the chief"):
            iter(dataset)


@pytest.mark.parametrize("way", ["compiled", "eager", "run", "loop", "read"])
def test_each_number_of_a_count_is_returned_once(coordinator: ClusterCoordinator, way: str) -> None:
    """As in TensorFlow 2.21: 100 functions that add 1 return 1 to 100, whichever workers run them."""
    with coordinator.strategy.scope():
        count = tf.Variable(0)
    add = lambda: count.assign_add(1)  # noqa: E731

    def loop() -> Any:
        for _ in tf.range(3):
            count.assign_add(2)
        count.assign_sub(5)
        return count.value

    def read() -> Any:
        count.assign_add(1)
        return count.read_value()

    function = {
        "compiled": tf.function(add),
        "eager": add,
        "run": tf.function(lambda: coordinator.strategy.run(add)),
        "loop": tf.function(loop),
        "read": tf.function(read),
    }[way]
    results = [coordinator.schedule(function) for _ in range(100)]
    coordinator.join()
    assert sorted(int(result.fetch()) for result in results) == list(range(1, 101))
    assert int(count.value) == 100


def test_the_context_of_workers_is_tensorflows(coordinator: ClusterCoordinator) -> None:
    strategy = coordinator.strategy

    def dataset_fn(context: stratagem.InputContext) -> Any:
        facts = [context.num_input_pipelines, context.input_pipeline_id, context.num_replicas_in_sync]
        rows = [*facts, context.get_per_replica_batch_size(64), experimental_get_current_worker_index()]
        return stratagem.data.Dataset.from_tensors(np.array(rows))

    made = coordinator.create_per_worker_dataset(lambda: strategy.distribute_datasets_from_function(dataset_fn))
    # Recorded from TensorFlow 2.21 with two workers; the last tells workers apart where a program wants to.
    assert sorted(first_batches(coordinator, made)) == [[1, 0, 1, 64, 0], [1, 0, 1, 64, 1]]


def test_the_tutorials_input_function_trains_each_row_about_as_often(coordinator: ClusterCoordinator) -> None:
    strategy, rows, batch, steps = coordinator.strategy, 60, 8, 75
    with strategy.scope():
        seen = tf.Variable(np.zeros(rows, "float32"))

    def dataset_fn(context: stratagem.InputContext) -> Any:
        dataset = stratagem.data.Dataset.range(rows).shuffle(rows).repeat()
        dataset = dataset.shard(context.num_input_pipelines, context.input_pipeline_id)
        return dataset.batch(context.get_per_replica_batch_size(batch)).prefetch(2)

    @stratagem.function
    def count(iterator: Any) -> None:
        once = strategy.run(lambda numbers: keras.ops.sum(keras.ops.one_hot(numbers, rows), axis=0), (next(iterator),))
        seen.assign_add(once)

    made = coordinator.create_per_worker_dataset(lambda: strategy.distribute_datasets_from_function(dataset_fn))
    iterator = iter(made)
    for _ in range(steps):
        coordinator.schedule(count, args=(iterator,))
    coordinator.join()
    counts = np.asarray(seen.value)
    assert counts.sum() == steps * batch
    # Each of two workers goes through all rows, once before it begins again: that leaves one visit each in doubt.
    assert counts.max() - counts.min() <= 2


def test_steps_over_the_whole_of_finite_data_meet_no_end(coordinator: ClusterCoordinator) -> None:
    """One of two workers does all steps; where the data was divided it met its end after half of them."""
    strategy = coordinator.strategy

    def dataset_fn(context: stratagem.InputContext) -> Any:
        dataset = stratagem.data.Dataset.range(48)
        return dataset.shard(context.num_input_pipelines, context.input_pipeline_id).batch(8)

    made = coordinator.create_per_worker_dataset(lambda: strategy.distribute_datasets_from_function(dataset_fn))
    iterator = iter(made)
    servers.gates["held up"], servers.gates["done"] = threading.Event(), threading.Event()

    def hold_up() -> None:
        servers.gates["held up"].set()
        servers.gates["done"].wait(60)

    coordinator.schedule(hold_up)
    assert servers.gates["held up"].wait(60)
    step = stratagem.function(lambda iterator: next(iterator))
    results = [coordinator.schedule(step, args=(iterator,)) for _ in range(48 // 8)]
    rows = [number for result in results for number in np.asarray(result.fetch()).tolist()]
    servers.gates["done"].set()
    coordinator.join()
    assert rows == list(range(48))


def test_workers_read_a_dataset_each_in_its_own_order(coordinator: ClusterCoordinator) -> None:
    numbers = stratagem.data.Dataset.range(64)
    distribute = coordinator.strategy.experimental_distribute_dataset
    for order in (numbers.shuffle(64).batch(64), distribute(numbers.shuffle(64).batch(64))):
        one, other = first_batches(coordinator, order)
        assert sorted(one) == sorted(other) == list(range(64))
        assert one != other
    one, other = first_batches(coordinator, numbers.shuffle(64, seed=3).batch(64))
    assert one == other


def test_a_compiled_function_may_make_a_dataset(coordinator: ClusterCoordinator) -> None:
    make = stratagem.function(lambda: stratagem.data.Dataset.range(8).batch(4))
    assert first_batches(coordinator, make) == [[0, 1, 2, 3]] * 2


def test_mistakes_are_explained(coordinator: ClusterCoordinator) -> None:
    strategy = coordinator.strategy
    assert ClusterCoordinator(strategy) is coordinator
    with pytest.raises(UsageError, match="OneDeviceStrategy"):
        ClusterCoordinator(stratagem.OneDeviceStrategy("cpu:0"))
    value = coordinator.schedule(lambda: 1)
    with pytest.raises(InputError, match="Call its fetch"):
        coordinator.schedule(lambda x: x, args=(value,))
    with pytest.raises(UsageError, match="cannot be sent"):
        coordinator.schedule(lambda x: x, args=(threading.Lock(),))
    with pytest.raises(UsageError, match="given 5, which is not a function"):
        coordinator.schedule(cast("Any", 5))
    coordinator.schedule(lambda: object())
    with pytest.raises(InputError, match="returned a object"):
        coordinator.join()
    with pytest.raises(ClusterError, match="no ps"):
        stratagem.ParameterServerStrategy(SimpleClusterResolver(ClusterSpec({"worker": ["localhost:1"]})))


def test_a_variable_of_tensorflow_is_on_a_server_at_once() -> None:
    strategy = stratagem.ParameterServerStrategy(variable_partitioner=FixedShardsPartitioner(3))
    with strategy.scope():
        table, number = tf.Variable(np.arange(8.0).reshape(4, 2)), tf.Variable(2)
        assert table.device == number.device == "/job:ps/replica:0/task:0/device:CPU:0"
        assert [part.numpy().tolist() for part in table.variables] == [[[0, 1], [2, 3]], [[4, 5]], [[6, 7]]]
    first, second = table.variables[:2]

    @stratagem.function
    def step() -> Any:
        second.assign_add([[1.0, 1.0]])
        return first.value[0, 1] + number.value, table.value[3, 0]

    coordinator = ClusterCoordinator(strategy)
    assert [float(x) for x in coordinator.schedule(step).fetch()] == [3.0, 6.0]
    assert table.numpy().tolist() == [[0, 1], [2, 3], [5, 6], [6, 7]]
    strategy.close()


@pytest.mark.parametrize(
    ("task_type", "task_id", "found"),
    [
        ("chief", 1, "Job 'chief' has no task 1"),
        ("evaluator", 1, "This task is evaluator 1"),
        ("foobar", 0, "'foobar' is not a type of task"),
    ],
)
def test_a_task_that_the_cluster_lacks_ends_at_once(task_type: str, task_id: int, found: str) -> None:
    spec = ClusterSpec({"chief": ["localhost:1"], "worker": ["localhost:2"], "ps": ["localhost:3"]})
    resolver = SimpleClusterResolver(spec, task_type=task_type, task_id=task_id)
    with pytest.raises(ClusterError, match=found):
        stratagem.ParameterServerStrategy(resolver)


def test_a_partitioner_that_is_wrong_is_told_where_the_variable_is_made() -> None:
    strategy = stratagem.ParameterServerStrategy(variable_partitioner=lambda shape, dtype: [2, 2])
    with strategy.scope(), pytest.raises(InputError, match=r"variable_partitioner returned \[2, 2\]"):
        tf.Variable([[0.0, 1.0], [2.0, 3.0]])
    strategy.close()


def test_a_long_function_is_given_up_after_another_failed(
    coordinator: ClusterCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stratagem.ps.coordinator_thread.END_SECONDS", 0.0)
    begun, go = servers.gates["begun"], servers.gates["go"] = threading.Event(), threading.Event()
    servers.gates["met"] = threading.Barrier(2)
    with coordinator.strategy.scope():
        total = keras.Variable(0.0, trainable=False)

    def long() -> None:
        servers.gates["begun"].set()
        servers.gates["go"].wait(20)
        total.assign_add(1.0)

    def fail() -> None:
        raise OwnError

    given_up = coordinator.schedule(long)
    assert begun.wait(20)
    coordinator.schedule(fail)
    with pytest.raises(Exception, match="OwnError"):
        coordinator.join()
    with pytest.raises(CancelledError, match="Another scheduled function failed first"):
        given_up.fetch()
    assert coordinator.schedule(lambda: 3).fetch() == 3  # by the other worker
    go.set()
    for _ in range(2):  # by both again
        coordinator.schedule(lambda: servers.gates["met"].wait(20))
    coordinator.join()
    assert float(total.value) == 0.0
