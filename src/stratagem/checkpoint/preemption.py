"""Saving before the machine is taken away: all workers stop after the same step, save, and leave.

With a grace period they save twice, as in TensorFlow: at once, because the machine may go early, and at its end.
"""

from __future__ import annotations

import atexit
import contextlib
import enum
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import keras

from stratagem.checkpoint.checkpoint import Checkpoint
from stratagem.checkpoint.manager import CheckpointManager
from stratagem.cluster.bootstrap import current_peers
from stratagem.cluster.sigterm import Handler, give_sigterm_back, take_sigterm
from stratagem.cluster.stopping import CommonStop
from stratagem.core.clock import Clock, Deadline
from stratagem.core.errors import InputError, UnsupportedError, UsageError
from stratagem.core.exits import PREEMPTED
from stratagem.core.log import announce

_STEPS_OF_RESERVE: Final = 3
"""How many steps before the end of the grace period training stops, as in TensorFlow."""

_RUNS: Final = "total_run_calls"
"""Under which name a checkpoint holds the number of runs."""

_POLL_SECONDS: Final = 1.0
"""How often a `termination_watcher_fn` is asked, as in TensorFlow."""


@dataclass(frozen=True)
class TerminationConfig:
    """Options for detecting a preemption, and for the reaction to it (`tf.distribute.experimental.TerminationConfig`).

    Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/TerminationConfig

    Args:
        termination_watcher_fn: Function that a thread calls once a second; it returns whether this worker is about to
            be preempted. None means the signal SIGTERM.
        exit_fn: Called after saving; None means `sys.exit(42)`.
        grace_period: Seconds between the notice and the end of the machine. All workers save at once, train for most of
            this time, and save again. With 0 or None they save and stop at once.
        save_fn: Function that saves, with the arguments of `save_checkpoint_if_preempted`; None means the manager's
            `save`.

    Example:
        >>> TerminationConfig(grace_period=120.0).grace_period
        120.0
    """

    termination_watcher_fn: Callable[[], bool] | None = None
    exit_fn: Callable[[], object] | None = None
    grace_period: float | None = None
    save_fn: Callable[..., object] | None = None


class Due(enum.Enum):
    """Duty before the next step, by all workers behind the same one."""

    NOTHING = "nothing"
    SAVE = "save"
    """Save, and go on for the grace period."""
    SAVE_AND_LEAVE = "save and leave"


