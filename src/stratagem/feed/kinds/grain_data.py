"""Grain: `MapDataset` by number, `IterDataset` and `DataLoader` by the state of their iterators."""

from __future__ import annotations

import base64
import itertools
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from stratagem.data.batches import State
from stratagem.feed.kinds.base import Input, Pass, no_batch, telling_of_death
from stratagem.feed.kinds.by_number import NumberedInput
from stratagem.mesh.mesh import Tree

_THREADS = 2
"""Batches of a MapDataset that are read at once; Grain itself would hold 500 of them ready."""

_ALIKE = (
    "Shard nothing (grain.sharding.NoSharding()), and seed every shuffle and random_map by a number that all "
    "workers share."
)


class GrainMapInput(NumberedInput):
    """A `grain.MapDataset` of batches, each read by its number.

    Args:
        dataset: The user's. Every element is there: none was left out by a filter.
    """

    alike = _ALIKE

    def __init__(self, dataset: Any) -> None:
        super().__init__(dataset)
        endless = len(dataset) == sys.maxsize  # how Grain writes repeat()
        self.num_batches = None if endless else len(dataset)

    def _at_once(self) -> tuple[int, int]:
        return _THREADS, _THREADS


class GrainIteratorInput(Input):
    """A `grain.IterDataset` or `grain.DataLoader` of batches. Its iterators know how to store where they stand.

    Args:
        dataset: The user's.
    """

    may_end = True
    alike = _ALIKE

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._recalled: State | None = None
        self._opened: _GrainPass | None = None
        self._reading: _GrainPass | None = None

    def begin(self, earlier: Sequence[int], first: int) -> Pass:
        self._reading, self._opened = self._open(), None
        return self._reading

    def sample(self, earlier: Sequence[int], first: int) -> Tree:
        self._opened = self._open()
        if self._opened.has_next():
            return self._opened.peek()
        another = _begin_pass(self._dataset)  # resumed at the very end of a pass
        try:
            if not another.has_next():
                raise no_batch()
            return another.peek()
        finally:
            another.close()

    def note(self, *, in_pass: bool) -> State:
        begun = self._reading if in_pass else self._opened
        if begun is not None:
            return {"iterator": begun.get_state()}
        return {} if self._recalled is None else {"iterator": self._recalled}

    def recall(self, note: State) -> None:
        self.close()
        self._recalled = note.get("iterator")

    def close(self) -> None:
        for opened in (self._opened, self._reading):
            if opened is not None:
                opened.close()
        self._opened = self._reading = None

    def _open(self) -> _GrainPass:
        if self._opened is None:
            self._opened = _begin_pass(self._dataset)
            if self._recalled is not None:
                self._opened.set_state(self._recalled)
                self._recalled = None
        return self._opened


def _begin_pass(dataset: Any) -> _GrainPass:
    # Before it starts processes Grain asks absl for its flags, which only programs made with absl.app have parsed.
    flags = sys.modules["absl.flags"].FLAGS
    if not flags.is_parsed():
        flags.mark_as_parsed()
    return _GrainPass(iter(dataset))


class _GrainPass:
    """A Grain iterator whose next batch can be looked at.

    Args:
        iterator: Grain's. That of a DataLoader has states of bytes, and hides what can be closed.
    """

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator
        self._batches = telling_of_death(iterator, "Grain dataset")
        self._seen: list[tuple[State, Tree]] = []

    def __iter__(self) -> Iterator[Tree]:
        return self

    def __next__(self) -> Tree:
        return self._seen.pop()[1] if self._seen else next(self._batches)

    def has_next(self) -> bool:
        """Whether there is a batch to peek at."""
        if not self._seen:
            state = self.get_state()
            self._seen.extend((state, batch) for batch in itertools.islice(self._batches, 1))
        return bool(self._seen)

    def peek(self) -> Tree:
        """Return the next batch, which stays the next."""
        return self._seen[0][1]

    def get_state(self) -> State:
        if self._seen:
            return self._seen[0][0]
        state = self._iterator.get_state()
        return {"bytes": base64.b64encode(state).decode()} if isinstance(state, bytes) else {"json": state}

    def set_state(self, state: State) -> None:
        self._iterator.set_state(base64.b64decode(state["bytes"]) if "bytes" in state else state["json"])

    def close(self) -> None:
        """End the threads and processes of the iterator now: when it is only forgotten, shared memory may stay."""
        inner = self._iterator if hasattr(self._iterator, "close") else getattr(self._iterator, "_iterator", None)
        if inner is not None and hasattr(inner, "close"):
            inner.close()
