"""Conditions and branches of rewritten functions (`program.rewriting`): Python's on Python values, else JAX's.

Where a condition is computed, both branches are traced, and a variable of Python that they assign becomes a result of
`lax.cond`. One that has no value, another shape or another kind in one of them has no value afterwards; whoever uses it
is told so. Loops are in `program.loops`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from stratagem.core.errors import InputError
from stratagem.program.assertions import check
from stratagem.program.branches import Branches
from stratagem.program.carried import (
    ARRAYS,
    Unassigned,
    alike,
    alike_in_form,
    common_dtype,
    flat,
    read,
    refused,
    scalar,
    shown,
    used_at_once,
    values_of,
)
from stratagem.program.tracing import is_traced

# Conditions ------------------------------------------------------------------------------------------


def truth(test: Any, obstacle: str) -> Any:
    """Return a condition of a statement that is not rewritten.

    Raises:
        UsageError: It is computed.
    """
    test = read(test)
    if is_traced(test):
        raise refused(f"asks whether a tensor is true, in a statement with {obstacle}")
    return test


def and_(first: Any, second: Callable[[], Any]) -> Any:
    """Return `first() and second()`."""
    value = read(first())
    return jnp.logical_and(value, read(second())) if is_traced(value) else value and second()


def or_(first: Any, second: Callable[[], Any]) -> Any:
    """Return `first() or second()`."""
    value = read(first())
    return jnp.logical_or(value, read(second())) if is_traced(value) else value or second()


def not_(value: Any) -> Any:
    """Return `not value`."""
    value = read(value)
    return jnp.logical_not(value) if is_traced(value) else not value


def assert_(test: Any, message: Callable[[], Any]) -> None:
    """Do what `assert test, message` does; a computed condition is checked when the step has ended."""
    test = read(test)
    if not is_traced(test):
        assert test, message()
        return
    text = message()
    said = "" if text is None else f"{text}: "
    check(test, [], lambda _, where: InputError(f"{said}an assertion does not hold{where}.", "Correct the values."))


# Branches --------------------------------------------------------------------------------------------


def choose(test: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    """Return `then() if test else otherwise()`."""
    test = read(test)
    if not is_traced(test):
        return then() if test else otherwise()
    (value,) = _chosen(test, lambda: (then(),), lambda: (otherwise(),), ["the value of a conditional expression"])
    return used_at_once(value)


def if_(
    test: Any,
    then: Callable[..., tuple[Any, ...]],
    otherwise: Callable[..., tuple[Any, ...]],
    names: Sequence[str],
    scope: Mapping[str, Any],
    refusal: str,
) -> tuple[Any, ...]:
    """Run one of two branches.

    Args:
        test: The condition.
        then: Function of the variables' values that returns their new ones.
        otherwise: The same, where the condition is false.
        names: The variables.
        scope: Those that have values, by name.
        refusal: What the branches do that they cannot where the condition is computed.

    Returns:
        The variables' new values.
    """
    test, values = read(test), values_of(names, scope)
    if not is_traced(test):
        return (then if test else otherwise)(*values)
    if refusal:
        raise refused(f"{refusal} in a branch whose condition is a tensor")
    return _chosen(test, lambda: then(*values), lambda: otherwise(*values), [f"`{name}`" for name in names])


def returned(
    test: Any,
    then: Callable[..., Any],
    otherwise: Callable[..., Any],
    names: Sequence[str],
    scope: Mapping[str, Any],
    refusal: str,
) -> Any:
    """Return what one of two ways to the end of a function returns; the arguments are those of `if_`."""
    test, values = read(test), values_of(names, scope)
    if not is_traced(test):
        return (then if test else otherwise)(*values)
    if refusal:
        raise refused(f"{refusal} in a branch whose condition is a tensor")
    (value,) = _chosen(test, lambda: (then(*values),), lambda: (otherwise(*values),), ["what the function returns"])
    return used_at_once(value)


def _chosen(
    test: Any, then: Callable[[], tuple[Any, ...]], otherwise: Callable[[], tuple[Any, ...]], names: Sequence[str]
) -> tuple[Any, ...]:
    plans: list[_Joined] = []

    def collecting(way: Callable[[], tuple[Any, ...]]) -> Callable[[], Any]:
        def run() -> Any:
            results = way()
            return [array for plan, each in zip(plans, results, strict=True) for array in plan.arrays(each)]

        return lambda: run() if plans else way()

    branches = Branches([collecting(then), collecting(otherwise)])
    plans += [_Joined.of(name, *ways) for name, *ways in zip(names, *branches.results, strict=True)]
    runs = [lambda v: branches.run(0, v), lambda v: branches.run(1, v)]
    arrays = iter(branches.leave(lax.cond(scalar(test), *runs, branches.values())))
    return tuple([plan.put_together(arrays) for plan in plans])


class _Joined:
    """Value that leaves two branches: its leaves that are arrays come out of them, others are equal in both.

    Args:
        value: Structure of the value, or `Unassigned`.
        kinds: The dtype of each leaf; None for one that stays what it is.
    """

    def __init__(self, value: Any, kinds: Sequence[Any]) -> None:
        self._value, self._kinds = value, kinds

    @classmethod
    def of(cls, name: str, first: Any, second: Any) -> _Joined:
        for value, way in ((first, "true"), (second, "false")):
            if isinstance(value, Unassigned):
                why = (
                    value.why
                    if value.why != name.strip("`")
                    else f"{name} is not assigned where the condition is {way}"
                )
                return cls(Unassigned(why), [])
        first, second = alike_in_form(first, second)
        (leaves, structure), (others, other) = flat(first), flat(second)
        if structure != other:
            return cls(Unassigned(f"{name} is {shown(first)} where the condition is true, else {shown(second)}"), [])
        kinds = []
        for a, b in zip(leaves, others, strict=True):
            kind = None if a is b else common_dtype(a, b)
            same = a is b or (kind is None and not isinstance(a, ARRAYS) and type(a) is type(b) and a == b)
            if kind is None and not same:
                why = f"{name} is {shown(a)} where the condition is true, else {shown(b)}"
                return cls(Unassigned(why), [])
            kinds.append(kind)
        return cls(first, kinds)

    def arrays(self, value: Any) -> list[jax.Array]:
        """Return the arrays that leave a branch with a value."""
        if not self._kinds:
            return []
        leaves = flat(alike(value, self._value)[0])[0]
        return [jnp.asarray(leaf, kind) for leaf, kind in zip(leaves, self._kinds, strict=True) if kind]

    def put_together(self, arrays: Iterable[jax.Array]) -> Any:
        """Return the value, with arrays that left the branch in their places."""
        if not self._kinds:
            return self._value
        left = iter(arrays)
        leaves, structure = flat(self._value)
        return structure.unflatten(
            [leaf if k is None else next(left) for leaf, k in zip(leaves, self._kinds, strict=True)]
        )
