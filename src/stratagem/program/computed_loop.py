"""A loop of computed length that has gradients, which `lax.while_loop` has not.

JAX cannot keep the states of a loop whose length it does not know. So they are computed again: going back through the
turns, the loop begins anew from states that were kept at equal distances, and within such a stretch from states that
were kept in it. With `_KEPT` states at both levels, gradients of up to `_KEPT ** 2` turns take three times the turns
forward; beyond, stretches are longer than the states that are kept in them, and their turns are repeated more often.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

_State = TypeVar("_State")
_Arrays = list[Any]

_KEPT: Final = 32
"""States that are kept at each of two levels."""


def computed_loop(
    goes_on: Callable[[_State], Any], turn: Callable[[_State], _State], state: _State, most: int | None = None
) -> _State:
    """Return the state after as many turns as a condition holds.

    Args:
        goes_on: Function of the state that returns a boolean scalar.
        turn: Function of the state that returns the next one, of the same structure, shapes and dtypes.
        state: The first state: a structure of arrays.
        most: The most turns; None where that is not known. Where it is, JAX keeps the state of each turn for gradients.
    """
    if most is not None:
        return lax.scan(lambda s, _: (lax.cond(goes_on(s), turn, lambda same: same, s), None), state, length=most)[0]
    leaves, structure = jax.tree.flatten(state)

    def opened(function: Callable[[_State], Any]) -> tuple[ClosedJaxpr, _Arrays]:
        traced = jax.make_jaxpr(lambda *leaves: jax.tree.leaves(function(structure.unflatten(leaves))))(*leaves)
        return traced, list(traced.consts)

    (test, test_uses), (step, step_uses) = opened(goes_on), opened(turn)
    return structure.unflatten(_differentiable(_Loop(test, step), leaves, test_uses, step_uses))


class _Loop:
    """A loop over lists of arrays; what it closes over is given to it, so that it has gradients too.

    Args:
        test: Program of the condition.
        step: Program of one turn.
    """

    def __init__(self, test: ClosedJaxpr, step: ClosedJaxpr) -> None:
        self._test, self._step = test, step

    def run(self, first: _Arrays, test_uses: _Arrays, step_uses: _Arrays) -> tuple[Any, _Arrays]:
        """Return how many turns there are, and the last state."""
        (last, count) = lax.while_loop(
            lambda state: _run(self._test, test_uses, state[0])[0],
            lambda state: (_run(self._step, step_uses, state[0]), state[1] + 1),
            (first, jnp.zeros((), jnp.int32)),
        )
        return count, last

    def back(self, first: _Arrays, uses: _Arrays, count: Any, given: Any, levels: int = 2) -> Any:
        """Return the gradients before some turns.

        Args:
            first: The state before the turns.
            uses: The arrays that the turns use.
            count: How many turns there are.
            given: The gradients behind them: by the numbers of the state, and so far by those that the turns use.
            levels: How often the turns are divided into stretches whose first states are kept.
        """

        def ahead(state: _Arrays, turns: Any) -> _Arrays:
            return lax.fori_loop(0, turns, lambda _, now: _run(self._step, uses, now), state)

        if not levels:

            def turn(place: Any, given: Any) -> Any:
                return self._back_one(ahead(first, count - 1 - place), uses, given)

            return lax.fori_loop(0, count, turn, given)

        length = jnp.maximum(-(-count // _KEPT), 1)
        stretches = -(-count // length)

        def keep(place: Any, found: tuple[_Arrays, _Arrays]) -> tuple[_Arrays, _Arrays]:
            kept, now = found
            return [rows.at[place].set(leaf) for rows, leaf in zip(kept, now, strict=True)], ahead(now, length)

        def stretch(place: Any, given: Any) -> Any:
            number = stretches - 1 - place
            turns = jnp.minimum(length, count - number * length)
            return self.back([rows[number] for rows in kept], uses, turns, given, levels - 1)

        empty = [jnp.zeros((_KEPT, *leaf.shape), leaf.dtype).at[0].set(leaf) for leaf in first]
        kept, last = lax.fori_loop(0, stretches - 1, keep, (empty, first))
        kept = [rows.at[stretches - 1].set(leaf) for rows, leaf in zip(kept, last, strict=True)]
        return lax.fori_loop(0, stretches, stretch, given)

    def _back_one(self, before: _Arrays, uses: _Arrays, given: Any) -> Any:
        """Return the gradients before one turn."""

        def turn(state: _Arrays, used: _Arrays) -> _Arrays:
            return _real(_run(self._step, _with_real(uses, used), _with_real(before, state)))

        by_state, by_uses = given
        _, pull = jax.vjp(turn, _real(before), _real(uses))
        state, more = pull(by_state)
        return state, jax.tree.map(jnp.add, by_uses, more)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _differentiable(loop: _Loop, first: _Arrays, test_uses: _Arrays, step_uses: _Arrays) -> _Arrays:
    return loop.run(first, test_uses, step_uses)[1]


def _forward(loop: _Loop, first: _Arrays, test_uses: _Arrays, step_uses: _Arrays) -> Any:
    count, last = loop.run(first, test_uses, step_uses)
    return last, (count, first, test_uses, step_uses)


def _backward(loop: _Loop, kept: Any, given: _Arrays) -> Any:
    count, first, test_uses, step_uses = kept
    by_last = [each for each, leaf in zip(given, first, strict=True) if _is_real(leaf)]
    by_uses = [jnp.zeros_like(leaf) for leaf in _real(step_uses)]
    by_first, by_uses = loop.back(first, step_uses, count, (by_last, by_uses))
    nothing = [None] * len(test_uses)
    return _gradients(first, by_first), nothing, _gradients(step_uses, by_uses)


_differentiable.defvjp(_forward, _backward)


def _run(program: ClosedJaxpr, uses: _Arrays, leaves: _Arrays) -> _Arrays:
    return jaxpr_as_fun(ClosedJaxpr(program.jaxpr, uses))(*leaves)


def _is_real(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.inexact)


def _real(leaves: Sequence[Any]) -> _Arrays:
    """Return the arrays that have gradients."""
    return [leaf for leaf in leaves if _is_real(leaf)]


def _with_real(leaves: Sequence[Any], real: Sequence[Any]) -> _Arrays:
    """Return arrays, with others in the places of those that have gradients."""
    new = iter(real)
    return [next(new) if _is_real(leaf) else leaf for leaf in leaves]


def _gradients(leaves: Sequence[Any], of_real: Sequence[Any]) -> _Arrays:
    """Return the gradients of all arrays: None for those that have none."""
    new = iter(of_real)
    return [next(new) if _is_real(leaf) else None for leaf in leaves]
