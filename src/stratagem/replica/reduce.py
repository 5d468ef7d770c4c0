"""`Strategy.reduce` and `Strategy.gather`: values of all replicas, combined outside a step."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from stratagem.core.errors import InputError, UsageError
from stratagem.core.progress import Phase
from stratagem.core.types import ReduceOp
from stratagem.mesh.crossings import as_operand, bounds, checked_axis, is_floating
from stratagem.mesh.mesh import AXIS, ReplicaMesh, Tree
from stratagem.mesh.shapes import Shape, cut, unequal
from stratagem.mesh.values import CombinedItself, Component, DistributedValues, PerReplica, refuse_text
from stratagem.program.compile import compiled
from stratagem.replica.context import merging_context

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
        value: Structure of `PerReplica` values, or plain values where there is one replica; inside
            `merge_call` of `Component` values.
        axis: None keeps the shape of a component; axes are those of a component, reduced as well.
        replicas: How many replicas a plain value stands for.

    Returns:
        A structure of arrays, the same on every worker.
    """
    if value is None and replicas == 1:
        return None  # of a step that returns nothing, as in TensorFlow
    if value is None:
        raise InputError(
            "strategy.reduce was given None.",
            "Return a value from the function given to strategy.run, and give reduce the result of run.",
        )
    leaves, structure = jax.tree.flatten(
        value, is_leaf=lambda leaf: isinstance(leaf, DistributedValues | CombinedItself)
    )
    for leaf in leaves:
        if isinstance(leaf, CombinedItself):
            as_operand("strategy.reduce", leaf)  # raises
    inside = iter(_reduce_inside(op, [leaf for leaf in leaves if isinstance(leaf, Component)], axis))
    return structure.unflatten(
        [next(inside) if isinstance(leaf, Component) else _reduce_leaf(op, leaf, axis, replicas) for leaf in leaves]
    )


def _reduce_plain(op: ReduceOp, value: Any, axis: int | tuple[int, ...] | None, replicas: int) -> jax.Array:
    """Combine a value that is no per-replica value: the same on each of `replicas` replicas.

    Raises:
        InputError: SUM over several replicas, which programs do not mean.
    """
    if op is ReduceOp.SUM and replicas > 1:
        raise InputError(
            f"strategy.reduce(SUM) was given {value!r}, which is not a per-replica value.",
            f"Summing it over {replicas} replicas would multiply it by {replicas}.",
            "Give the result of strategy.run, or use ReduceOp.MEAN.",
        )
    refuse_text(value)
    array = as_operand("strategy.reduce", value)
    return array if axis is None else _REDUCTIONS[op](array, axis=axis)


def _reduce_leaf(op: ReduceOp, leaf: Any, axis: int | tuple[int, ...] | None, replicas: int) -> jax.Array:
    if not isinstance(leaf, DistributedValues):
        return _reduce_plain(op, leaf, axis, replicas)
    axes = _checked_axes(axis, leaf.stacked.ndim - 1)
    kept = [_without(shape, axes) for shape in _with_rows(leaf.shapes)]
    if len(set(kept)) > 1 or len({len(shape) for shape in leaf.shapes or ()}) > 1:
        raise InputError(
            f"Per-replica values of shapes {_listed(leaf.shapes)} were reduced with axis={axis}.",
            "Components of different sizes cannot be combined element by element.",
            "Also reduce along the axes in which they differ, for example the batch axis: axis=0.",
        )
    return _combined(leaf, _reduced, op, axes, leaf.shapes, leaf.empty)


