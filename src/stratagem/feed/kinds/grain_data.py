"""Grain: `MapDataset` by number, `IterDataset` and `DataLoader` by the state of their iterators."""

from __future__ import annotations

import base64
import contextlib
import sys
from collections.abc import Sequence
from typing import Any

from stratagem.data.batches import State
from stratagem.feed.kinds.again import Peekable
from stratagem.feed.kinds.base import Input, Pass, telling_of_death
from stratagem.feed.kinds.by_number import NumberedInput
from stratagem.mesh.mesh import Tree

_THREADS = 2
"""Batches of a MapDataset that are read at once; Grain itself would hold 500 of them ready."""

_ALIKE = (
    "Do not shard (grain.sharding.NoSharding()), and give every shuffle and random_map a seed that is the same on "
    "all workers."
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
        with contextlib.closing(_begin_pass(self._dataset)) as another:  # resumed at the very end of a pass
            return another.peek()

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


class _GrainPass(Peekable):
    """A Grain iterator whose next batch can be looked at, and which tells where it stands.

    Args:
        iterator: Grain's. That of a DataLoader has states of bytes, and hides what can be closed.
    """

    def __init__(self, iterator: Any) -> None:
        super().__init__(telling_of_death(iterator, "Grain dataset"))
        self._iterator = iterator
        self._before: State = {}  # before what was looked at

    def has_next(self) -> bool:
        if not self._seen:
            self._before = self.get_state()
        return super().has_next()

    def get_state(self) -> State:
        if self._seen:
            return self._before
        state = self._iterator.get_state()
        return {"bytes": base64.b64encode(state).decode()} if isinstance(state, bytes) else {"json": state}

    def set_state(self, state: State) -> None:
        self._iterator.set_state(base64.b64decode(state["bytes"]) if "bytes" in state else state["json"])

    def close(self) -> None:
        """End the threads and processes of the iterator now: when it is only forgotten, shared memory may stay."""
        inner = self._iterator if hasattr(self._iterator, "close") else getattr(self._iterator, "_iterator", None)
        if inner is not None and hasattr(inner, "close"):
            inner.close()
