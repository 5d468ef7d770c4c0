"""Variables that a function makes at each call: made when it is first traced, and found again when it is compiled.

Source of the semantics: `tf.distribute.Strategy.run` outside `tf.function` runs eagerly, where a variable is made at
each call (https://www.tensorflow.org/api_docs/python/tf/distribute/Strategy#run).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import jax
import keras

from stratagem.core.errors import UsageError


class MadeVariables:
    """The variables that one call of a function makes, in order, however often it is traced for that call."""

    def __init__(self) -> None:
        self._made: list[tuple[Hashable, Any]] = []

    @contextlib.contextmanager
    def from_start(self) -> Iterator[None]:
        """Let the function begin: the first variable that it makes is the first of these."""
        outer = _current.set(_Place(self._made))
        try:
            yield
        finally:
            _current.reset(outer)

    def marked(self, tree: Any) -> Any:
        """Return a structure with those variables as parts of it, so that the structure keeps them as they are."""
        own = {id(variable) for _, variable in self._made}
        return jax.tree.map(lambda leaf: _Marked(leaf) if id(leaf) in own else leaf, tree)


class _Place:
    """How far one tracing of a function has come.

    Args:
        made: The facts of each variable, and the variable.
    """

    def __init__(self, made: list[tuple[Hashable, Any]]) -> None:
        self._made = made
        self._count = 0

    def take(self, facts: Hashable, make: Callable[[], Any]) -> Any:
        """Return the next variable, made if it is not there."""
        place, self._count = self._count, self._count + 1
        if place == len(self._made):
            self._made.append((facts, make()))
        known, variable = self._made[place]
        if known != facts:
            raise UsageError(
                f"A function that is being compiled makes different variables each time it is traced: {known}, then "
                f"{facts}.",
                "The function is traced several times, and must do the same each time.",
                "Make the variables outside the function.",
            )
        return variable


_current: ContextVar[_Place | None] = ContextVar("variables made by a call", default=None)


def made_once(facts: Hashable, make: Callable[[], Any]) -> Any:
    """Make a variable, or return the one that an earlier tracing of the same call has made.

    Args:
        facts: What every tracing has to say about it.
        make: Makes it.
    """
    place = _current.get()
    return make() if place is None else place.take(facts, make)


@jax.tree_util.register_static
@dataclass(frozen=True, eq=False)
class _Marked:
    """A variable as part of a structure."""

    variable: keras.Variable


def unmarked(tree: Any) -> Any:
    """Return a structure with marked variables in their places."""
    return jax.tree.map(
        lambda leaf: leaf.variable if isinstance(leaf, _Marked) else leaf,
        tree,
        is_leaf=lambda leaf: isinstance(leaf, _Marked),
    )
