"""Steps on a batch that does not divide: each replica runs on exactly its own rows.

Replicas hold different numbers of rows, or arrays that differ in other dimensions too. Padding would leak into batch
statistics, custom losses and metrics. Arrays have one shape on all replicas, so the step is traced once for each row
count (and shapes) and `lax.switch` picks the branch; what may have another shape in each branch is `Ragged`, and
filled up. A collective inside a branch would deadlock (replicas take different branches), so a branch stops at the
first exchange and hands out its operands; the exchange runs outside, once, for all replicas; then the step is replayed
with the result filled in, up to the next exchange. XLA removes what a replay does not use. An uneven batch comes once
an epoch, so the repeated forward pass does not show.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from stratagem.core.errors import InputError, UsageError
from stratagem.mesh.exchange import Crossing, Exchange, Ragged, Share, own_share
from stratagem.mesh.mesh import AXIS, MODEL_AXIS, Tree
from stratagem.mesh.shapes import Shape, block_shape, cut, filled, unequal
from stratagem.mesh.split import Split
from stratagem.program.interpret import trace

_NO_AXIS: Final = -1
"""The axis along which nothing may differ."""


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


class _Kind(NamedTuple):
    """Rows and shapes that a replica runs on.

    Args:
        rows: Rows of the batch.
        shapes: The shape of each array.
    """

    rows: int
    shapes: tuple[Shape, ...]


@dataclass(frozen=True)
class _Branch:
    """The step, traced for one kind of replica up to its end or to the next exchange.

    Args:
        traced: From the replica's block to the leaves of the result, or of the exchange's operands.
        structure: How the leaves are arranged.
        stop: The exchange; None at the end.
    """

    traced: ClosedJaxpr
    structure: Any
    stop: _Stop | None

    @classmethod
    def of(cls, step: Callable[[Exchange, Tree], Tree], kind: _Kind, answers: Sequence[Tree], data: Tree) -> _Branch:
        stops: list[_Stop] = []

        def run(block: Tree) -> Tree:
            leaves, structure = jax.tree.flatten(block)
            own = structure.unflatten([cut(leaf, shape) for leaf, shape in zip(leaves, kind.shapes, strict=True)])
            try:
                return step(_Replay(answers), own)
            except _Stop as stopped:
                stops.append(stopped)
                return stopped.operands

        traced, structure = trace(run, [data])
        return cls(traced, structure, stops[0] if stops else None)

    @property
    def shapes(self) -> list[Shape]:
        """The shapes of the leaves."""
        return [tuple(leaf.shape) for leaf in cast("Sequence[Any]", self.traced.out_avals)]

    @property
    def numbered(self) -> Tree:
        """The result with the number of each leaf in its place."""
        return self.structure.unflatten(range(self.structure.num_leaves))

    @property
    def ragged(self) -> dict[int, int | None]:
        """The leaves that may have another shape on other replicas, each with the axis; see `Ragged`."""
        leaves = jax.tree.leaves(self.numbered, is_leaf=_is_ragged)
        return {leaf.value: leaf.axis for leaf in leaves if _is_ragged(leaf)}

    def filled(self, shapes: Sequence[Shape]) -> Callable[[Tree], list[jax.Array]]:
        """Return the branch as a function whose results are blocks of these shapes."""
        run = jaxpr_as_fun(self.traced)

        def function(block: Tree) -> list[jax.Array]:
            leaves = run(*jax.tree.leaves(block))
            return [filled(jnp.asarray(leaf), shape) for leaf, shape in zip(leaves, shapes, strict=True)]

        return function


def _is_ragged(leaf: object) -> bool:
    return isinstance(leaf, Ragged)


def run_uneven(
    step: Callable[[Share, Exchange, Tree], Tree],
    data: Tree,
    split: Split,
    *,
    shapes: Tree | None = None,
    empty: bool = False,
) -> Tree:
    """Run `step` on exactly this replica's rows of a batch that does not divide.

    The share of a replica without rows has weight 0 and is not `present`.

    Args:
        step: Function of (share, exchange, rows of this replica).
        data: This replica's blocks; what is valid comes first.
        split: The shares.
        shapes: Structure like `data` of the shapes that replicas have, for each array a tuple of one for each replica.
            None where the replicas' arrays differ in their rows only.
        empty: Whether a replica without rows runs on zero rows; else it runs on one stand-in row.

    Returns:
        What `step` returns, with the sizes of what is `Ragged`.

    Raises:
        UsageError: The step does something else on another number of rows, or other shapes.
        InputError: Something that is not `Ragged` has another shape there.
    """
    kind_of_replica = _kinds(data, split, shapes, least=0 if empty else 1)
    kinds = sorted(set(kind_of_replica))
    branch_of_replica = [kinds.index(kind) for kind in kind_of_replica]
    outside = own_share(split, empty=empty)
    answers: list[Tree] = []
    while True:
        branches = [
            _Branch.of(functools.partial(step, dataclasses.replace(outside, rows=kind.rows)), kind, answers, data)
            for kind in kinds
        ]
        blocks = _common_shapes(branches, kinds)
        alike = [branch.filled(blocks) for branch in branches]
        leaves = _of_own_branch(alike, branch_of_replica, data)
        of_replicas = [branches[which].shapes for which in branch_of_replica]
        result = _arranged(branches[0], leaves, [share > 0 or empty for share in split.shares], of_replicas)
        stop = branches[0].stop
        if stop is None:
            return result
        answers.append(stop.crossing(*result))


def _of_own_branch(
    branches: Sequence[Callable[[Tree], list[jax.Array]]], branch_of_replica: Sequence[int], data: Tree
) -> list[jax.Array]:
    """Return what this replica's branch makes of its block."""
    if len(branches) == 1:
        return branches[0](data)
    own = jnp.asarray(branch_of_replica)[lax.axis_index(AXIS)]
    if MODEL_AXIS not in jax.sharding.get_abstract_mesh().axis_names:
        return lax.switch(own, branches, data)
    # What XLA exchanges among a replica's devices may need all devices of the mesh (a collective permute on CPUs): in
    # branches some would wait for others forever. So all run each branch, and keep their own's results.
    return [lax.select_n(own, *leaves) for leaves in zip(*(branch(data) for branch in branches), strict=True)]