def _checked_axes(axis: int | tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    """Return axes of a component as numbers from 0."""
    axes = () if axis is None else tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    for a in axes:
        if not hasattr(a, "__index__") or not -rank <= a < rank:
            raise InputError(
                f"strategy.reduce was given axis={axis!r} and per-replica values of rank {rank}, "
                "which have no such axis.",
                "Use axis=None to keep the shape, or an axis of the per-replica value.",
            )
    return tuple(a % rank for a in axes)


def _merging(value: Component) -> Any:
    """Return the context whose `merge_call` a per-replica value belongs to.

    Raises:
        UsageError: It has ended, or updates a variable just now.
    """
    if merging_context() is not value.context:
        raise UsageError(
            "A per-replica value of merge_call was combined outside it, or in a function given to extended.update.",
            "Combine it in the function given to merge_call, before extended.update, and pass the result on.",
        )
    return value.context


def _reduce_inside(op: ReduceOp, values: Sequence[Component], axis: int | tuple[int, ...] | None) -> list[jax.Array]:
    """Combine per-replica values inside `merge_call`."""
    if not values:
        return []
    context = _merging(values[0])
    own = [value.own for value in values]
    if axis is None:
        return context.all_reduce(op, own)
    axes = [_checked_axes(axis, value.ndim) for value in own]
    if op is not ReduceOp.MEAN:
        return context.all_reduce(op, [_REDUCTIONS[op](v, axis=a) for v, a in zip(own, axes, strict=True)])
    sums = [jnp.sum(v, axis=a) for v, a in zip(own, axes, strict=True)]
    counts = [jnp.asarray(v.size // s.size, jnp.float32) for v, s in zip(own, sums, strict=True)]
    sums, counts = context.all_reduce(ReduceOp.SUM, (sums, counts))
    return [s / count.astype(jnp.result_type(s, jnp.bfloat16)) for s, count in zip(sums, counts, strict=True)]


def side_by_side(value: Tree) -> Tree:
    """Return a structure with all components in the place of those that `merge_call` gives for all replicas."""

    def gathered(leaf: Any) -> Any:
        if not isinstance(leaf, Component):
            return leaf
        context = _merging(leaf)
        return PerReplica(context.all_gather(leaf.own[None], axis=0), context.strategy.mesh)

    return jax.tree.map(gathered, value, is_leaf=lambda leaf: isinstance(leaf, DistributedValues))


def _with_rows(shapes: Sequence[Shape] | None) -> list[Shape]:
    """Return the shapes of components of replicas that have rows."""
    return [shape for shape in shapes or () if not shape or shape[0]]


def _without(shape: Shape, axes: tuple[int, ...]) -> Shape:
    return tuple([size for i, size in enumerate(shape) if i not in axes])


def _listed(shapes: Sequence[Shape] | None) -> str:
    return " and ".join(map(str, shapes or ()))


def _reduced(
    stacked: jax.Array,
    op: ReduceOp,
    axes: tuple[int, ...],
    shapes: tuple[Shape, ...] | None,
    empty: tuple[bool, ...] | None,
) -> jax.Array:
    """Reduce the components; a mean counts each, and each replica, once. NaN of a replica without rows is left out."""
    reduction, whole = _REDUCTIONS[op], (0, *(a + 1 for a in axes))
    if shapes is not None:
        # Elements that are reduced to one side by side, so that a mean counts each once.
        parts = [jnp.moveaxis(part, axes, range(len(axes))) for part in _valid(stacked, shapes)]
        rows = [part.reshape(math.prod(part.shape[: len(axes)]), *part.shape[len(axes) :]) for part in parts]
        return reduction(jnp.concatenate(rows), axis=0)
    if empty is None or not is_floating(stacked):
        return reduction(stacked, axis=whole)
    had_rows = jnp.asarray([not each for each in empty]).reshape(-1, *[1] * (stacked.ndim - 1))
    counted = jnp.logical_or(had_rows, stacked == stacked)
    if op in (ReduceOp.SUM, ReduceOp.MEAN):
        return reduction(stacked, axis=whole, where=counted)
    least, most = bounds(stacked)
    return reduction(stacked, axis=whole, where=counted, initial=most if op is ReduceOp.MIN else least)


def _valid(stacked: jax.Array, shapes: tuple[Shape, ...]) -> list[jax.Array]:
    """Return the components; nothing of a replica that had no rows."""
    return [cut(stacked[i], shape) for i, shape in enumerate(shapes) if not shape or shape[0]]


def gather(value: Tree, axis: int) -> Tree:
    """Concatenate the components of per-replica values along an axis.

    Args:
        value: Structure of `PerReplica` values of rank 1 or more, or plain values.
        axis: The axis of a component.
    """

    def leaf_gather(leaf: Any) -> jax.Array:
        if isinstance(leaf, Component):
            return _merging(leaf).all_gather(leaf.own, axis)
        if not isinstance(leaf, DistributedValues):
            return as_operand("strategy.gather", leaf)
        rank = leaf.stacked.ndim - 1
        what = f"per-replica {f'values of rank {rank}' if rank else 'scalars'}"
        along = checked_axis("strategy.gather", axis, rank, what)
        fault = unequal(_with_rows(leaf.shapes), along)
        if fault:
            raise InputError(
                f"Per-replica values of shapes {_listed(leaf.shapes)} were gathered along axis={axis}. {fault}.",
                "Components of such sizes cannot be put side by side.",
                "Gather along the axis in which they differ, the batch axis for example: axis=0; or pad them first.",
            )
        return _combined(leaf, _gathered, along, leaf.shapes)

    return jax.tree.map(leaf_gather, value, is_leaf=lambda leaf: isinstance(leaf, DistributedValues | CombinedItself))


def _gathered(stacked: jax.Array, axis: int, shapes: tuple[Shape, ...] | None) -> jax.Array:
    return jnp.concatenate(list(stacked) if shapes is None else _valid(stacked, shapes), axis=axis)


def _combined(value: DistributedValues, function: Callable[..., jax.Array], *how: Hashable) -> jax.Array:
    """Return a function of all components, stacked; every worker gets the result."""
    # A meeting, so that the watchdog sees a worker that nobody joins.
    with value.mesh.progress.during(Phase.MEETING, place="reduce or gather", is_joint=True):
        result = _compiled(value.mesh, value.mesh.mesh, function, *how)(value.stacked)
        value.mesh.wait(result)
    return result


@functools.lru_cache(maxsize=512)
def _compiled(
    mesh: ReplicaMesh, _: Mesh, function: Callable[..., jax.Array], *how: Hashable
) -> Callable[..., jax.Array]:
    def program(stacked: jax.Array) -> jax.Array:
        return function(stacked, *how)

    if mesh.memory is None:
        return jax.jit(program, out_shardings=mesh.replicated)

    def of_all(own: jax.Array) -> jax.Array:
        return program(lax.all_gather(own, AXIS, tiled=True))

    return compiled(mesh, of_all, (PartitionSpec(AXIS),), PartitionSpec(), name="strategy.reduce or gather")
