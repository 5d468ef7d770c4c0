"""Exchange of values between replicas in the middle of a step.

A step is written for one replica. Where it needs the others (a sum of gradients, the number of
unmasked entries) it calls `Exchange.call`. On an even batch that is a plain collective; on a batch that
does not divide, `replica.uneven` answers it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from stratagem.mesh.mesh import AXIS, Tree
from stratagem.mesh.shapes import Shape
from stratagem.mesh.split import Split

Crossing = Callable[..., Tree]
"""A function of one replica's operands that uses collectives; equal on all replicas."""


@dataclass(frozen=True)
class Ragged:
    """An array whose shape may differ between replicas.

    Args:
        value: The array; where shapes differ in a block that has room for each replica's, see `mesh.shapes`.
        axis: The only axis, 0 or more, along which sizes may differ; None where each may, and their number.
        shapes: The shape on each replica, size 0 along the axis where one has no rows; None where all are equal.
    """

    value: Any
    axis: int | None = None
    shapes: tuple[Shape, ...] | None = None


jax.tree_util.register_dataclass(Ragged, data_fields=["value"], meta_fields=["axis", "shapes"])


@dataclass(frozen=True)
class Share:
    """One replica's part of the batch, as the code inside a step sees it.

    Args:
        rows: Rows that the step runs on; a Python number, because shapes depend on it.
        global_rows: Rows over all replicas.
        weight: This replica's share of a mean over the batch: a number, or traced where shares differ.
        present: Whether the replica has any rows: True, or traced where some have none.
        first: The first replica that has rows.
        empty: Whether a replica without rows runs on zero rows, as in TensorFlow: what it computes counts, except
            NaN, such as a mean over no rows. Otherwise it runs on a stand-in row and counts for nothing.
    """

    rows: int
    global_rows: int
    weight: Any
    present: Any = True
    first: int = 0
    empty: bool = False

    @property
    def factor_of_sums(self) -> float:
        """Factor of a sum over this share's rows, with which the mean of the shares by rows is the sum over all."""
        return self.global_rows / self.rows

    def masked(self, value: jax.Array, otherwise: Any = 0) -> jax.Array:
        """Return `value`, or zeros where it does not count.

        Args:
            value: Any array.
            otherwise: What to return in place of zeros.
        """
        if self.present is True:
            return value
        return jnp.where(self.counts(value), value, jnp.asarray(otherwise, value.dtype))

    def counts(self, value: jax.Array) -> Any:
        """Return whether a value counts: for all of it, or for each of its elements."""
        if not self.empty or self.present is True:
            return self.present
        return jnp.logical_or(self.present, value == value)


def even_share(replicas: int) -> Share:
    """Return the share of a replica among equals, where no batch says how many rows there are."""
    return Share(rows=1, global_rows=replicas, weight=1.0 / replicas)


def own_share(split: Split, *, empty: bool = False) -> Share:
    """Return this replica's share of a batch. Only inside a step on the mesh.

    Args:
        split: The shares of all replicas.
        empty: Whether a replica without rows runs on zero rows.
    """
    if split.even:
        return Share(rows=split.block, global_rows=split.rows, weight=1.0 / split.replicas)
    rows = jnp.asarray(split.shares)[lax.axis_index(AXIS)]
    weight = rows.astype(jnp.result_type(float)) / split.rows
    return Share(
        rows=split.block,
        global_rows=split.rows,
        weight=weight,
        present=True if min(split.shares) else rows > 0,
        first=next(i for i, share in enumerate(split.shares) if share),
        empty=empty,
    )


class Exchange:
    """The collectives of an even batch: run where they stand.

    Attributes:
        position: How many calls were answered since the step began; counts only where calls are replayed.
        has_crossed: Whether anything was exchanged at all.
    """

    position = 0
    has_crossed = False

    def begin(self) -> None:
        """Note that the step begins, or is traced again from its start."""
        self.position = 0

    def skip(self, calls: int) -> None:
        """Note that something is not computed again that made so many calls."""
        self.position += calls

    def call(self, crossing: Crossing, *operands: Tree) -> Tree:
        """Run `crossing` on this replica's operands together with the other replicas.

        Args:
            crossing: Function of `operands` that uses collectives. It must not close over values of
                the step.
            operands: Nested structures of arrays.
        """
        self.has_crossed = True
        return crossing(*operands)
