"""Per-replica values in functions and in `merge_call`: what TensorFlow 2.21 gives on two CPUs."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import keras
import numpy as np
import pytest

import stratagem
from stratagem.core.errors import OutOfRangeError, UsageError
from stratagem.mesh.values import PerReplica


@pytest.fixture
def two() -> Any:
    return stratagem.MirroredStrategy(["cpu:0", "cpu:1"])


def number() -> Any:
    context: Any = stratagem.get_replica_context()
    return context.replica_id_in_sync_group + 1


def iterator(strategy: Any, rows: int, size: int) -> Any:
    return iter(strategy.experimental_distribute_dataset(stratagem.data.Dataset.range(rows).batch(size)))


def test_local_results_in_a_function(two: Any) -> None:
    @stratagem.function
    def components(x: Any) -> Any:
        parts = two.experimental_local_results(two.run(lambda x: x * 2, args=(x,)))
        scalars = two.experimental_local_results(two.run(number))
        return parts, scalars[0] * 10 + scalars[1]

    parts, both = components(next(iterator(two, 3, 3)))
    assert ([part.tolist() for part in parts], int(both)) == ([[0, 2], [4]], 12)


def test_local_results_in_merge_call(two: Any) -> None:
    def merge_fn(strategy: Any, value: Any) -> Any:
        first, second = strategy.experimental_local_results(value)
        return first * 10 + second

    def step() -> Any:
        context: Any = stratagem.get_replica_context()
        return context.merge_call(merge_fn, args=(number(),))

    assert [int(part) for part in two.experimental_local_results(two.run(step))] == [12, 12]


def test_a_variable_has_a_copy_for_each_replica(two: Any) -> None:
    with two.scope():
        variable: Any = keras.Variable(3.0)
    assert [float(copy.value) for copy in two.experimental_local_results(variable)] == [3.0, 3.0]


def test_text_of_each_replica_stays_on_the_host(two: Any) -> None:
    def make(values: Any) -> Any:
        return two.experimental_distribute_values_from_function(lambda c: values[c.replica_id_in_sync_group])

    for texts in (["a", "long"], [b"a", b"long"], [np.array("a"), np.array("long")]):
        assert [part.numpy() for part in make(texts).values] == [b"a", b"long"]
    lists = two.experimental_local_results(make([np.array(["a", "b"]), np.array(["c"])]))
    assert [part.tolist() for part in lists] == [[b"a", b"b"], [b"c"]]
    numbers = make([1.0, np.float32(2.0)])  # of one dtype, as tensors of them are
    assert [(float(part), part.dtype) for part in numbers.values] == [(1.0, np.float32), (2.0, np.float32)]


def test_a_value_of_several_replicas_is_no_single_one(two: Any) -> None:
    value = two.run(number)
    for single in (value.numpy, lambda: float(value), lambda: int(value), lambda: np.asarray(value)):
        with pytest.raises(UsageError, match="this worker has 2 replicas"):
            single()
    with pytest.raises(ValueError, match="not inside a replica context"):  # as TensorFlow says
        np.asarray(value)
    assert f"{value}".startswith("PerReplica:{")


def test_a_value_of_one_replica_here_is_used_as_its_component() -> None:
    one = stratagem.MirroredStrategy(["cpu:0"])
    value: Any = PerReplica(jnp.array([[[1.0, 2.0]]]), one.mesh)
    assert (value.shape, value.dtype, value.ndim, value.size, len(value)) == ((1, 2), np.float32, 2, 2, 1)
    assert value[0, 1].numpy() == 2.0
    assert [row.tolist() for row in value] == [[1.0, 2.0]]
    for found, expected in (
        (value + 1, [[2, 3]]),
        (1 - value, [[0, -1]]),
        (jnp.ones(2) + value, [[2, 3]]),
        (value + jnp.ones(2), [[2, 3]]),
        (value // 2, [[0, 1]]),
        (2**value, [[2, 4]]),
        (value @ np.ones((2, 1)), [[3]]),
        (value @ jnp.ones((2, 1)), [[3]]),
        (-value + value, [[0, 0]]),
        (value == 1, [[True, False]]),
        (value != 1, [[False, True]]),
    ):
        assert np.asarray(found).tolist() == expected
    assert (value + 1).numpy().tolist() == [[2, 3]]
    assert not value[0, 0] - 1
    assert not PerReplica(value.stacked[:, 0, 0] - 1, one.mesh)


def test_a_value_of_several_replicas_is_compared_as_an_object(two: Any) -> None:
    value = two.run(number)
    assert value
    assert value in [value]
    assert value != two.run(number)
    for part in (lambda: value[0], lambda: len(value), lambda: list(value), lambda: value @ value):
        with pytest.raises(UsageError, match="this worker has 2 replicas"):
            part()
    assert not hasattr(value, "shape")


def test_a_captured_value_is_an_input(two: Any) -> None:
    traces = []
    value = two.run(number)

    @stratagem.function
    def total() -> Any:
        traces.append(1)
        return two.reduce("SUM", value, axis=None)

    found = []
    for _ in range(4):
        found.append(int(total()))
        value = PerReplica(value.stacked * 2, two.mesh)
    assert found == [3, 6, 12, 24]
    first = len(traces)
    value = two.run(number)
    assert (int(total()), len(traces)) == (3, first)


@pytest.mark.parametrize("captured", [True, False])
def test_the_end_of_the_data_in_a_function(two: Any, captured: bool) -> None:
    elements = iterator(two, 4, 2)

    @stratagem.function
    def step(*given: Any) -> Any:
        batch = next(elements if captured else given[0])
        return two.reduce("SUM", two.run(lambda x: keras.ops.sum(x), args=(batch,)), axis=None)

    arguments = () if captured else (elements,)
    assert [int(step(*arguments)) for _ in range(2)] == [1, 5]
    with pytest.raises(OutOfRangeError, match="asked an iterator for its next element"):
        step(*arguments)


def test_no_replica_reads_the_data(two: Any) -> None:
    elements = iterator(two, 4, 2)
    for replica_fn in (lambda: next(elements), lambda: elements.get_next(), stratagem.function(lambda: next(elements))):
        with pytest.raises(UsageError, match=r"Write strategy\.run\(replica_fn, args=\(next\(iterator\),\)\)"):
            two.run(replica_fn)
    assert [part.tolist() for part in two.experimental_local_results(next(elements))] == [[0], [1]]
