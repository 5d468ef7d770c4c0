"""What crosses replicas in the middle of a step, and how an uneven batch gets there.

A step is written for one replica. Where it needs the others (a sum of gradients, the number of
unmasked entries) it calls `Exchange.call`. On an even batch that is a plain collective.

On a batch that does not divide, replicas hold different numbers of rows, and each must run the
step on exactly its own rows: padding would leak into batch statistics, custom losses and metrics.
Arrays have one shape on all replicas, so the step is traced once for each row count and
`lax.switch` picks the branch. A collective inside a branch would deadlock (replicas take different
branches), so a branch stops at the first exchange and hands out its operands; the exchange runs
outside, once, for all replicas; then the step is replayed with the result filled in, up to the
next exchange. XLA removes what a replay does not use. An uneven batch comes once an epoch, so the
repeated forward pass does not show.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from stratagem.replica.mesh import AXIS, Tree
from stratagem.replica.split import Split

Crossing = Callable[..., Tree]
"""A function of one replica's operands that uses collectives; equal on all replicas."""


@dataclass(frozen=True)
class Share:
    """One replica's part of the batch, as the code inside a step sees it.

    Args:
        rows: Rows that the step runs on; a Python number, because shapes depend on it.
        global_rows: Rows over all replicas.
        weight: This replica's share of a mean over the batch: a number, or traced where shares differ.
        present: Whether the replica has any rows: True, or traced where some have none.
    """

    rows: int
    global_rows: int
    weight: Any
    present: Any = True

    def masked(self, value: jax.Array) -> jax.Array:
        """Return `value`, or zeros where this replica has no rows and computed on a stand-in."""
        if self.present is True:
            return value
        return jnp.where(self.present, value, jnp.zeros_like(value))


def own_share(split: Split) -> Share:
    """Return this replica's share of a batch. Only inside a step on the mesh.

    Args:
        split: The shares of all replicas.
    """
    if split.even:
        return Share(rows=split.block, global_rows=split.rows, weight=1.0 / split.replicas)
    rows = jnp.asarray(split.shares)[lax.axis_index(AXIS)]
    weight = rows.astype(jnp.result_type(float)) / split.rows
    return Share(
        rows=split.block, global_rows=split.rows, weight=weight, present=True if min(split.shares) else rows > 0
    )


class Exchange:
    """The collectives of an even batch: run where they stand."""

    def begin(self) -> None:
        """Note that the step begins, or is traced again from its start."""

    def call(self, crossing: Crossing, *operands: Tree) -> Tree:
        """Run `crossing` on this replica's operands together with the other replicas.

        Args:
            crossing: Function of `operands` that uses collectives. It must not close over values of
                the step.
            operands: Nested structures of arrays.
        """
        return crossing(*operands)


class _Stop(BaseException):
    """Leaves a branch at its first unanswered exchange. Not an `Exception`: user code must not catch it."""

    def __init__(self, crossing: Crossing, operands: tuple[Tree, ...]) -> None:
        super().__init__("a step stopped at an exchange between replicas")
        self.crossing = crossing
        self.operands = operands


class _Replay(Exchange):
    """The exchanges of one branch: answered ones return their result, the next one stops the branch."""

    def __init__(self, answers: Sequence[Tree]) -> None:
        self._answers = answers
        self._next = 0

    def begin(self) -> None:
        # A tape traces the step again up to its gradient call: by then as many exchanges were made as before.
        self._next = 0

    def call(self, crossing: Crossing, *operands: Tree) -> Tree:
        if self._next == len(self._answers):
            raise _Stop(crossing, operands)
        self._next += 1
        return self._answers[self._next - 1]


def run_uneven(step: Callable[[Share, Exchange, Tree], Tree], data: Tree, split: Split) -> Tree:
    """Run `step` on exactly this replica's rows of a batch that does not divide.

    A replica without rows runs on one stand-in row; its share has weight 0 and is not `present`.

    Args:
        step: Function of (share, exchange, rows of this replica).
        data: This replica's block: arrays whose first axis has `split.block` rows, valid ones first.
        split: The shares.

    Returns:
        What `step` returns.
    """
    counts = sorted({max(share, 1) for share in split.shares})
    branch_of_replica = [counts.index(max(share, 1)) for share in split.shares]
    outside = own_share(split)
    answers: list[Tree] = []
    while True:
        stops: list[_Stop] = []
        structures: list[Any] = []

        def branch(rows: int, stops: list[_Stop] = stops, structures: list[Any] = structures) -> Callable:
            def run(block: Tree) -> list[jax.Array]:
                share = dataclasses.replace(outside, rows=rows)
                own = jax.tree.map(lambda array: array[:rows], block)
                try:
                    result = step(share, _Replay(answers), own)
                except _Stop as stop:
                    stops.append(stop)
                    result = stop.operands
                leaves, structure = jax.tree.flatten(result)
                structures.append(structure)
                return [jnp.asarray(leaf) for leaf in leaves]

            return run

        if len(counts) == 1:
            leaves = branch(counts[0])(data)
        else:
            which = jnp.asarray(branch_of_replica)[lax.axis_index(AXIS)]
            leaves = lax.switch(which, [branch(rows) for rows in counts], data)
        result = structures[0].unflatten(leaves)
        if not stops:
            return result
        answers.append(stops[0].crossing(*result))


def padded(value: jax.Array, rows: int) -> jax.Array:
    """Return `value` with its last row repeated until it has `rows` rows, so that branches have one shape."""
    missing = rows - value.shape[0]
    return value if not missing else jnp.concatenate([value, jnp.repeat(value[-1:], missing, axis=0)])
