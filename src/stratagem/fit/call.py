"""A call of `fit` or one of its siblings of a model that belongs to a strategy, from what it is given to its end."""

from __future__ import annotations

import contextlib
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import keras

from stratagem.core import patches
from stratagem.core.patches import Extent
from stratagem.fit import compat
from stratagem.fit.callbacks import for_this_worker
from stratagem.fit.own_callbacks import saving_within_epochs, with_own
from stratagem.fit.records import running_alone
from stratagem.fit.resuming import (
    ResumesFit,
    Session,
    current_session,
    put_resumer_last,
    running,
    watchers_among,
)
from stratagem.fit.same_program import check_same_program
from stratagem.mesh.placing import make_whole
from stratagem.replica.context import StrategyLike

COMPARED: Final = ("fit", "evaluate", "predict")
"""Methods before which workers compare what they run. The others take one step each, often one after another."""


class Call(NamedTuple):
    """A call of a method of a model that belongs to a strategy.

    Args:
        model: The model.
        method: Which method.
        strategy: The strategy.
        original: The model's own.
        bound: The arguments.
        resumer: The callback among them by which `fit` begins in the middle.
    """

    model: Any
    method: str
    strategy: StrategyLike
    original: Callable
    bound: inspect.BoundArguments
    resumer: ResumesFit | None

    def again(self, has_begun: bool) -> Any:
        """Run an evaluation, with an iterator of its own where it was begun before with another one."""
        kwargs = self.bound.arguments.get("kwargs", {})
        if has_begun and compat.CACHED in kwargs:
            self.bound.arguments["kwargs"] = {name: value for name, value in kwargs.items() if name != compat.CACHED}
        return self.run(begins_again=has_begun)

    def run(self, place: ResumesFit | None = None, *, begins_again: bool = False) -> Any:
        """Run it.

        Args:
            place: What knows how far `fit` is, where workers may change.
            begins_again: Whether this process has begun it before.
        """
        model, method, strategy = self.model, self.method, self.strategy
        bound = inspect.BoundArguments(self.bound.signature, OrderedDict(self.bound.arguments))
        session = Session(model, method, strategy, begins_again=begins_again)
        with strategy.mesh.progress.calling(method):
            if method in COMPARED and current_session() is None:  # not a validation of `fit`, compared with it
                check_same_program(model, method, strategy, bound.arguments)
            if "callbacks" in bound.signature.parameters:
                checkpoints = saving_within_epochs(bound.arguments["callbacks"])
                for_this_worker(bound.arguments, strategy)
                if method == "fit":
                    with_own(bound.arguments, session, checkpoints)
                if place is not None:
                    bound.arguments["callbacks"] = [*compat.flattened_callbacks(bound.arguments["callbacks"]), place]
            begin = [each for each in (place, self.resumer) if each is not None]
            with running_alone(model, method), _running(session, begin, bound.arguments.get("callbacks")):
                result = self.original(*bound.args[1:], **bound.kwargs)
            make_whole(model)  # not after an exception: the other workers may never come to this collective
        return result


@contextlib.contextmanager
def _running(session: Session, resumers: Sequence[ResumesFit], callbacks: Any) -> Iterator[None]:
    try:
        with running(session), patches.during(Extent.FIT, Extent.DERIVATIVES):
            if isinstance(callbacks, keras.callbacks.CallbackList):
                put_resumer_last(callbacks)
            for resumer in resumers:
                resumer.begin_session(session, compat.flattened_callbacks(callbacks))
            if session.method == "fit":
                session.watchers = watchers_among(callbacks)
            for watcher in session.watchers:
                watcher.begin_watching(session)
            yield
    finally:
        for watcher in session.watchers:
            watcher.end_watching()
        for resumer in resumers:
            resumer.end_session()
            compat.begin_at_epoch(session.model, None)
        for adapter in session.adapters:
            adapter.close()
