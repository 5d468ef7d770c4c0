"""Components of all replicas, combined from outside a step."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from stratagem.core.errors import InputError
from stratagem.core.types import ReduceOp
from stratagem.mesh.blocks import per_replica, stacked
from stratagem.mesh.mesh import ReplicaMesh
from stratagem.mesh.values import PerReplica
from stratagem.replica.reduce import gather, reduce

OPS = (ReduceOp.SUM, ReduceOp.MEAN, ReduceOp.MIN, ReduceOp.MAX)


@pytest.fixture(scope="module")
def mesh() -> ReplicaMesh:
    return ReplicaMesh(jax.devices()[:2])


def told(name: str, value: Any) -> list[Any]:
    return [value]


def reduced(value: Any, axis: Any) -> list[Any]:
    return [np.asarray(reduce(op, value, axis, 2)).tolist() for op in OPS]


def test_element_by_element(mesh: ReplicaMesh) -> None:
    value = stacked(mesh, np.array([[1, 5], [3, 1]], np.float32))
    assert reduced(value, None) == [[4, 6], [2, 3], [1, 1], [3, 5]]
    assert reduced(value, 0) == reduced(value, -1) == [10, 2.5, 1, 5]
    assert gather(value, 0).tolist() == [1, 5, 3, 1]


def test_padding_does_not_count(mesh: ReplicaMesh) -> None:
    value = per_replica(mesh, (2, 1), np.array([[1.0, 2], [3, 4], [5, 9]], np.float32), from_all=told)
    assert value.shares == (2, 1)
    assert reduced(value, 0) == [[9, 15], [3, 5], [1, 2], [5, 9]]
    assert reduced(value, (0, 1)) == [24, 4, 1, 9]
    assert gather(value, 0).tolist() == [[1, 2], [3, 4], [5, 9]]


def test_a_replica_without_rows_adds_nothing(mesh: ReplicaMesh) -> None:
    value = per_replica(mesh, (2, 0), np.array([3, 4], np.float32), from_all=told)
    assert reduced(value, None) == [[3, 4]] * 4
    assert reduced(value, 0) == [7, 3.5, 3, 4]
    assert gather(value, 0).tolist() == [3, 4]


@pytest.mark.parametrize("op", OPS)
def test_nan_of_a_replica_without_rows_does_not_count(mesh: ReplicaMesh, op: ReduceOp) -> None:
    value = stacked(mesh, np.array([3, np.nan], np.float32))
    if op in (ReduceOp.SUM, ReduceOp.MEAN):
        assert np.isnan(reduce(op, value, None, 2))
    value = PerReplica(value.stacked, mesh, empty=(False, True))
    assert float(reduce(op, value, None, 2)) == 3.0


def test_structures_and_plain_values(mesh: ReplicaMesh) -> None:
    value = stacked(mesh, np.array([1, 2], np.float32))
    assert jax.tree.map(float, reduce(ReduceOp.MEAN, {"a": value, "b": 4.0}, None, 2)) == {"a": 1.5, "b": 4.0}
    assert float(reduce(ReduceOp.SUM, 4.0, None, 1)) == 4.0
    assert gather({"b": np.array([1, 2])}, 0)["b"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda value, uneven: reduce(ReduceOp.SUM, 4.0, None, 2), "not a per-replica value"),
        (lambda value, uneven: reduce(ReduceOp.SUM, value, 1, 2), "axis=1 and per-replica values of rank 1"),
        (lambda value, uneven: gather(value, 1), "axis=1 and per-replica values of rank 1"),
        (
            lambda value, uneven: reduce(ReduceOp.SUM, uneven, 1, 2),
            r"shapes \(2, 2\) and \(1, 2\) were reduced with axis=1",
        ),
        (lambda value, uneven: gather(uneven, 1), r"shapes \(2, 2\) and \(1, 2\) were gathered along axis=1"),
    ],
)
def test_what_cannot_be_combined(mesh: ReplicaMesh, call: Any, match: str) -> None:
    value = stacked(mesh, np.ones((2, 1), np.float32))
    uneven = per_replica(mesh, (2, 1), np.ones((3, 2), np.float32), from_all=told)
    with pytest.raises(InputError, match=match):
        call(value, uneven)