class PreemptionWatch:
    """Waits for a preemption, and lets all workers stop behind the same step. All make one at the same point.

    Args:
        config: What tells of it.
        step_seconds: Returns how long a step takes, where that is known.
        clock: The source of time, for tests.

    Raises:
        UnsupportedError: Workers may change: the others continue if one of them ends.
    """

    def __init__(
        self,
        config: TerminationConfig,
        step_seconds: Callable[[], float] = lambda: 0.0,
        clock: Clock | None = None,
    ) -> None:
        peers = current_peers()
        if peers is not None and peers.may_change:
            raise UnsupportedError(
                "A PreemptionCheckpointHandler was made under stratagem run --spares or --elastic.",
                "All workers would save and stop if one of them is told to end. There they continue without it, and "
                "save only if all are told to.",
                "Leave it out, and let the loop be that of an ElasticState: state.run(train, save=manager.save).",
            )
        self._clock = clock or Clock()
        self._grace = config.grace_period or 0.0
        self._step_seconds = step_seconds
        self._end: Deadline | None = None
        """When this worker's machine ends, once that is known."""
        self._first = CommonStop(peers) if self._grace > 0 else None
        self._last = CommonStop(peers, self._seconds_to_train)
        self._watcher = config.termination_watcher_fn
        self._closed = threading.Event()
        self._is_unanswered = False
        """Whether SIGTERM came and training has not stopped for it."""
        self._before: Any = None
        if self._watcher is None:
            self._before = _take_sigterm(self._on_sigterm)
        else:
            self._thread = threading.Thread(target=self._poll, name="stratagem-preemption", daemon=True)
            self._thread.start()

    def due(self) -> Due:
        """Return what is to be done before the next step; if anything, all workers stand here, behind the same one.

        Raises:
            PeerError: A worker did not tell how far it is.
        """
        if self._first is not None and not self._first.may_begin():
            self._first.close()
            self._first = None
            return Due.SAVE
        if self._last.may_begin():
            return Due.NOTHING
        self._is_unanswered = False
        return Due.SAVE_AND_LEAVE

    def may_begin_step(self) -> bool:
        """Whether the next step is to be done, where there is no grace period; if not, see `due`."""
        return self.due() is Due.NOTHING

    def train_on(self) -> None:
        """Train on for the grace period, once what is due is saved; a worker that was told sees to its end."""
        if self._end is not None:
            self._last.request(f"Saved; training goes on for {self._seconds_to_train():.0f} s")

    def close(self, *, hand_on: bool = False) -> None:
        """Watch no longer; SIGTERM does what it did before.

        Args:
            hand_on: Whether a SIGTERM that came behind the last step does so now; otherwise it is forgotten.
        """
        if self._closed.is_set():
            return
        self._closed.set()
        if self._watcher is None:
            give_sigterm_back(self._on_sigterm, self._before)
        else:
            self._thread.join(_POLL_SECONDS)
        for stop in filter(None, (self._first, self._last)):
            stop.close()
        if hand_on and self._is_unanswered:
            signal.raise_signal(signal.SIGTERM)

    def _on_sigterm(self, number: int, frame: object) -> None:
        self._is_unanswered = True
        give_sigterm_back(self._on_sigterm, self._before)  # a second one ends the process, as ever
        self._notice("SIGTERM")

    def _notice(self, what: str) -> None:
        if self._grace <= 0:
            self._last.request(f"{what}: all workers save after the same step, and end")
        elif self._first is not None:  # else the grace period of another worker has begun, and ends this one too
            self._end = Deadline(self._grace, self._clock)
            self._first.request(f"{what}: all workers save after the same step, and continue for the grace period")

    def _seconds_to_train(self) -> float:
        """Return for how long steps may still begin."""
        return 0.0 if self._end is None else self._end.remaining - _STEPS_OF_RESERVE * self._step_seconds()

    def _poll(self) -> None:
        assert self._watcher is not None, "there is something to ask"
        while not self._closed.is_set():
            if self._watcher():
                self._notice("A preemption was announced")
                return
            self._clock.wait(_POLL_SECONDS)


def _take_sigterm(handler: Handler) -> Any:
    if threading.current_thread() is not threading.main_thread():
        raise UsageError(
            "A preemption handler was made outside the main thread.",
            "In Python only the main thread can handle signals. SIGTERM would end the program before it has saved.",
            "Make it in the main thread, or give a TerminationConfig with a termination_watcher_fn.",
        )
    return take_sigterm(handler)


