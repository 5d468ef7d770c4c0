"""Values that hold one component for each replica."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from stratagem.replica.mesh import ReplicaMesh, Tree


class DistributedValues:
    """One value for each replica (`tf.distribute.DistributedValues`).

    The components lie side by side on the mesh: component `i` is on device `i`.

    Args:
        stacked: Global array whose first axis is the replica.
        mesh: The mesh it lies on.
        shares: Valid rows of each component when the components are shares of a batch that does
            not divide, else None.
    """

    def __init__(self, stacked: jax.Array, mesh: ReplicaMesh, shares: tuple[int, ...] | None = None) -> None:
        self.stacked = stacked
        self.mesh = mesh
        self.shares = shares

    @property
    def values(self) -> tuple[np.ndarray, ...]:
        """The components of this worker's replicas, in order."""
        pieces = sorted(self.stacked.addressable_shards, key=lambda shard: shard.index[0].start or 0)
        components = [np.asarray(piece.data)[0] for piece in pieces]
        if self.shares is not None:
            components = [
                component[: self.shares[replica]]
                for component, replica in zip(components, self.mesh.local_replicas, strict=True)
            ]
        return tuple(components)

    def __repr__(self) -> str:
        lines = [
            f"  {replica}: {component!r}"
            for replica, component in zip(self.mesh.local_replicas, self.values, strict=True)
        ]
        return "\n".join([f"{type(self).__name__}:{{", *lines, "}"])


class PerReplica(DistributedValues):
    """Components that may differ between replicas."""


jax.tree_util.register_pytree_node(
    PerReplica,
    lambda value: ((value.stacked,), (value.mesh, value.shares)),
    lambda facts, children: PerReplica(children[0], *facts),
)


def local_results(value: Tree) -> tuple[Any, ...]:
    """Return this worker's components of a value (`Strategy.experimental_local_results`).

    Args:
        value: A `DistributedValues`, a structure of them, or a plain value.

    Returns:
        One entry for each local replica; a plain value gives a tuple of itself.
    """
    leaves, structure = jax.tree.flatten(value, is_leaf=lambda leaf: isinstance(leaf, DistributedValues))
    spread = [leaf.values for leaf in leaves if isinstance(leaf, DistributedValues)]
    if not spread:
        return (value,)
    rows = []
    for i in range(len(spread[0])):
        rows.append(
            structure.unflatten([leaf.values[i] if isinstance(leaf, DistributedValues) else leaf for leaf in leaves])
        )
    return tuple(rows)
