"""Loops of rewritten functions (`program.rewriting`): Python's on Python values, compiled ones on computed values.

A compiled loop carries the variables that have a value before it.
"""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stratagem.core.errors import InputError
from stratagem.program.branches import Branches
from stratagem.program.carried import (
    ARRAYS,
    Adapting,
    Awaited,
    Unassigned,
    alike,
    common_dtype,
    flat,
    is_weak,
    parts,
    read,
    refused,
    scalar,
    shown,
    values_of,
)
from stratagem.program.computed_loop import computed_loop
from stratagem.program.computed_range import MOST_UNROLLED, ComputedRange, KnownRange
from stratagem.program.tracing import is_traced


def counting(function: Any) -> Any:
    """Return what stands for `range` in a loop: one that takes computed numbers, if it is Python's."""
    return _counted if function is builtins.range else function


def _counted(*bounds: Any) -> Any:
    bounds = tuple([read(bound) for bound in bounds])
    if not any(is_traced(bound) for bound in bounds):
        return range(*bounds)
    start, limit, delta = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    return ComputedRange(start, limit, delta)


def awaited() -> Awaited:
    """Return what stands for a result until a loop gives it."""
    return Awaited()


def elements(iterable: Any, obstacle: str) -> Any:
    """Return what a loop that is not rewritten runs over.

    Raises:
        UsageError: How much that is, is computed.
    """
    if isinstance(iterable, ComputedRange):
        raise refused(f"counts to a tensor, in a loop with {obstacle}")
    return iterable


class _Rows:
    """What is left of a loop over things of Python when whether it goes on is computed: counted, it is one array each.

    Args:
        elements: Numbers or tensors, or structures of them, all of one form; or an array of numbers.
    """

    def __init__(self, elements: Sequence[Any] | np.ndarray) -> None:
        self.most = len(elements)
        self.count = jnp.asarray(self.most)
        if isinstance(elements, np.ndarray):
            self._structure, self._rows = flat(0)[1], [jnp.asarray(np.asarray(elements))]
            return
        leaves = [flat(element) for element in elements]
        first, self._structure = leaves[0]
        for others, structure in leaves:
            fits = structure == self._structure and all(map(common_dtype, first, others))
            if not fits:
                raise refused(
                    f"leaves a loop over different kinds of elements ({shown(elements[0])}, {shown(elements[-1])}) by "
                    "a `break` or `return` whose condition is a tensor"
                )
        self._rows = [
            jnp.stack(list(map(jnp.asarray, rows))) for rows in zip(*(each for each, _ in leaves), strict=True)
        ]

    def number(self, place: Any) -> Any:
        """Return the element at a place."""
        return self._structure.unflatten([rows[place] for rows in self._rows])


def while_(
    test: Callable[..., Any],
    body: Callable[..., tuple[Any, ...]],
    names: Sequence[str],
    scope: Mapping[str, Any],
    refusal: str,
) -> tuple[Any, ...]:
    """Run a body as long as a condition holds.

    Args:
        test: Function of the variables' values that returns the condition.
        body: Function of them that returns their new ones.
        names: The variables.
        scope: Those that have values, by name.
        refusal: What the body does that it cannot where the condition is computed.
    """
    values = values_of(names, scope)
    while True:
        goes_on = read(test(*values))
        if is_traced(goes_on):
            return looped(lambda v: test(*v), lambda v: body(*v), names, values, refusal)
        if not goes_on:
            return values
        values = body(*values)


