"""What a function brings to a worker: variables by where they live, one copy of each, other objects by attributes."""

from __future__ import annotations

import pickle
import threading
import unittest
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import keras
import numpy as np
import pytest
from tests.unit.ps.servers import running_servers

import stratagem.tf as tf
from stratagem.core.errors import UsageError
from stratagem.ps.client import Servers
from stratagem.ps.pickling import SharedValue, dumps
from stratagem.ps.placement import Placement
from stratagem.ps.shared import Shared
from stratagem.ps.task import WorkerTask, working_for
from stratagem.ps.variables import RemoteVariable, Residence


@pytest.fixture
def servers() -> Iterator[Servers]:
    with running_servers(1) as servers:
        yield servers


def task_of(servers: Servers, stream: int = 1) -> WorkerTask:
    return WorkerTask(index=0, workers=1, stream=stream, residence=Residence(servers))


def brought(value: Any, placement: Placement, task: WorkerTask) -> Any:
    """Return a value as the worker gets it."""
    data, _ = dumps(value, placement)
    with working_for(task):
        return pickle.loads(data)


def test_all_copies_of_a_variable_are_one(servers: Servers) -> None:
    placement, task = Placement(servers), task_of(servers)
    variable = keras.Variable([1.0, 2.0], name="weight")
    first, again = brought([variable, variable], placement, task)
    later = brought(lambda: variable, placement, task)()
    assert first is again is later
    assert isinstance(first, RemoteVariable)
    assert first is not variable
    assert (first.path, first.shape, first.dtype) == ("weight", (2,), "float32")
    first.assign([3.0, 4.0])
    assert variable.numpy().tolist() == [3.0, 4.0]


def test_a_case_of_unittest_travels_while_its_runner_has_files_and_locks(servers: Servers) -> None:
    class Case(unittest.TestCase):
        def runTest(self) -> None:
            self.number = 3

    class Runner(unittest.TestResult):
        def addSuccess(self, test: Any) -> None:  # while the case holds its runner
            self.lock = threading.Lock()
            self.got = brought(lambda: test.number + 1, Placement(servers), task_of(servers))()

    runner = Runner()
    Case().run(runner)
    assert (runner.got, runner.errors) == (4, [])


def test_a_layer_computes_with_the_variables_of_the_servers(servers: Servers) -> None:
    placement, task = Placement(servers), task_of(servers)
    layer = keras.layers.Dense(1, kernel_initializer="ones")
    layer.build((None, 2))
    copy = brought(layer, placement, task)
    copy.kernel.assign([[2.0], [3.0]])
    x = np.array([[1.0, 10.0]], "float32")
    assert [np.asarray(each(x)).tolist() for each in (copy, layer)] == [[[32.0]], [[32.0]]]


def test_a_functional_model_brings_its_functions(servers: Servers) -> None:
    """A function of `stratagem.tf` or `keras.ops` on symbolic tensors is no layer, and has its place in the graph."""
    inputs = keras.Input((2,))
    hidden = keras.layers.Dense(1, kernel_initializer="ones")(tf.nn.relu(inputs))
    model = keras.Model(inputs, keras.ops.square(hidden))
    words = tf.keras.Input((1,), dtype="string")
    lookup = tf.keras.Model(words, tf.keras.layers.StringLookup(vocabulary=["a", "b"])(words))
    placement, task = Placement(servers), task_of(servers)
    placement.place(model.variables)
    again, looks = brought([model, lookup], placement, task)
    with working_for(task):
        assert again(jnp.array([[2.0, -3.0]])).tolist() == [[4.0]]
        assert looks(tf.constant([["b"], ["?"]])).tolist() == [[2], [0]]


def test_a_deep_functional_model_travels(servers: Servers) -> None:
    """A network of 200 layers was pickled one layer inside another: "excessively deep recursion required"."""
    x = inputs = keras.Input((1,))
    for _ in range(200):
        x = keras.layers.Add()([x, keras.ops.multiply(x, 0.0)])
    model = keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="ones")(x))
    placement, task = Placement(servers), task_of(servers)
    placement.place(model.variables)
    step = brought(lambda value: model(value), placement, task)
    with working_for(task):
        assert step(jnp.array([[3.0]])).tolist() == [[3.0]]


def test_all_workers_and_the_chief_draw_from_one_stream(servers: Servers) -> None:
    placement, tasks = Placement(servers), [task_of(servers, stream) for stream in (1, 2)]
    seed = keras.random.SeedGenerator(5)
    copies = [brought(seed, placement, task) for task in (*tasks, tasks[0])]
    assert copies[0].state is copies[2].state is not copies[1].state
    assert [each.next().tolist() for each in (copies[0], copies[1], seed, copies[2])] == [[5, n] for n in range(4)]
    assert isinstance(seed, keras.random.SeedGenerator)
    assert seed.state.numpy().tolist() == [5, 4]


def test_an_optimizer_sends_gradients(servers: Servers) -> None:
    placement, task = Placement(servers), task_of(servers)
    weight = keras.Variable([1.0, 1.0])
    optimizer = keras.optimizers.SGD(0.5)
    optimizer.build([weight])
    copy = brought(optimizer, placement, task)
    copy.apply([jnp.array([1.0, 2.0])])
    assert weight.numpy().tolist() == [0.5, 0.0]
    assert int(optimizer.iterations) == 1
    optimizer.learning_rate = 2.0
    again = brought(optimizer, placement, task)
    assert again is copy
    again.apply([jnp.array([0.0, 1.0])])
    assert weight.numpy().tolist() == [0.5, -2.0]


def test_shared_values_are_named_and_not_brought(servers: Servers) -> None:
    class Value(SharedValue):
        shared = Shared(7, b"", to_call=False)

    placement, task = Placement(servers), task_of(servers)
    task.recipes[7] = lambda: ["made"]
    data, needs = dumps([Value(), Value()], placement)
    assert needs == {Value.shared}
    with working_for(task):
        one, other = pickle.loads(data)
    assert one == ["made"]
    assert one is other


def test_tracked_containers_keep_their_items(servers: Servers) -> None:
    layer = keras.layers.Layer()
    layer.parts = [1, {"a": 2}]
    copy = brought(layer, Placement(servers), task_of(servers))
    assert copy.parts == [1, {"a": 2}]
    assert type(copy.parts) is type(layer.parts)


def test_what_cannot_travel_is_named(servers: Servers) -> None:
    lock = threading.Lock()
    with pytest.raises(UsageError, match=r"cannot be sent to workers: cannot pickle '_thread.lock' object"):
        dumps(lambda: lock, Placement(servers))
