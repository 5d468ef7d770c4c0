"""`fit` that begins in the middle: what it asks of the callback that knows where (`stratagem.callbacks`)."""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

import jax

from stratagem.cluster.bootstrap import current_peers
from stratagem.compression.residuals import is_in_parts
from stratagem.core.errors import UsageError
from stratagem.core.log import announce_once
from stratagem.feed.adapter import FitPosition, ShareAdapter
from stratagem.feed.batch import GlobalBatch
from stratagem.feed.input_wait import InputWait
from stratagem.fit import compat
from stratagem.fit.named_variables import METRICS, named_variables, shown_names
from stratagem.fit.step_kinds import KIND_OF, StepKind
from stratagem.fit.steps import Step
from stratagem.mesh.given import Given
from stratagem.mesh.mesh import Tree
from stratagem.mesh.placing import make_whole
from stratagem.mesh.same_values import check_same_values
from stratagem.replica.context import StrategyLike

MANY_STEPS: Final = 10_000
"""After so many steps of an epoch a person should hear that its end is not known."""


@dataclass
class Session:
    """A call of `fit` or one of its siblings that is running.

    Args:
        model: Whose.
        method: Which.
        strategy: The model's.
        adapters: Its inputs so far, that of training first, that of validation second.
        resumed_at: Where its inputs begin, for those that do not begin at their beginning.
        skipped: Batches of the first epoch that were trained on before.
        is_read: Whether a callback on this worker may read the variables of the model after an epoch.
        is_read_anywhere: Whether one on any worker may; None before all were asked.
        begins_again: Whether it was begun before in this process, with another number of workers.
        continues: Whether it begins where other workers are, or this one was, and not at its beginning or a backup.
        beside_variables: Returns what a worker needs, beside the model's variables, that takes the place of another in
            the step which is about to begin; None where workers do not change.
        meet_new: Hears that a new worker takes part from the step on which is about to begin.
        steps: Steps of training that are done, those before it was interrupted too.
        watchers: Callbacks that see each step from inside.
        wait: How long its training loop stood still for input.
    """

    model: Any
    method: str
    strategy: StrategyLike
    adapters: list[ShareAdapter] = field(default_factory=list)
    resumed_at: Sequence[FitPosition] = ()
    skipped: int = 0
    is_read: bool = False
    is_read_anywhere: bool | None = None
    begins_again: bool = False
    continues: bool = False
    beside_variables: Callable[[], Given] | None = None
    meet_new: Callable[[], None] | None = None
    steps: int = 0
    watchers: Sequence[WatchesSteps] = ()
    wait: InputWait = field(init=False)

    def __post_init__(self) -> None:
        self.wait = InputWait(self.strategy.mesh.progress)

    @property
    def kind(self) -> StepKind:
        """Which steps it runs."""
        return KIND_OF[self.method]

    def refuse_alone(self, harm: str) -> None:
        """Refuse a model that each worker of a cluster trains for itself. The only one left of others is no such case.

        Args:
            harm: What would go wrong.

        Raises:
            UsageError: It is such a model.
        """
        strategy = self.strategy
        if strategy.worker_count == 1 and strategy.mesh.world is None and current_peers() is not None:
            raise UsageError(
                f"Model {self.model.name!r} trains on this worker alone, and the cluster has several.",
                harm,
                "Make and compile the model inside the scope of a MultiWorkerMirroredStrategy.",
            )

    def add(self, adapter: ShareAdapter) -> None:
        """Take another input, and let it begin where it was."""
        index = len(self.adapters)
        self.adapters.append(adapter)
        if index < len(self.resumed_at):
            adapter.resume(self.resumed_at[index], self.skipped if index == 0 else None)

    def renew_validation(self) -> None:
        """Let the next validation make its input anew, where it is."""
        self.resumed_at = self.places(epoch_ended=False)
        for adapter in self.adapters[1:]:
            adapter.close()
        del self.adapters[1:]
        compat.forget_validation(self.model)

    def gather_state(self) -> dict[str, Any]:
        """Bring the state of the model that trains into its variables. All workers call it at the same point.

        Returns:
            The variables by name.
        """
        for watcher in self.watchers:
            watcher.look()
        self.model.jax_state_sync()
        make_whole(self.model)
        self.check_weights("when a backup is made")
        return dict(named_variables(self.model))

    def check_weights(self, when: str) -> None:
        """Make sure that all replicas hold the same weights. All workers call it at the same point.

        Args:
            when: The point, for messages.

        Raises:
            PeerError: They do not.
        """
        mesh = self.strategy.mesh
        if mesh.size > 1:
            named = {name: each for name, each in named_variables(self.model) if METRICS not in name}
            values = {name: each.value for name, each in named.items() if not is_in_parts(each)}
            peers = current_peers() if mesh.multi_process else None
            check_same_values(when, values, peers, lambda: shown_names(self.model))

    def places(self, *, epoch_ended: bool) -> list[FitPosition]:
        """Return where reading goes on in each input.

        Args:
            epoch_ended: Whether training stands between two epochs.
        """
        # Each validation begins a new pass, also where it does not read all of it.
        return [
            adapter.place(epoch_ended=epoch_ended) if index == 0 else FitPosition(adapter.source.position(), 0)
            for index, adapter in enumerate(self.adapters)
        ]


_current: contextvars.ContextVar[Session | None] = contextvars.ContextVar("stratagem_session", default=None)


def current_session() -> Session | None:
    """Return the call of `fit` or one of its siblings that is running, or None."""
    return _current.get()


@contextlib.contextmanager
def running(session: Session) -> Iterator[None]:
    """Make a session the current one."""
    token = _current.set(session)
    try:
        yield
    finally:
        _current.reset(token)


