"""`tf.train.Coordinator`, which lets threads of a program end together."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final, TypeAlias

from stratagem.core.clock import Clock, Deadline
from stratagem.core.errors import InputError, OutOfRangeError
from stratagem.core.log import logger

Told: TypeAlias = "BaseException | tuple[type[BaseException], BaseException, TracebackType | None]"
"""An exception, or what `sys.exc_info()` returned while one was handled."""

_LOOK_SECONDS: Final = 0.05
"""How often `join` looks for threads that have ended without a request to stop."""


class Coordinator:
    """Lets threads end together, and passes the error of one to the thread that waits for all (`tf.train.Coordinator`).

    Threads call `should_stop()` repeatedly. When one of them calls `request_stop()` or fails within
    `stop_on_exception()`, `join` waits for the others, and raises the first reported error.
    Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/train/Coordinator

    Args:
        clean_stop_exception_types: Errors that end all threads without being raised; None for
            `tf.errors.OutOfRangeError`, the end of the data.

    Example:
        >>> coordinator = Coordinator()
        >>> def work():
        ...     with coordinator.stop_on_exception():
        ...         raise ValueError("no more")
        >>> thread = threading.Thread(target=work)
        >>> thread.start()
        >>> coordinator.join([thread])
        Traceback (most recent call last):
        ValueError: no more
        >>> coordinator.should_stop(), coordinator.joined
        (True, True)
    """

    def __init__(self, clean_stop_exception_types: Iterable[type[BaseException]] | None = None) -> None:
        clean = (OutOfRangeError,) if clean_stop_exception_types is None else clean_stop_exception_types
        self._clean = tuple(clean)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._joined = False
        self._registered: set[threading.Thread] = set()

    @property
    def joined(self) -> bool:
        """Whether `join` has ended since the last `clear_stop`."""
        return self._joined

    def request_stop(self, ex: Told | None = None) -> None:
        """Ask all threads to stop.

        Args:
            ex: The reason: an error, or `sys.exc_info()`. `join` raises the error of the first request. After `join`,
                the error is raised here.
        """
        error = _error_of(ex)
        with self._lock:
            if isinstance(error, self._clean):
                error = None
            if self._joined and error is not None:
                raise error
            if not self._stop.is_set():
                if error is not None:
                    logger.info("Error reported to Coordinator: %r", error)
                self._error = error
                self._stop.set()

    def clear_stop(self) -> None:
        """Forget the request to stop and its error."""
        with self._lock:
            self._joined, self._error = False, None
            self._stop.clear()

    def should_stop(self) -> bool:
        """Return whether a stop was asked for."""
        return self._stop.is_set()

    @contextlib.contextmanager
    def stop_on_exception(self) -> Iterator[None]:
        """Return a context that gives an error of its body to `request_stop`, and continues after the context."""
        try:
            yield
        except BaseException as error:
            self.request_stop(error)

    def wait_for_stop(self, timeout: float | None = None) -> bool:
        """Wait until a stop is asked for.

        Args:
            timeout: The longest time to wait, in seconds; None to wait forever.

        Returns:
            Whether a stop was asked for.
        """
        return self._stop.wait(timeout)

    def register_thread(self, thread: threading.Thread) -> None:
        """Make the next `join` wait for a thread too."""
        with self._lock:
            self._registered.add(thread)

    def join(
        self,
        threads: Iterable[threading.Thread] | None = None,
        stop_grace_period_secs: float = 120,
        ignore_live_threads: bool = False,
    ) -> None:
        """Wait until threads have ended.

        Args:
            threads: The threads. `join` waits for registered threads too.
            stop_grace_period_secs: The time for which they may run after a stop was asked for, in seconds.
            ignore_live_threads: Whether to ignore threads that run longer.

        Raises:
            BaseException: The error that was given to `request_stop`.
            RuntimeError: Some threads still run, and there is no such error.
        """
        with self._lock:
            waited_for = [*self._registered.union(threads or ())]
        while any(thread.is_alive() for thread in waited_for) and not self.wait_for_stop(_LOOK_SECONDS):
            pass
        grace = Deadline(stop_grace_period_secs, Clock())
        for thread in waited_for:
            if thread.is_alive():
                thread.join(grace.remaining)
        alive = sorted(thread.name for thread in waited_for if thread.is_alive())
        with self._lock:
            self._joined = True
            self._registered.clear()
        self.raise_requested_exception()
        if alive and not ignore_live_threads:
            raise RuntimeError(f"Coordinator stopped with threads still running: {' '.join(alive)}")

    def raise_requested_exception(self) -> None:
        """Raise the error that was given to `request_stop`, if one was."""
        if self._error is not None:
            raise self._error


def _error_of(told: Told | None) -> BaseException | None:
    error = told[1] if isinstance(told, tuple) and len(told) == 3 else told
    if error is None or isinstance(error, BaseException):
        return error
    raise InputError(
        f"Coordinator.request_stop was given {told!r}.",
        "Give it the error, or sys.exc_info() while it is handled.",
    )