def for_(
    iterable: Any,
    body: Callable[..., tuple[Any, ...]],
    stop: str,
    names: Sequence[str],
    scope: Mapping[str, Any],
    refusal: str,
) -> tuple[Any, ...]:
    """Run a body for each element.

    Args:
        iterable: The elements.
        body: Function of an element and of the variables' values that returns their new ones.
        stop: The variable that says whether the loop is left; empty where nothing leaves it.
        names: The variables.
        scope: Those that have values, by name.
        refusal: What the body does that it cannot where the condition is computed.
    """
    values = values_of(names, scope)
    place = names.index(stop) if stop else None
    if isinstance(iterable, ComputedRange):
        return _counting(iterable, body, place, names, values, refusal)
    if isinstance(iterable, KnownRange) and not len(iterable):
        return _without_turns(body, names, values)
    elements = iter(iterable)
    is_long = isinstance(iterable, KnownRange) and len(iterable) > MOST_UNROLLED and not refusal
    for element in elements:
        values = body(element, *values)
        left = False if place is None else read(values[place])
        if is_long and (is_traced(left) or not left):
            # What the loop assigns has a value, and its form, behind the first turn. Where others cannot be compiled,
            # as they use the number as one of Python or change a shape, all are traced one by one.
            is_long = False
            with contextlib.suppress(Exception):
                return _counting(_Rows(iterable[1:]), body, place, names, values, refusal)
        if is_traced(left):
            if not isinstance(iterable, Sized):
                kind = type(iterable).__name__
                raise refused(f"leaves a loop over a {kind} by a `break` or `return` whose condition is a tensor")
            rest = list(elements)
            return _counting(_Rows(rest), body, place, names, values, refusal) if rest else values
        if left:
            break
    return values