def _kinds(data: Tree, split: Split, shapes: Tree | None, least: int) -> list[_Kind]:
    """Return the kind of each replica."""
    rows = [max(share, least) for share in split.shares]
    leaves, structure = jax.tree.flatten(data)
    if shapes is None:
        return [_Kind(count, tuple([(count, *leaf.shape[1:]) for leaf in leaves])) for count in rows]
    columns = zip(*structure.flatten_up_to(shapes), strict=True)
    return [
        _Kind(count, tuple([shape if share or not shape else (count, *shape[1:]) for shape in own]))
        for count, share, own in zip(rows, split.shares, columns, strict=True)
    ]


def _arranged(
    branch: _Branch, leaves: Sequence[jax.Array], counted: Sequence[bool], shapes: Sequence[Sequence[Shape]]
) -> Tree:
    """Return leaves as the branch arranges them; those that are ragged with the shapes that replicas gave them."""

    def arranged(leaf: Any) -> Any:
        if not _is_ragged(leaf):
            return leaves[leaf]
        own = [
            shape[leaf.value] if counts else _none_of(shape[leaf.value], leaf.axis or 0)
            for shape, counts in zip(shapes, counted, strict=True)
        ]
        return Ragged(leaves[leaf.value], leaf.axis, tuple(own))

    return jax.tree.map(arranged, branch.numbered, is_leaf=_is_ragged)


def _none_of(shape: Shape, axis: int) -> Shape:
    """Return the shape of a replica's part of an array that has this shape elsewhere, where it has none."""
    return tuple([0 if i == axis else size for i, size in enumerate(shape)])


def _common_shapes(branches: Sequence[_Branch], kinds: Sequence[_Kind]) -> list[Shape]:
    """Return the shapes that the results of all branches fit into."""
    if len({branch.structure for branch in branches}) > 1 or len({branch.stop is None for branch in branches}) > 1:
        raise UsageError(
            f"The function does something else on {_listed(kinds, ' than on ')}.",
            "Replicas hold values of different shapes: they would wait for each other forever, or "
            "their results could not be put together.",
            "Combine values of all replicas, and return the same values, for any number of rows.",
        )
    ragged = branches[0].ragged
    common = []
    for i, shapes in enumerate(zip(*(branch.shapes for branch in branches), strict=True)):
        axis = ragged.get(i, _NO_AXIS)
        fault = "" if axis is None else unequal(shapes, axis)
        if fault:
            along = "" if axis == _NO_AXIS else f", and is gathered along axis={axis}"
            raise InputError(
                f"A value has shapes {' and '.join(map(str, shapes))} on replicas with "
                f"{_listed(kinds, ' and ')}{along}. {fault}.",
                "Such values cannot be combined element by element, nor put side by side.",
                "Reduce it over the rows first, or pad it to one shape.",
            )
        common.append(block_shape(shapes))
    return common


def _listed(kinds: Sequence[_Kind], between: str) -> str:
    """Return in words what differs between replicas."""
    if len({kind.rows for kind in kinds}) == len(kinds):
        return f"{between.join(str(kind.rows) for kind in kinds)} rows"
    return f"arguments of shapes {between.join(', '.join(map(str, kind.shapes)) for kind in kinds)}"


def padded(value: jax.Array, rows: int) -> jax.Array:
    """Return `value` with its last row repeated until it has `rows` rows, so that branches have one shape."""
    missing = rows - value.shape[0]
    return value if not missing else jnp.concatenate([value, jnp.repeat(value[-1:], missing, axis=0)])
