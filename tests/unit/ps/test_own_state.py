"""State that a scheduled function leaves on its worker: refused where it belongs on the servers, else told.

TensorFlow 2.21 has such variables on the servers, and runs the Python of a function once, on the chief.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
from tests.unit.ps import servers as in_process

import stratagem
import stratagem.tf as tf
from stratagem.coordinator import ClusterCoordinator
from stratagem.core.errors import UsageError


@pytest.fixture
def coordinator() -> Iterator[ClusterCoordinator]:
    strategy = stratagem.ParameterServerStrategy()
    yield ClusterCoordinator(strategy)
    strategy.close()


def run(coordinator: ClusterCoordinator, function: Callable[..., Any], *arguments: Any, times: int = 1) -> list[Any]:
    results = [coordinator.schedule(function, args=arguments) for _ in range(times)]
    coordinator.join()
    return [np.asarray(result.fetch()).tolist() for result in results]


@pytest.mark.parametrize("compiled", [True, False])
def test_a_layer_that_is_built_on_a_worker_is_refused(coordinator: ClusterCoordinator, *, compiled: bool) -> None:
    """TensorFlow builds it on the servers. Here each worker would have weights of its own, without a word."""
    with coordinator.strategy.scope():
        layer = keras.layers.Dense(1)
    call = lambda x: layer(x)  # noqa: E731
    function = tf.function(call) if compiled else call
    for _ in range(2):  # also where the function is scheduled once more
        with pytest.raises(UsageError, match=r"has built Dense 'dense.*', and made '.*kernel'"):
            run(coordinator, function, np.ones((2, 3), "float32"))
    assert run(coordinator, lambda: 1) == [1]
    layer.build((None, 3))
    assert np.shape(run(coordinator, function, np.ones((2, 3), "float32"))) == (1, 2, 1)


class Counted(tf.keras.Model):
    @tf.function
    def count(self, y: Any, outputs: Any) -> None:
        self.compiled_metrics.update_state(y, outputs)


def test_metrics_that_are_named_in_compile_are_made_on_the_chief(coordinator: ClusterCoordinator) -> None:
    """In TensorFlow the worker that first counts makes them on the servers."""
    y, outputs = np.zeros((3, 1), "float32"), np.array([[0.0], [0.0], [1.0]], "float32")
    with coordinator.strategy.scope():
        named, made = Counted(), Counted()
        named.compile(metrics=["accuracy"])
        metric = keras.metrics.BinaryAccuracy()
        made.compile(metrics=[metric])
    with pytest.raises(UsageError, match=r"has built .*\n.*\n.*metrics=\[keras.metrics.BinaryAccuracy\(\)\]"):
        run(coordinator, named.count, y, outputs)
    for wrong in (outputs, np.array([[0.0], [1.0], [1.0]], "float32")):
        coordinator.schedule(made.count, args=(y, wrong))
    coordinator.join()
    assert float(metric.result()) == pytest.approx(0.5)


@pytest.mark.thorough
def test_a_variable_that_is_made_on_a_worker_and_kept_is_refused(coordinator: ClusterCoordinator) -> None:
    kept: dict[str, Any] = {}

    @tf.function
    def count() -> Any:
        if "count" not in kept:
            kept["count"] = tf.Variable(0.0)
        return kept["count"].assign_add(1.0)

    class Drawing(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.generator: Any = None

        @tf.function
        def draw(self) -> Any:
            if self.generator is None:
                self.generator = tf.random.Generator.from_seed(3)
            return self.generator.normal([])

    for function in (count, Drawing().draw):
        for _ in range(2):
            with pytest.raises(UsageError, match=r"has made a variable, '.*', and the program keeps it"):
                run(coordinator, function)


def test_what_is_gone_when_the_function_ends_is_nobodys_concern(coordinator: ClusterCoordinator) -> None:
    def local() -> Any:
        variable, layer, mean = tf.Variable(1.0), keras.layers.Dense(1, kernel_initializer="ones"), keras.metrics.Mean()
        mean.update_state(layer(np.ones((1, 3), "float32")))
        return variable.assign_add(1.0) + mean.result()

    assert run(coordinator, local, times=4) == [5.0] * 4


def test_changes_of_python_are_told(coordinator: ClusterCoordinator, capfd: pytest.CaptureFixture[str]) -> None:
    class Counter:
        number = 0

    counter, seen = Counter(), []

    def count_attribute() -> int:
        counter.number += 1
        return counter.number

    def count_items() -> int:
        seen.append(1)
        return len(seen)

    def count_nothing() -> int:
        return counter.number + len(seen)

    for function in (count_attribute, count_items):
        run(coordinator, function, times=4)
        assert (
            f"{function.__qualname__}, which was given to coordinator.schedule, has changed" in capfd.readouterr().err
        )
    assert (counter.number, seen) == (0, [])
    with coordinator.strategy.scope():
        weight, optimizer = keras.Variable([1.0, 1.0]), keras.optimizers.SGD(0.5, momentum=0.5)
        optimizer.build([weight])

    def train() -> None:  # Keras's own lists in the optimizer grow
        optimizer.apply_gradients([(np.ones(2, "float32"), weight)])

    for function in (count_nothing, tf.function(train)):
        run(coordinator, function, times=4)
    assert "has changed" not in capfd.readouterr().err


def test_an_iterator_over_data_is_refused(coordinator: ClusterCoordinator) -> None:
    """Each of two workers read a copy, so that elements came twice."""
    iterator = iter(stratagem.data.Dataset.range(100))
    with pytest.raises(UsageError, match=r"(?s)iterator over data.*create_per_worker_dataset"):
        coordinator.schedule(lambda: next(iterator))
    with pytest.raises(UsageError, match="iterator over data"):
        coordinator.schedule(lambda each: next(each), args=(iterator,))


def test_generators_of_numpy_are_told(coordinator: ClusterCoordinator, capfd: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(3)
    run(coordinator, lambda: rng.normal())
    assert "A Generator of NumPy or Python travels with a function" in capfd.readouterr().err


@pytest.mark.parametrize("kind", ["MutableHashTable", "DenseHashTable"])
def test_tables_are_those_of_the_moment_of_scheduling(coordinator: ClusterCoordinator, kind: str) -> None:
    """Workers looked up what the table had when the function was first sent."""
    more = {"empty_key": -5, "deleted_key": -6} if kind == "DenseHashTable" else {}
    table = getattr(tf.lookup.experimental, kind)(tf.int64, tf.int64, -1, **more)
    look = tf.function(lambda key: table.lookup(key))
    key = np.array([3])
    found = []
    for change in (lambda: None, lambda: table.insert([3], [7]), lambda: table.remove([3])):
        change()
        found.append(run(coordinator, look, key))
    assert found == [[[-1]], [[7]], [[-1]]]
    with pytest.raises(UsageError, match="A copy of a table was changed"):
        run(coordinator, lambda: table.insert([4], [1]))


def test_datasets_may_make_what_each_worker_keeps(coordinator: ClusterCoordinator) -> None:
    in_process.gates["both"] = threading.Barrier(2)

    def make() -> Any:
        scale = tf.Variable(3.0)
        layer: Any = keras.layers.Dense(1, kernel_initializer="ones")
        layer.build((None, 1))
        return stratagem.data.Dataset.range(4).map(lambda n: n * float(scale.value) * float(layer.kernel[0, 0]))

    def read(iterator: Any) -> Any:
        in_process.gates["both"].wait(60)
        return next(iterator)

    iterator = iter(coordinator.create_per_worker_dataset(make))
    assert run(coordinator, read, iterator, times=4) == [0.0, 0.0, 3.0, 3.0]