class PreemptionCheckpointHandler:
    """Saves a checkpoint before workers are preempted (`tf.distribute.experimental.PreemptionCheckpointHandler`).

    The constructor restores the newest checkpoint, so that a restarted program resumes: `total_run_calls` is the number
    of completed steps. When any worker is told to end, all workers stop after the same call of `run`, save, and exit
    with code 42, which means that the run can be resumed. With a grace period they save, continue to train, and save
    again. A second SIGTERM ends the process without saving.

    Source of the semantics:
    https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/PreemptionCheckpointHandler

    Args:
        cluster_resolver: Accepted as in TensorFlow; the strategy knows the cluster.
        checkpoint_or_checkpoint_manager: The checkpoint to save, or its manager.
        checkpoint_dir: The folder for a Checkpoint.
        termination_config: How to detect a preemption, and how to react.
        clock: The source of time, for tests.

    Raises:
        InputError: A Checkpoint was given without `checkpoint_dir`, or the argument is neither a Checkpoint nor a
            manager.

    Example:
        >>> import tempfile
        >>> from stratagem import keras
        >>> from stratagem.train import Checkpoint, PreemptionCheckpointHandler
        >>> total = keras.Variable(0.0, trainable=False)
        >>> handler = PreemptionCheckpointHandler(None, Checkpoint(total=total), tempfile.mkdtemp())
        >>> while handler.total_run_calls < 3:
        ...     _ = handler.run(total.assign_add, 2.0)
        >>> float(total)
        6.0
        >>> handler.close()
    """

    def __init__(
        self,
        cluster_resolver: Any,
        checkpoint_or_checkpoint_manager: Checkpoint | CheckpointManager,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        termination_config: TerminationConfig | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._config = termination_config or TerminationConfig()
        self._manager = _manager(checkpoint_or_checkpoint_manager, checkpoint_dir)
        self._clock = clock or Clock()
        self._seconds = 0.0
        self._timed = 0
        self._runs = keras.Variable(0, dtype="int32", trainable=False, name=_RUNS)
        setattr(self._manager.checkpoint, _RUNS, self._runs)  # a part of the checkpoint
        self._manager.restore_or_initialize()
        self._watch = PreemptionWatch(self._config, self._step_seconds, clock)
        # Before JAX's own, at which a waiting thread would find no service. A program that has come to its end needs no
        # SIGTERM to end.
        atexit.register(self._watch.close)

    def run(self, distributed_train_function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a training function; then save and exit, if all workers stop here.

        So you may take the arguments from an iterator that is saved too: `handler.run(step, next(iterator))`.

        Args:
            distributed_train_function: The function, usually one step. All workers must call `run` alike.
            *args: Its arguments.
            **kwargs: Its keyword arguments.

        Returns:
            The function's result.

        Raises:
            CheckpointError: The checkpoint cannot be written, here or on another worker.
            PeerError: A worker did not arrive.
        """
        begin = self._clock.now()
        result = distributed_train_function(*args, **kwargs)
        self._seconds, self._timed = self._seconds + self._clock.now() - begin, self._timed + 1
        self._runs.assign_add(1)
        self._save_if_due()
        return result

    @property
    def total_run_calls(self) -> int:
        """Number of calls of `run` and `save_checkpoint_if_preempted`, including those before a restart."""
        return int(self._runs)

    def save_checkpoint_if_preempted(self, *args: Any, **kwargs: Any) -> None:
        """Save and exit, if all workers stop here. Call it before each step that `run` does not make.

        It counts as a run (`total_run_calls`), as in TensorFlow. Unlike there, it exits.

        Args:
            *args: Arguments of `save_fn`, or of the manager's `save`.
            **kwargs: Keyword arguments of the same.
        """
        self._save_if_due(*args, **kwargs)
        self._runs.assign_add(1)

    @contextlib.contextmanager
    def watch_preemption_scope(self) -> Iterator[None]:
        """Save and exit at the end of the block, if a preemption was announced. For blocks without calls of `run`."""
        yield
        self._save_if_due()

    def close(self) -> None:
        """Stop watching. SIGTERM has its earlier effect again, also one that came too late."""
        atexit.unregister(self._watch.close)
        self._watch.close(hand_on=sys.exception() is None)  # an exception ends the program with more to say

    def _save_if_due(self, *args: Any, **kwargs: Any) -> None:
        due = self._watch.due()
        if due is Due.NOTHING:
            return
        save = self._config.save_fn or functools.partial(self._manager.save, check_interval=False)
        save(*args, **kwargs)
        if due is Due.SAVE:
            self._watch.train_on()
            return
        self.close()
        announce(f"Preempted: saved behind step {self.total_run_calls}" if self._timed else "Preempted: saved")
        leave(self._config.exit_fn)

    def _step_seconds(self) -> float:
        return self._seconds / max(1, self._timed)


def leave(exit_fn: Callable[[], object] | None = None) -> None:
    """End this process as one that was preempted and has saved."""
    if exit_fn is not None:
        exit_fn()
    else:
        sys.exit(PREEMPTED)


def _manager(given: Checkpoint | CheckpointManager, folder: str | os.PathLike[str] | None) -> CheckpointManager:
    if isinstance(given, CheckpointManager):
        return given
    if not isinstance(given, Checkpoint) or folder is None:
        raise InputError(
            f"PreemptionCheckpointHandler was given {type(given).__name__} and checkpoint_dir={folder!r}.",
            "The object to save, or the folder, is missing.",
            "Give it a CheckpointManager, or a Checkpoint and the folder to save to.",
        )
    return CheckpointManager(given, folder, max_to_keep=1)
