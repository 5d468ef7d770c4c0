"""Per-replica values that a function of the user makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from stratagem.core.errors import InputError
from stratagem.core.types import ValueContext
from stratagem.data.structure import as_array
from stratagem.mesh.blocks import of_components, per_replica
from stratagem.mesh.mesh import Tree
from stratagem.mesh.values import DistributedValues
from stratagem.program.tracing import current_tracing, leave_tracing
from stratagem.replica.context import StrategyLike


def values_from_function(strategy: StrategyLike, value_fn: Callable[[ValueContext], Tree]) -> Tree:
    """Make a per-replica value (`Strategy.experimental_distribute_values_from_function`)."""
    if not callable(value_fn):
        raise InputError(
            f"experimental_distribute_values_from_function was given {value_fn!r}, of type {type(value_fn).__name__}.",
            "Give it a function of a ValueContext: lambda context: values[context.replica_id_in_sync_group].",
        )
    mesh = strategy.mesh
    if mesh.multi_process:
        leave_tracing()  # a program takes what lies on several workers as an argument, and holds none of it
    made = [value_fn(ValueContext(replica, mesh.size)) for replica in mesh.local_replicas]
    structure = jax.tree.structure(made[0])
    if any(jax.tree.structure(value) != structure for value in made):
        raise InputError(
            f"value_fn returned {' and '.join(str(jax.tree.structure(value)) for value in made)}.",
            "Return the same structure for every replica.",
        )
    columns = zip(*(jax.tree.leaves(value) for value in made), strict=True)
    return structure.unflatten([_value(strategy, [_array(leaf) for leaf in column]) for column in columns])


def _array(leaf: Any) -> np.ndarray:
    """Return a value as an array; text is an array of bytes, which stays on the host."""
    array = as_array(leaf)
    return np.asarray(array, object if isinstance(array, bytes) else None)


def of_each_worker(strategy: StrategyLike, tree: Tree) -> Tree:
    """Return a structure with plain values as per-replica ones, where each worker has one replica.

    In TensorFlow what such a worker's replica computes is a plain value, so `reduce` and `gather` combine plain values
    of all workers, for example counts of Python.
    """
    if not strategy.mesh.size == strategy.worker_count > 1 or current_tracing() is not None:
        return tree

    def spread(leaf: Any) -> Any:
        is_plain = isinstance(leaf, jax.Array | np.ndarray | np.generic | float | int)
        return values_from_function(strategy, lambda _: leaf) if is_plain else leaf

    return jax.tree.map(spread, tree, is_leaf=lambda leaf: isinstance(leaf, DistributedValues))


def _value(strategy: StrategyLike, leaves: Sequence[np.ndarray]) -> Any:
    """Return the per-replica value of one array for each local replica."""
    told = strategy.from_all("shapes of a value", [[f"{leaf.dtype}", list(leaf.shape)] for leaf in leaves])
    kinds = [kind for worker in told for kind in worker]
    if len({dtype for dtype, _ in kinds}) > 1:
        listed = ", ".join(f"{dtype}{shape}" for dtype, shape in kinds)
        raise InputError(
            f"value_fn returned arrays of {listed} for replicas 0 to {len(kinds) - 1}.",
            "One compiled step runs on all replicas, so their values have one dtype.",
            "Return arrays of one dtype for every replica.",
        )
    if strategy.mesh.size == 1:
        return per_replica(strategy.mesh, (), leaves[0], from_all=strategy.from_all)
    return of_components(strategy.mesh, leaves, [tuple(shape) for _, shape in kinds])
