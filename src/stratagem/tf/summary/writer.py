"""Writers of event files, and which of them is meant: `with writer.as_default(): ...`.

On several workers only the chief writes; the others compute the same numbers.
Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/summary/create_file_writer
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Self

import jax
import keras
import numpy as np
from jax.core import Tracer

from stratagem.cluster.bootstrap import current_peers
from stratagem.core import optional
from stratagem.core.errors import UsageError, explain
from stratagem.program.tracing import current_tracing
from stratagem.replica.context import current_replica_context

_numbers = itertools.count()


class SummaryWriter:
    """Writes one event file (`tf.summary.SummaryWriter`). The file is made with the first record.

    Args:
        logdir: The folder of the file; None to write nothing.
        filename_suffix: The end of the name of the file.

    Example:
        >>> import stratagem.tf.summary as summary
        >>> with SummaryWriter(getfixture("tmp_path")).as_default():
        ...     summary.scalar("loss", 0.5, step=1)
        True
    """

    def __init__(self, logdir: str | os.PathLike[str] | None, filename_suffix: str = "") -> None:
        self._logdir = None if logdir is None else os.fspath(logdir)
        self._suffix = filename_suffix
        self._events: Any = None
        self._closed = False
        self.is_written_by_programs = False
        """Whether compiled functions write to it, which may be running."""

    @property
    def events(self) -> Any:
        """The `tensorboardX.SummaryWriter` of the events; None if nothing will be written.

        Raises:
            InputError: The package that writes event files is not installed.
            UsageError: The writer is closed.
        """
        if self._logdir is None or not _is_chief():
            return None
        if self._closed:
            raise UsageError(
                "A summary was written after its writer was closed.",
                "It would be lost.",
                "Close the writer after the last summary.",
            )
        if self._events is None:
            library = optional.load("tensorboardX", "summaries", f"An event file in {self._logdir!r}")
            suffix = f".{os.getpid()}.{next(_numbers)}{self._suffix}"  # its own names have only the second in them
            self._events = library.SummaryWriter(self._logdir, filename_suffix=suffix)
            weakref.finalize(self, self._events.close)  # also when the program ends
        return self._events

    @contextmanager
    def as_default(self, step: Any = None) -> Iterator[Self]:
        """Send summaries inside `with` to this writer.

        Args:
            step: The step of summaries inside that give none.
        """
        before = _state.writer, _state.step
        self.set_as_default(step)
        try:
            yield self
        finally:
            _state.writer, _state.step = before
            self.flush()

    def set_as_default(self, step: Any = None) -> None:
        """Send all later summaries to this writer.

        Args:
            step: The step of summaries that give none.
        """
        _state.writer = self
        if step is not None:
            _state.step = step

    def init(self) -> None:
        """Do nothing: the file is made with the first record."""

    def flush(self) -> None:
        """Pass the written records to the system."""
        self._catch_up()
        if self._events is not None:
            self._events.flush()

    def close(self) -> None:
        """Complete the file."""
        self._catch_up()
        if self._events is not None:
            self._events.close()
        self._events, self._closed = None, True

    def _catch_up(self) -> None:
        if self.is_written_by_programs and current_tracing() is None:
            jax.effects_barrier()


class _State(threading.local):
    writer: SummaryWriter | None = None
    step: Any = None
    condition: Any = True
    scope: str = ""


_state: Final = _State()


def create_file_writer(
    logdir: str | os.PathLike[str],
    max_queue: int | None = None,
    flush_millis: int | None = None,
    filename_suffix: str | None = None,
    name: str | None = None,
    experimental_trackable: bool = False,
) -> SummaryWriter:
    """Return a writer of an event file (`tf.summary.create_file_writer`).

    Args:
        logdir: The folder of the file.
        max_queue: Accepted as in TensorFlow.
        flush_millis: Accepted as in TensorFlow.
        filename_suffix: The end of the name of the file; None for ".v2".
        name: Accepted as in TensorFlow.
        experimental_trackable: Accepted as in TensorFlow.
    """
    return SummaryWriter(logdir, ".v2" if filename_suffix is None else filename_suffix)


def create_noop_writer() -> SummaryWriter:
    """Return a writer that writes nothing (`tf.summary.create_noop_writer`)."""
    return SummaryWriter(None)


def should_record_summaries() -> bool:
    """Return whether a summary would be written now (`tf.summary.should_record_summaries`).

    Example:
        >>> should_record_summaries()
        False
    """
    condition = _state.condition
    return _state.writer is not None and bool(condition() if callable(condition) else condition)


@contextmanager
def record_if(condition: bool | Callable[[], Any]) -> Iterator[None]:
    """Write summaries inside `with` only if a condition holds (`tf.summary.record_if`).

    Args:
        condition: A boolean, or a function that returns one.
    """
    before = _state.condition
    _state.condition = condition
    try:
        yield
    finally:
        _state.condition = before


def flush(writer: SummaryWriter | None = None, name: str | None = None) -> None:
    """Pass the records of a writer, or of the current one, to the system (`tf.summary.flush`)."""
    chosen = writer or _state.writer
    if chosen is not None:
        chosen.flush()


def set_step(step: Any) -> None:
    """Set the step of summaries that give none (`tf.summary.experimental.set_step`).

    Args:
        step: A number, or a variable that is read when a summary is written; None for no step.
    """
    _state.step = step


def get_step() -> Any:
    """Return the step of summaries that give none (`tf.summary.experimental.get_step`)."""
    return _state.step


@contextmanager
def summary_scope(name: str, default_name: str = "summary", values: Any = None) -> Iterator[tuple[str, str]]:
    """Put a name before the names of summaries inside `with` (`tf.summary.experimental.summary_scope`).

    Returns:
        The tag, and the scope.
    """
    before = _state.scope
    tag = f"{before}{name or default_name}"
    _state.scope = f"{tag}/"
    try:
        yield tag, _state.scope
    finally:
        _state.scope = before


def record(write: Callable[..., None], name: str, step: Any, data: Any = None) -> bool:
    """Write a summary to the current writer. A compiled function writes it at each run, on the first replica.

    Args:
        write: Writes it, given what writes events, the tag, the step, and the data as a NumPy array.
        name: Its name, without scopes.
        step: Its step; None for the one that was set.
        data: A tensor, an array, or a variable.

    Returns:
        Whether there is a writer and summaries are written.

    Raises:
        UsageError: There is no step.
    """
    writer = _state.writer
    if not should_record_summaries() or writer is None:
        return False
    chosen = _state.step if step is None else step
    if chosen is None:
        raise _without_step(name)
    tag = f"{_state.scope}{name}"
    values = [part.value if isinstance(part, keras.Variable) else part for part in (chosen, data)]

    def write_now(at: Any, found: Any, replica: Any = 0) -> None:
        if writer.events is not None and int(replica) == 0:
            write(writer.events, tag, int(at), np.asarray(found))

    tracing = current_tracing()
    if tracing is None and not any(isinstance(value, Tracer) for value in values):
        write_now(*values)
    elif tracing is None or not tracing.again:  # traced again for a gradient, it would be written twice
        _ = writer.events  # what is wrong with the file is said here, where the program asks for it
        writer.is_written_by_programs = True
        replica = current_replica_context()
        jax.debug.callback(write_now, *values, 0 if replica is None else replica.replica_id_in_sync_group)
    return True


class StepError(UsageError, ValueError):
    """There is no step. A ValueError, as in TensorFlow."""


def _without_step(name: str) -> StepError:
    return StepError(
        explain(
            f"The summary {name!r} was written without a step, and none was set.",
            "TensorBoard could not show when it was written.",
            "Write step=epoch, or call tf.summary.experimental.set_step(step) first.",
        )
    )


def _is_chief() -> bool:
    peers = current_peers()
    return peers is None or peers.own == peers.peers[0]
