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
        if world is not None:
            world.made_for = world.layout
        try:
            result = fit(number, given)
        except ResizedError as error:
            given = error.given
        else:
            if world is not None:
                world.has_trained()
            return result


def evaluated(strategy: StrategyLike, evaluate: Callable[[bool], Result]) -> Result:
    """Run an evaluation or prediction to its end; begin it again with those who are left, where a worker is gone.

    Args:
        strategy: That of the model.
        evaluate: Runs it, given whether it has begun before.
    """
    world, has_begun = strategy.mesh.world, False
    while True:
        try:
            result = evaluate(has_begun)
        except ResizedError:
            strategy.follow_workers()
            has_begun = True
            if world is not None:
                world.made_for = None  # a `fit` that this is the validation of begins again behind it
        else:
            if world is not None:
                world.num_evaluated += 1
            return result
