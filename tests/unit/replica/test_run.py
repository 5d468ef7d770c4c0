"""`strategy.run`: arguments, results, variables, and how often a function is traced."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

import stratagem
from stratagem.core.errors import InputError
from stratagem.mesh.blocks import per_replica


@pytest.fixture(scope="module")
def strategy() -> Any:
    return stratagem.MirroredStrategy(["cpu:0", "cpu:1"])


def components(strategy: Any, value: Any) -> list[Any]:
    return [np.asarray(each).tolist() for each in strategy.experimental_local_results(value)]


def batch(strategy: Any, *shares: int) -> Any:
    return per_replica(strategy.mesh, shares, np.arange(sum(shares), dtype=np.float32), from_all=strategy.from_all)


def test_components_in_and_out(strategy: Any) -> None:
    result = strategy.run(lambda x, y: {"sum": x.sum() + y, "rows": x}, args=(batch(strategy, 2, 2),), kwargs={"y": 10})
    assert components(strategy, result["sum"]) == [11, 15]
    assert components(strategy, result["rows"]) == [[0, 1], [2, 3]]


def test_each_replica_runs_on_its_own_rows(strategy: Any) -> None:
    result = strategy.run(lambda x: (x.shape[0] * 1.0, x * 2), args=(batch(strategy, 2, 1),))
    assert components(strategy, result[0]) == [2, 1]
    assert components(strategy, result[1]) == [[0, 2], [4]]


def test_a_replica_without_rows(strategy: Any) -> None:
    result = strategy.run(lambda x: (x.sum(), x.max()), args=(batch(strategy, 2, 0),))
    assert components(strategy, result[0])[0] == 1
    assert float(strategy.reduce("SUM", result[0], axis=None)) == 1
    assert float(strategy.reduce("MAX", result[1], axis=None)) == 1


def test_variables_are_merged_by_their_policies(strategy: Any) -> None:
    with strategy.scope():
        total = keras.Variable(1.0, trainable=False, aggregation="sum")
        mean = keras.Variable(1.0, trainable=False, aggregation="mean")

    def step(x: Any) -> None:
        total.assign_add(x.sum())
        mean.assign(x.mean())

    for _ in range(2):
        strategy.run(step, args=(batch(strategy, 2, 1),))
    assert float(total.value) == 1 + 2 * 3
    assert float(mean.value) == 1.0  # (0 + 1 + 2) / 3


def test_a_function_is_traced_once_for_a_signature(strategy: Any) -> None:
    traced: list[Any] = []

    def step(x: Any, n: float) -> Any:
        traced.append(x.shape)
        return x * n

    for rows, n in [(2, 1.0), (2, 2.0), (3, 1.0), (2, 3.0)]:
        strategy.run(step, args=(batch(strategy, rows, rows), n))
    assert set(traced) == {(2,), (3,)}
    assert len(traced) == 4  # once to learn its variables, once to compile, for each shape


def test_a_variable_that_is_returned_has_its_new_value(strategy: Any) -> None:
    with strategy.scope():
        count = keras.Variable(0.0, trainable=False, aggregation="only_first_replica")

    def step() -> Any:
        count.assign_add(1.0)
        return count

    assert [components(strategy, strategy.run(step)) for _ in range(3)] == [[1, 1], [2, 2], [3, 3]]
    count.assign(7.0)
    assert components(strategy, strategy.run(lambda: count)) == [7, 7]
    count.assign(8.0)
    assert components(strategy, strategy.run(lambda: count)) == [8, 8]


def test_batches_of_different_sizes_do_not_mix(strategy: Any) -> None:
    with pytest.raises(InputError, match=r"different sizes: \[\(1, 2\), \(2, 1\)\] rows"):
        strategy.run(lambda x, y: x, args=(batch(strategy, 2, 1), batch(strategy, 1, 2)))