@runtime_checkable
class ResumesFit(Protocol):
    """A callback that may let `fit` begin elsewhere than at its beginning."""

    def begin_session(self, session: Session, callbacks: Sequence[Any]) -> None:
        """Prepare a `fit` that is about to begin; may set `resumed_at` and `skipped`. All workers call it."""
        ...

    def end_session(self) -> None:
        """Leave nothing behind, however `fit` ended."""
        ...

    def set_others(self, callbacks: Sequence[Any]) -> None:
        """Hear which other callbacks there are, those that Keras adds among them."""
        ...


@runtime_checkable
class WatchesSteps(Protocol):
    """A callback that sees each step of training from inside. All workers have it."""

    def begin_watching(self, session: Session) -> None:
        """Prepare for a `fit` that is about to begin."""
        ...

    def before_step(self, step: Step, values: list[jax.Array], batch: GlobalBatch) -> None:
        """See what a step is about to be given.

        Args:
            step: The step.
            values: Those of its variables, where the strategy keeps them. The step reuses their memory.
            batch: The batch of the step, or of several that run as one.
        """
        ...

    def after_step(self, step: Step, values: list[jax.Array], logs: Tree) -> None:
        """See what a step has returned. An exception ends `fit`, and the model keeps what `values` holds then.

        Args:
            step: The step.
            values: The new values of its variables; may be changed in place.
            logs: Its logs.
        """
        ...

    def meet_new(self, steps: int) -> None:
        """Forget what a worker that has come later does not know.

        Args:
            steps: The number of steps that are done, in the world into which it came.
        """
        ...

    def look(self) -> None:
        """Make sure that the state is sound, before somebody saves it. All workers call it at the same point."""
        ...

    def end_watching(self) -> None:
        """Leave nothing behind, however `fit` ended."""
        ...


def watchers_among(callbacks: Any) -> list[WatchesSteps]:
    """Return those callbacks that see each step of training from inside.

    Args:
        callbacks: What `fit` was given.
    """
    return [each for each in compat.flattened_callbacks(callbacks) if isinstance(each, WatchesSteps)]


def resumer_among(callbacks: Any) -> ResumesFit | None:
    """Return the callback that resumes `fit`, if there is one.

    Raises:
        UsageError: There are two.
    """
    found = [c for c in compat.flattened_callbacks(callbacks) if isinstance(c, ResumesFit)]
    if len(found) > 1:
        raise UsageError(
            f"`fit` was given {len(found)} BackupAndRestore callbacks.",
            "Each would start training at the position of its own backup.",
            "Give it one.",
        )
    return found[0] if found else None


def resumer_last(original: Callable) -> Callable:
    """Wrap `CallbackList.__init__`: see `put_resumer_last`."""

    @functools.wraps(original)
    def init(callback_list: Any, *args: Any, **kwargs: Any) -> None:
        original(callback_list, *args, **kwargs)
        put_resumer_last(callback_list)

    return init


def put_resumer_last(callback_list: Any) -> None:
    """Put what resumes `fit` behind the other callbacks, as it saves what they have done.

    Where workers may change there are two: one that keeps backups, and one that knows the state of all the others.
    """
    resumers = [c for c in callback_list.callbacks if isinstance(c, ResumesFit)]
    before = [c for c in callback_list.callbacks if not isinstance(c, ResumesFit)]
    for resumer in resumers:
        resumer.set_others(list(before))
        before.append(resumer)
    if resumers:
        callback_list.callbacks = before


def skipping_steps(original: Callable) -> Callable:
    """Wrap `EpochIterator._enumerate_iterator`: the first epoch begins behind the steps that were done before.

    No epoch has more steps than `fit` was told, or than there are batches: `_to_its_end`.
    """

    def enumerate_iterator(epoch_iterator: Any) -> Iterator[tuple[int, int, Any]]:
        adapter, steps = epoch_iterator.data_adapter, original(epoch_iterator)
        if not isinstance(adapter, ShareAdapter):
            return steps
        if adapter.num_batches is not None:  # Keras asked when `fit` began; workers may have come or gone since
            compat.set_length(epoch_iterator, adapter.num_batches)
        count = epoch_iterator.steps_per_epoch or adapter.num_batches
        steps = _counted_aloud(steps) if count is None else _to_its_end(epoch_iterator, steps, count)
        skipped, earlier = adapter.take_skipped()
        return _from_step(epoch_iterator, steps, skipped, earlier) if skipped or earlier else steps

    return enumerate_iterator


def _counted_aloud(steps: Iterator[tuple[int, int, Any]]) -> Iterator[tuple[int, int, Any]]:
    for step in steps:
        if step[0] >= MANY_STEPS:
            announce_once(
                f"An epoch has had {MANY_STEPS} steps, and its input does not say where it ends. "
                "An input without an end needs fit(..., steps_per_epoch=...)."
            )
        yield step


def _to_its_end(epoch_iterator: Any, steps: Iterator, count: int) -> Iterator[tuple[int, int, Any]]:
    """Let the last execution of an epoch end with its last step, as in `tf.keras`.

    Keras takes `steps_per_execution` more steps at a time until there are enough: with 20 at a time 60 of 50, which
    its callbacks are told also where the data has no more than 50.
    """
    for begin, end, iterator in steps:
        if end >= count:  # then it is the last
            compat.count_steps(epoch_iterator, count - 1 - end)
            end = count - 1
        yield begin, end, iterator


def _from_step(epoch_iterator: Any, steps: Iterator, skipped: int, earlier: int) -> Iterator[tuple[int, int, Any]]:
    # Keras numbers steps and counts them here, and takes their batches elsewhere: so nothing is lost.
    for begin, end, iterator in steps:
        if begin == 0:
            compat.count_steps(epoch_iterator, earlier)
        if begin >= skipped:
            yield begin, end, iterator
