"""`fit` that begins where the others are: on a worker that has come later, and where the number of workers changed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from stratagem.core.errors import UnsupportedError
from stratagem.elastic.leaving import leaves_at_sigterm
from stratagem.feed.adapter import ShareAdapter
from stratagem.feed.dataset_source import DatasetSource
from stratagem.fit.resuming import ResumesFit, Session
from stratagem.mesh.divided import is_in_shards
from stratagem.mesh.given import Given, ResizedError
from stratagem.mesh.shards import shard_axis
from stratagem.program.compat import stored_value
from stratagem.replica.context import StrategyLike

Result = TypeVar("Result")

_calls = itertools.count(1)


class MakesPlace(Protocol):
    """Makes the callback that knows how far a `fit` is, where workers may change."""

    def __call__(self, call: int, given: Given | None, before: Any) -> ResumesFit:
        """Return it.

        Args:
            call: Which `fit` of the program it is, from 1.
            given: Where it begins; None for its beginning.
            before: What this returned when this process began the same `fit` before; else None.
        """
        ...


def in_changing_world(strategy: StrategyLike, make_place: MakesPlace, fit: Callable[[ResumesFit], Result]) -> Result:
    """Run a `fit` to its end, however often its workers change.

    Args:
        strategy: That of the model.
        make_place: Makes what knows how far it is.
        fit: Runs it from there.
    """
    number, world = next(_calls), strategy.mesh.world
    assert world is not None, "others have no workers that change"
    given = world.catch_up() if world.is_catching_up else None
    place = None
    with leaves_at_sigterm(world.membership):
        while True:
            strategy.follow_workers()
            world.made_for = world.layout
            place = make_place(number, given, place)
            try:
                result = fit(place)
            except ResizedError as error:
                given = error.given
            else:
                world.has_trained()
                return result


def evaluated(strategy: StrategyLike, weights: Sequence[Any], evaluate: Callable[[bool], Result]) -> Result:
    """Run an evaluation or prediction to its end; begin it again with those who are left, where a worker is gone.

    Args:
        strategy: That of the model.
        weights: The variables of the model. Those in shards are divided anew for the evaluation only: whoever puts
            them together later goes by the shards of the last step.
        evaluate: Runs it, given whether it has begun before.
    """
    world, has_begun = strategy.mesh.world, False
    assert world is not None, "others have no workers that change"
    before = [(each, stored_value(each), shard_axis(each)) for each in weights if strategy.sharding is not None]
    while True:
        try:
            result = evaluate(has_begun)
        except ResizedError:
            strategy.follow_workers()
            has_begun = True
            world.made_for = None  # a `fit` that this is the validation of begins again behind it
        else:
            world.own_state.num_evaluated += 1
            return result
        finally:
            for variable, value, axis in before if has_begun else ():
                variable.shard_axis = axis
                if is_in_shards(value) or is_in_shards(stored_value(variable)):
                    variable.assign(value)


def check_input(session: Session, adapter: ShareAdapter) -> None:
    """Refuse an input that a process cannot read from the beginning, or from the middle, which has read some of it.

    Args:
        session: The call of `fit`, or the evaluation or prediction that begins again.
        adapter: The input.

    Raises:
        UnsupportedError: It is such an input, and workers may become more or fewer.
    """
    world = session.strategy.mesh.world
    may_begin_again = world is not None and (session.begins_again or world.membership.bounds.may_change)
    if may_begin_again and not (type(adapter) is ShareAdapter and isinstance(adapter.source, DatasetSource)):
        raise UnsupportedError(
            f"`{session.method}` was given a generator, a PyDataset, data of another library or a distributed "
            "dataset, and the number of its workers may change.",
            "After such a change the call begins again in the same process. By then such an input has been partly "
            "read, for another number of workers.",
            "Give it arrays or a stratagem.data.Dataset.",
        )
