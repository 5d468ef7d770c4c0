"""`fit` that begins where the others are: on a worker that has come later, and where the number of workers changed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeVar

from stratagem.mesh.changing import Given, ResizedError
from stratagem.replica.context import StrategyLike

Result = TypeVar("Result")

_calls = itertools.count(1)


def in_changing_world(strategy: StrategyLike, fit: Callable[[int, Given | None], Result]) -> Result:
    """Run a `fit` to its end, however often its workers change.

    Args:
        strategy: That of the model.
        fit: Runs it from its beginning, or from a given state, as often as it is called. It also gets the number of
            the call of `fit` in this program, from 1.
    """
    number, world = next(_calls), strategy.mesh.world
    given = world.catch_up() if world is not None and world.is_catching_up else None
    while True:
        strategy.follow_workers()
        try:
            return fit(number, given)
        except ResizedError as error:
            given = error.given
