"""Steps on a batch that does not divide: each replica runs on exactly its own rows.

Replicas hold different numbers of rows. Padding would leak into batch statistics, custom losses and metrics.
Arrays have one shape on all replicas, so the step is traced once for each row count and `lax.switch` picks the
branch; what may have another size in each branch is `Ragged`, and filled up. A collective inside a branch would
deadlock (replicas take different branches), so a branch stops at the first exchange and hands out its operands;
the exchange runs outside, once, for all replicas; then the step is replayed with the result filled in, up to the
next exchange. XLA removes what a replay does not use. An uneven batch comes once an epoch, so the repeated forward
pass does not show.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from stratagem.core.errors import InputError, UsageError
from stratagem.mesh.exchange import Crossing, Exchange, Ragged, Share, own_share
from stratagem.mesh.mesh import AXIS, Tree
from stratagem.mesh.split import Split
from stratagem.program.interpret import trace


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

    def call(self, crossing: Crossing, *operands: Tree) -> Tree:
        if self.position == len(self._answers):
            raise _Stop(crossing, operands)
        self.position += 1
        return self._answers[self.position - 1]


@dataclass(frozen=True)
class _Branch:
    """The step, traced for one number of rows up to its end or to the next exchange.

    Args:
        traced: From the replica's block to the leaves of the result, or of the exchange's operands.
        structure: How the leaves are arranged.
        stop: The exchange; None at the end.
    """

    traced: ClosedJaxpr
    structure: Any
    stop: _Stop | None

    @classmethod
    def of(cls, step: Callable[[Exchange, Tree], Tree], rows: int, answers: Sequence[Tree], data: Tree) -> _Branch:
        stops: list[_Stop] = []

        def run(block: Tree) -> Tree:
            try:
                return step(_Replay(answers), jax.tree.map(lambda array: array[:rows], block))
            except _Stop as stopped:
                stops.append(stopped)
                return stopped.operands

        traced, structure = trace(run, [data])
        return cls(traced, structure, stops[0] if stops else None)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the leaves."""
        return [tuple(leaf.shape) for leaf in cast("Sequence[Any]", self.traced.out_avals)]

    @property
    def numbered(self) -> Tree:
        """The result with the number of each leaf in its place."""
        return self.structure.unflatten(range(self.structure.num_leaves))

    @property
    def ragged(self) -> dict[int, int]:
        """The leaves that may have another size on other replicas, each with the axis."""
        leaves = jax.tree.leaves(self.numbered, is_leaf=_is_ragged)
        return {leaf.value: leaf.axis for leaf in leaves if _is_ragged(leaf)}

    def filled(self, shapes: Sequence[tuple[int, ...]]) -> Callable[[Tree], list[jax.Array]]:
        """Return the branch as a function whose results have these shapes, each at least as large as its own."""
        run = jaxpr_as_fun(self.traced)

        def function(block: Tree) -> list[jax.Array]:
            leaves = run(*jax.tree.leaves(block))
            return [_filled(leaf, shape) for leaf, shape in zip(leaves, shapes, strict=True)]

        return function


def _is_ragged(leaf: object) -> bool:
    return isinstance(leaf, Ragged)


def _filled(leaf: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    missing = [(0, whole - own) for whole, own in zip(shape, leaf.shape, strict=True)]
    return jnp.pad(leaf, missing) if leaf.shape != shape else leaf


def run_uneven(step: Callable[[Share, Exchange, Tree], Tree], data: Tree, split: Split, *, empty: bool = False) -> Tree:
    """Run `step` on exactly this replica's rows of a batch that does not divide.

    The share of a replica without rows has weight 0 and is not `present`.

    Args:
        step: Function of (share, exchange, rows of this replica).
        data: This replica's block: arrays whose first axis has `split.block` rows, valid ones first.
        split: The shares.
        empty: Whether a replica without rows runs on zero rows; else it runs on one stand-in row.

    Returns:
        What `step` returns, with the sizes of what is `Ragged`.

    Raises:
        UsageError: The step does something else on another number of rows.
        InputError: Something that is not `Ragged` has another shape on another number of rows.
    """
    least = 0 if empty else 1
    counts = sorted({max(share, least) for share in split.shares})
    branch_of_replica = [counts.index(max(share, least)) for share in split.shares]
    outside = own_share(split, empty=empty)
    answers: list[Tree] = []
    while True:
        branches = [
            _Branch.of(functools.partial(step, dataclasses.replace(outside, rows=rows)), rows, answers, data)
            for rows in counts
        ]
        shapes = _common_shapes(branches, counts)
        filled = [branch.filled(shapes) for branch in branches]
        if len(counts) == 1:
            leaves = filled[0](data)
        else:
            leaves = lax.switch(jnp.asarray(branch_of_replica)[lax.axis_index(AXIS)], filled, data)
        sizes = [branches[which].shapes for which in branch_of_replica]
        result = _arranged(branches[0], leaves, [share > 0 or empty for share in split.shares], sizes)
        stop = branches[0].stop
        if stop is None:
            return result
        answers.append(stop.crossing(*result))


def _arranged(
    branch: _Branch, leaves: Sequence[jax.Array], counted: Sequence[bool], shapes: Sequence[Sequence[tuple[int, ...]]]
) -> Tree:
    """Return leaves as the branch arranges them; those that are ragged with the sizes that replicas gave them."""

    def arranged(leaf: Any) -> Any:
        if not _is_ragged(leaf):
            return leaves[leaf]
        i, axis = leaf.value, leaf.axis
        sizes = [shape[i][axis] if counts else 0 for shape, counts in zip(shapes, counted, strict=True)]
        return Ragged(leaves[i], axis, tuple(sizes))

    return jax.tree.map(arranged, branch.numbered, is_leaf=_is_ragged)


def _common_shapes(branches: Sequence[_Branch], counts: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the shapes that the results of all branches fit into."""
    if len({branch.structure for branch in branches}) > 1 or len({branch.stop is None for branch in branches}) > 1:
        raise UsageError(
            f"The function does something else on {' than on '.join(map(str, counts))} rows.",
            "Replicas hold different numbers of rows of this batch: they would wait for each other forever, or "
            "their results could not be put together.",
            "Combine values of all replicas, and return, whatever the number of rows.",
        )
    ragged = branches[0].ragged
    common = []
    for i, shapes in enumerate(zip(*(branch.shapes for branch in branches), strict=True)):
        fixed = [[len(shape), *(size for axis, size in enumerate(shape) if axis != ragged.get(i))] for shape in shapes]
        if any(sizes != fixed[0] for sizes in fixed):
            raise InputError(
                f"A value has shapes {' and '.join(map(str, shapes))} on replicas with "
                f"{' and '.join(map(str, counts))} rows.",
                "Such values cannot be combined element by element, nor put side by side.",
                "Reduce it over the rows first, or let only its first dimension depend on them.",
            )
        common.append(tuple(max(sizes) for sizes in zip(*shapes, strict=True)))
    return common


def padded(value: jax.Array, rows: int) -> jax.Array:
    """Return `value` with its last row repeated until it has `rows` rows, so that branches have one shape."""
    missing = rows - value.shape[0]
    return value if not missing else jnp.concatenate([value, jnp.repeat(value[-1:], missing, axis=0)])
