"""Reading ahead in background threads: in order, bounded, and ended by close or by forgetting."""

from __future__ import annotations

import functools
import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from stratagem.core.clock import Deadline
from stratagem.core.errors import UsageError
from stratagem.core.log import logger
from stratagem.core.progress import progress

T = TypeVar("T")

_CHECK_SECONDS = 1.0
_CLOSE_SECONDS = 5.0

_here = threading.local()


def await_turn() -> None:
    """Wait until the items before the one that this thread reads are there; elsewhere return at once.

    What must happen in order, in a read that goes on beside others, calls this first: a function with a state, such as
    the seed of a Keras layer, would otherwise be in two threads at once, and its draws would come in any order.
    """
    turn = getattr(_here, "turn", None)
    if turn is not None:
        turn()


class Prefetcher(Generic[T]):
    """An iterator that daemon threads keep ahead of its reader.

    One thread goes through what is to be read, in order. With one way to read, it reads too; with several, each way
    has a thread of its own, and the results still come in order. An exception is raised, with its traceback, by the
    `next` that would have returned the item, and ends the iterator. The threads hold no reference to this object, so
    that they end when the iterator is closed or forgotten.

    Args:
        plans: What is to be read; only one thread touches it.
        depth: Items to hold ready, at least 1.
        reads: How to read a plan, once for each read that may go on at the same time.
        on_close: Called when the iterator is closed or forgotten, so that a read which waits for something ends.

    Example:
        >>> items = Prefetcher(iter(range(5)), depth=2, reads=[lambda plan: plan * 10] * 3)
        >>> list(items)
        [0, 10, 20, 30, 40]
    """

    def __init__(
        self,
        plans: Iterator[Any],
        depth: int,
        reads: Sequence[Callable[[Any], T]],
        on_close: Callable[[], None] | None = None,
    ) -> None:
        alone = len(reads) == 1
        self._channel: _Channel[T] = _Channel(depth if alone else depth + len(reads))
        read = reads[0]
        places = map((lambda plan: _Place(None, read(plan), filled=True)) if alone else _Place, plans)
        channel = self._channel
        self._threads = [_thread(_add_all, places, channel)]
        self._threads += [] if alone else [_thread(_read_planned, read, channel) for read in reads]
        self._finalizer = weakref.finalize(self, _close, channel, on_close)
        for thread in self._threads:
            thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        try:
            return self._channel.get(self._threads)
        except Exception:  # the end, or an error; not the user's Ctrl-C, after which the program may go on
            self._finalizer()
            raise

    def close(self) -> None:
        """Stop the threads. Waits for the items that they are reading, but not for long."""
        self._finalizer()
        deadline = Deadline(_CLOSE_SECONDS)
        for thread in self._threads:
            thread.join(deadline.remaining)
        if any(thread.is_alive() for thread in self._threads):
            logger.warning("The prefetch thread is still inside the input function. It ends when the function returns.")


def _close(channel: _Channel[Any], then: Callable[[], None] | None) -> None:
    channel.close()
    if then is not None:
        then()


def _thread(target: Callable[..., None], *args: Any) -> threading.Thread:
    # Daemon threads: one that is stuck in a function of the user must not keep the program from ending.
    return threading.Thread(target=target, args=args, name="stratagem-prefetch", daemon=True)


def _add_all(places: Iterator[_Place[T]], channel: _Channel[T]) -> None:
    try:
        for place in places:
            if not channel.add(place):
                return
        channel.end(StopIteration())
    except BaseException as error:
        channel.end(error)


def _read_planned(read: Callable[[Any], T], channel: _Channel[T]) -> None:
    while (place := channel.take()) is not None:
        _here.turn = functools.partial(channel.await_turn, place)
        try:
            place.item = read(place.plan)
        except BaseException as error:
            place.error = error
        channel.settle(place)


class _ClosedError(Exception):
    """Nobody wants the item any more."""


@dataclass(eq=False, slots=True)
class _Place(Generic[T]):
    """The place of an item in the order, which may be taken before the item is there."""

    plan: Any
    item: T | None = None
    error: BaseException | None = None
    filled: bool = False


class _Channel(Generic[T]):
    """A bounded queue whose places are taken in order and filled in any. It has an end; either side may close it."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._places: deque[_Place[T]] = deque()
        self._unread: deque[_Place[T]] = deque()
        self._ready = 0  # items that are there
        self._ended = False
        self._closed = False
        # The lock is re-entrant: garbage collection may call `close` in a thread that is inside another method.
        self._changed = threading.Condition(threading.RLock())

    def add(self, place: _Place[T]) -> bool:
        """Add a place, filled or to be filled, waiting for room; return False when the other side has closed."""
        with self._changed:
            # No deadline: the consumer may pause for as long as it likes, and `close` always wakes this thread.
            self._changed.wait_for(lambda: self._closed or len(self._places) < self._depth)
            if not self._closed:
                self._places.append(place)
                if place.filled:
                    self._ready += 1
                else:
                    self._unread.append(place)
                self._changed.notify_all()
            return not self._closed

    def take(self) -> _Place[T] | None:
        """Return the next place to fill, waiting for one; None when there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._ended or self._unread)
            return self._unread.popleft() if self._unread and not self._closed else None

    def await_turn(self, place: _Place[T]) -> None:
        """Wait until all places before this one are filled; an error when the other side closes meanwhile."""
        with self._changed:
            # No deadline: a function of the user may take as long as it likes, and `close` always wakes this thread.
            self._changed.wait_for(lambda: self._closed or all(earlier.filled for earlier in self._before(place)))
            if self._closed:
                raise _ClosedError

    def _before(self, place: _Place[T]) -> Iterator[_Place[T]]:
        return itertools.takewhile(lambda other: other is not place, self._places)

    def settle(self, place: _Place[T]) -> None:
        """Say that a place has its item, or an error at which the order ends."""
        with self._changed:
            place.plan, place.filled = None, True
            self._ready += place.error is None
            self._changed.notify_all()

    def get(self, threads: Sequence[threading.Thread]) -> T:
        """Return the next item, waiting for it as long as one of `threads` lives; StopIteration at the end."""
        with self._changed:
            progress.note_ready(self._ready)
            while not self._has_news():
                self._changed.wait(_CHECK_SECONDS)
                if not self._has_news() and not any(thread.is_alive() for thread in threads):
                    raise UsageError(
                        "The thread that reads ahead in the dataset does not exist in this process.",
                        "The next batch would never come. Threads do not survive os.fork().",
                        "Make the iterator in the process that uses it, or use prefetch=0.",
                    )
            if self._closed:
                raise StopIteration
            place = self._places.popleft()
            self._changed.notify_all()
            error = place.error
            if error is None:
                self._ready -= 1
                return place.item  # type: ignore[return-value]
            try:
                raise error
            finally:
                # The error's traceback holds this frame, and by it those that hold the last batch: no circle of them.
                del place, error

    def _has_news(self) -> bool:
        return self._closed or bool(self._places and self._places[0].filled)

    def end(self, error: BaseException) -> None:
        """Say that no place follows: `error` comes last."""
        with self._changed:
            self._ended = True
            self._places.append(_Place(None, error=error, filled=True))
            self._changed.notify_all()

    def close(self) -> None:
        """Drop what is there and let all sides go."""
        with self._changed:
            self._closed = True
            self._places.clear()
            self._unread.clear()
            self._changed.notify_all()