def _without_turns(
    body: Callable[..., tuple[Any, ...]], names: Sequence[str], values: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Return the values before a loop that has no turns, those that adapt in the form that a turn would give them.

    TensorFlow traces the body of such a loop: so it knows the shape of the tensors of an array that only the loop
    writes. What can be written at a known number may be refused at a computed one, and the other way round.
    """
    if not any(isinstance(part, Adapting) for part in parts(values)):
        return values
    with contextlib.suppress(Exception):
        return _Carrying(names, values, lambda state: body(np.int32(0), *state)).formed()
    with contextlib.suppress(Exception):
        begin = (jnp.zeros((), jnp.int32), *values)
        return _Carrying(["the count", *names], begin, lambda state: (state[0], *body(*state))).formed()[1:]
    return values


def _counting(
    numbers: ComputedRange | _Rows,
    body: Callable[..., tuple[Any, ...]],
    place: int | None,
    names: Sequence[str],
    values: tuple[Any, ...],
    refusal: str,
) -> tuple[Any, ...]:
    def goes_on(state: tuple[Any, ...]) -> Any:
        comes = state[0] < numbers.count
        return comes if place is None else jnp.logical_and(comes, jnp.logical_not(scalar(state[place + 1])))

    def turn(state: tuple[Any, ...]) -> tuple[Any, ...]:
        return state[0] + 1, *body(numbers.number(state[0]), *state[1:])

    begin = (jnp.zeros((), numbers.count.dtype), *values)
    most = None if isinstance(numbers, ComputedRange) else numbers.most
    return looped(goes_on, turn, ["the count", *names], begin, refusal, most)[1:]


def looped(
    test: Callable[[tuple[Any, ...]], Any],
    body: Callable[[tuple[Any, ...]], tuple[Any, ...]],
    names: Sequence[str],
    values: tuple[Any, ...],
    refusal: str = "",
    most: int | None = None,
) -> tuple[Any, ...]:
    """Run a loop whose condition is computed: what has a value before it is carried.

    Args:
        test: Function of the variables' values that returns the condition.
        body: Function of them that returns their new ones.
        names: The variables.
        values: Their values before the loop.
        refusal: What the body does that it cannot where the condition is computed.
        most: The most turns, where that is known.
    """
    if refusal:
        raise refused(f"{refusal} in a loop whose condition is a tensor")
    while True:
        loop = _Carrying(names, values, body)
        formed = loop.formed()
        if all(a is b for a, b in zip(parts(values), parts(formed), strict=True)):
            return loop.run(test, most)
        values = formed


class _Carrying:
    """A compiled loop: which of its variables are carried, and as what.

    Args:
        names: The variables.
        values: Their values before the loop.
        body: Function of them that returns their new ones.
    """

    def __init__(
        self, names: Sequence[str], values: tuple[Any, ...], body: Callable[[tuple[Any, ...]], tuple[Any, ...]]
    ) -> None:
        self._names, self._values, self._body = names, values, body
        self._flat = [flat(value) for value in values]
        self._carried = [
            i for i, (leaves, _) in enumerate(self._flat) if leaves and all(isinstance(each, ARRAYS) for each in leaves)
        ]
        self._first = [
            [np.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf for leaf in self._flat[i][0]]
            for i in self._carried
        ]
        self._after: list[Any] = Branches([self._turn], [self._first]).results[0]

    def formed(self) -> tuple[Any, ...]:
        """Return the values before the loop, those that adapt in the form that they have after a turn."""
        pairs = zip(self._values, self._after, strict=True)
        return tuple([v if isinstance(v, Unassigned) else alike(v, after)[0] for v, after in pairs])

    def run(self, test: Callable[[tuple[Any, ...]], Any], most: int | None) -> tuple[Any, ...]:
        """Return the variables' values after the loop; the arguments are those of `looped`."""
        # What is a number of Python before the loop may have another dtype in it.
        first = self._settled(self._after, self._first)
        branches = Branches([self._turn], [first])
        first = self._settled(branches.results[0], first)

        def goes_on(state: Any) -> Any:
            with branches.holding(state[1]):
                return scalar(read(test(self._state(state[0]))))

        def next_state(state: Any) -> Any:
            results, after = branches.run(0, state[1], state[0])
            new = [flat(results[i])[0] for i in self._carried], after
            return jax.tree.map(lambda leaf, old: jnp.asarray(leaf, old.dtype), new, state)

        start = [[jnp.asarray(leaf) for leaf in leaves] for leaves in first], branches.values()
        last = self._state(branches.leave(computed_loop(goes_on, next_state, start, most)))
        why = "it is assigned only in a loop, and the loop may run zero times"
        pairs = zip(self._names, last, strict=True)
        return tuple([Unassigned(f"`{name}`; {why}") if isinstance(v, Unassigned) else v for name, v in pairs])

    def _turn(self, arrays: Sequence[Sequence[Any]]) -> list[Any]:
        after = self._body(self._state(arrays))
        return [
            v if isinstance(v, Unassigned) else alike(v, before)[0]
            for v, before in zip(after, self._values, strict=True)
        ]

    def _state(self, arrays: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
        state = list(self._values)
        for i, leaves in zip(self._carried, arrays, strict=True):
            state[i] = self._flat[i][1].unflatten(leaves)
        return tuple(state)

    def _settled(self, after: Sequence[Any], first: list[list[Any]]) -> list[list[Any]]:
        """Return what is carried first, with the dtypes that it has in the loop.

        The loop must change neither the structure of what is carried, nor what cannot be carried.
        """
        for i, (name, value, own) in enumerate(zip(self._names, self._values, after, strict=True)):
            if isinstance(value, Unassigned):
                continue
            (before, structure), (leaves, new) = self._flat[i], flat(own)
            kept = i in self._carried or all(a is b or a == b for a, b in zip(before, leaves, strict=False))
            if structure != new or not kept:
                raise _changes(name, value, own)
        pairs = zip(self._carried, first, strict=True)
        return [_as_kept(self._names[i], leaves, flat(after[i])[0]) for i, leaves in pairs]


def _as_kept(name: str, before: Sequence[Any], after: Sequence[Any]) -> list[Any]:
    """Return the leaves of what a loop carries, with the dtypes that they have in it."""
    kept = []
    for old, new in zip(before, after, strict=True):
        kind = common_dtype(old, new)
        if kind is None or (not is_weak(old) and kind != jnp.result_type(old)):
            raise _changes(name, old, new)
        kept.append(jnp.asarray(old, kind))
    return kept


def _changes(name: str, before: Any, after: Any) -> InputError:
    return InputError(
        f"A loop whose condition is a tensor changes `{name}` from {shown(before)} to {shown(after)}.",
        "A compiled loop carries tensors, each of one shape and dtype.",
        "Before the loop, give it the shape and dtype that it has in the loop (tf.zeros, tf.cast).",
    )
