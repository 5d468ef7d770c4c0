"""Combining values of all replicas from outside a step: `Strategy.reduce` and `Strategy.gather`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from stratagem.core.errors import InputError, explain
from stratagem.core.types import ReduceOp
from stratagem.replica.mesh import ReplicaMesh, Tree
from stratagem.replica.values import DistributedValues

_REDUCTIONS: Final[dict[ReduceOp, Callable]] = {
    ReduceOp.SUM: jnp.sum,
    ReduceOp.MEAN: jnp.mean,
    ReduceOp.MIN: jnp.min,
    ReduceOp.MAX: jnp.max,
}


def reduce(op: ReduceOp, value: Tree, axis: int | tuple[int, ...] | None, replicas: int) -> Tree:
    """Combine the components of per-replica values.

    Args:
        op: How.
        value: Structure of `PerReplica` values, or plain values where there is one replica.
        axis: None keeps the shape of a component; axes are those of a component, reduced as well.
        replicas: How many replicas a plain value stands for.

    Returns:
        A structure of arrays, the same on every worker.
    """
    return jax.tree.map(
        lambda leaf: _reduce_leaf(op, leaf, axis, replicas),
        value,
        is_leaf=lambda leaf: isinstance(leaf, DistributedValues),
    )


def _reduce_plain(op: ReduceOp, value: Any, axis: int | tuple[int, ...] | None, replicas: int) -> jax.Array:
    """Combine a value that is no per-replica value: the same on each of `replicas` replicas.

    Raises:
        InputError: SUM over several replicas, which programs do not mean.
    """
    if op is ReduceOp.SUM and replicas > 1:
        raise InputError(
            explain(
                f"strategy.reduce(SUM) was given {value!r}, which is no per-replica value.",
                f"Summing it over {replicas} replicas would multiply it by {replicas}.",
                "Give the result of strategy.run, or use ReduceOp.MEAN.",
            )
        )
    array = jnp.asarray(value)
    return array if axis is None else _REDUCTIONS[op](array, axis=axis)


def _reduce_leaf(op: ReduceOp, leaf: Any, axis: int | tuple[int, ...] | None, replicas: int) -> jax.Array:
    if not isinstance(leaf, DistributedValues):
        return _reduce_plain(op, leaf, axis, replicas)
    axes = () if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    rank = leaf.stacked.ndim - 1
    for a in axes:
        if not -rank <= a < rank:
            raise InputError(
                explain(
                    f"strategy.reduce was given axis={axis} and per-replica values of rank {rank}.",
                    "There is no such axis to reduce.",
                    "Use axis=None to keep the shape, or an axis of the per-replica value.",
                )
            )
    if leaf.shares is not None and len(set(leaf.shares)) > 1:
        return _reduce_uneven(op, leaf, tuple(a % rank for a in axes))
    program = _program(leaf.mesh, op, (0, *(a % rank + 1 for a in axes)))
    return program(leaf.stacked)


@functools.lru_cache(maxsize=256)
def _program(mesh: ReplicaMesh, op: ReduceOp, axes: tuple[int, ...]) -> Callable:
    return jax.jit(functools.partial(_REDUCTIONS[op], axis=axes), out_shardings=mesh.replicated)


def _reduce_uneven(op: ReduceOp, leaf: DistributedValues, axes: tuple[int, ...]) -> jax.Array:
    """Reduce components with different numbers of rows; the mean counts each row once."""
    if 0 not in axes:
        raise InputError(
            explain(
                f"Per-replica values with {leaf.shares} rows were reduced with axis={axes or None}.",
                "Components of different sizes cannot be combined element by element.",
                "Reduce along the batch axis too: axis=0.",
            )
        )
    whole = _whole(leaf.mesh)(leaf.stacked)
    rows = np.concatenate([np.asarray(whole)[i, :share] for i, share in enumerate(leaf.shares or ())])
    return _REDUCTIONS[op](jnp.asarray(rows), axis=axes)


@functools.lru_cache(maxsize=16)
def _whole(mesh: ReplicaMesh) -> Callable:
    return jax.jit(lambda stacked: stacked, out_shardings=mesh.replicated)


def gather(value: Tree, axis: int) -> Tree:
    """Concatenate the components of per-replica values along an axis.

    Args:
        value: Structure of `PerReplica` values of rank 1 or more, or plain values.
        axis: The axis of a component.
    """

    def leaf_gather(leaf: Any) -> jax.Array:
        if not isinstance(leaf, DistributedValues):
            return jnp.asarray(leaf)
        if leaf.stacked.ndim < 2:
            raise InputError(
                explain(
                    "strategy.gather was given per-replica scalars.",
                    "There is no axis to concatenate along.",
                    "Give values of rank 1 or more, for example `value[None]`.",
                )
            )
        whole = np.asarray(_whole(leaf.mesh)(leaf.stacked))
        shares = leaf.shares or (None,) * len(whole)
        return jnp.concatenate([part[:share] for part, share in zip(whole, shares, strict=True)], axis=axis)

    return jax.tree.map(leaf_gather, value, is_leaf=lambda leaf: isinstance(leaf, DistributedValues))
