"""Reading ahead in a background thread."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from stratagem.core.clock import Deadline
from stratagem.core.errors import UsageError, explain
from stratagem.core.log import logger

T = TypeVar("T")

_CHECK_SECONDS = 1.0
_CLOSE_SECONDS = 5.0


class Prefetcher(Generic[T]):
    """An iterator that a daemon thread keeps `depth` items ahead.

    An exception of the thread is raised, with its traceback, by the `next` that would have returned the item. The
    thread holds no reference to this object, so that it ends when the iterator is closed or forgotten.

    Args:
        items: What to iterate; only the thread touches it.
        depth: Items to hold ready, at least 1.
    """

    def __init__(self, items: Iterator[T], depth: int) -> None:
        self._channel: _Channel[T] = _Channel(depth)
        self._thread = threading.Thread(
            target=_produce, args=(items, self._channel), name="stratagem-prefetch", daemon=True
        )
        self._finalizer = weakref.finalize(self, self._channel.close)
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self._channel.get(self._thread)

    def close(self) -> None:
        """Stop the thread. Waits for the item that it is reading, but not for long."""
        self._finalizer()
        deadline = Deadline(_CLOSE_SECONDS)
        self._thread.join(deadline.remaining)
        if self._thread.is_alive():
            logger.warning("The prefetch thread is still inside the input function; it ends when that returns.")


def _produce(items: Iterator[T], channel: _Channel[T]) -> None:
    try:
        for item in items:
            if not channel.put(item):
                return
        channel.end(None)
    except BaseException as error:
        channel.end(error)


class _Channel(Generic[T]):
    """A bounded queue with an end, which either side may close."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._items: deque[T] = deque()
        self._ended = False
        self._closed = False
        self._error: BaseException | None = None
        # The lock is re-entrant: garbage collection may call `close` in a thread that is inside `put` or `get`.
        self._changed = threading.Condition(threading.RLock())

    def put(self, item: T) -> bool:
        """Add an item, waiting for room; return False when the other side has closed."""
        with self._changed:
            # No deadline: the consumer may pause for as long as it likes, and `close` always wakes this thread.
            self._changed.wait_for(lambda: self._closed or len(self._items) < self._depth)
            if not self._closed:
                self._items.append(item)
                self._changed.notify_all()
            return not self._closed

    def get(self, producer: threading.Thread) -> T:
        """Return the next item, waiting for it as long as `producer` lives; StopIteration at the end."""
        with self._changed:
            while not (self._items or self._ended or self._closed):
                self._changed.wait(_CHECK_SECONDS)
                if not (self._items or self._ended or self._closed or producer.is_alive()):
                    raise UsageError(
                        explain(
                            "The thread that reads the dataset ahead is gone.",
                            "The next batch would never come. Threads do not survive os.fork().",
                            "Make the iterator in the process that uses it, or use prefetch=0.",
                        )
                    )
            if self._items and not self._closed:
                item = self._items.popleft()
                self._changed.notify_all()
                return item
            error, self._error = self._error, None
        if error is not None:
            raise error
        raise StopIteration

    def end(self, error: BaseException | None) -> None:
        """Say that no item follows, because of `error` if there is one."""
        with self._changed:
            self._ended = True
            self._error = error
            self._changed.notify_all()

    def close(self) -> None:
        """Drop what is there and let both sides go."""
        with self._changed:
            self._closed = True
            self._error = None
            self._items.clear()
            self._changed.notify_all()
