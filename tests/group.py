"""Workers as threads of one process, as far as reading data goes: they meet where real workers exchange values.

A step of training needs real processes; who reads which rows does not, and a group of threads costs a millisecond.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import jax

from stratagem.mesh.mesh import ReplicaMesh
from stratagem.mesh.worker_counts import Layout

T = TypeVar("T")

_MEETING_SECONDS = 30.0


class Worker:
    """Worker `index` of a group: what a source of data asks of a strategy."""

    def __init__(self, group: Group, index: int, replicas_each: int) -> None:
        self.mesh = ReplicaMesh(jax.devices()[: group.size * replicas_each])
        self.mesh.local_replicas = tuple(range(index * replicas_each, (index + 1) * replicas_each))
        self.layout = Layout(group.size, index)
        self.worker_count, self.worker_index = self.layout
        self.is_chief = index == 0
        self._group = group

    def from_all(self, name: str, value: Any) -> list[Any]:
        return self._group.exchange(self.worker_index, name, value)

    def from_chief(self, name: str, value: Any) -> Any:
        return self.from_all(name, value)[0]


class Group:
    """Workers that meet.

    Args:
        size: How many.
        replicas_each: Replicas of each; there are four virtual devices.
    """

    def __init__(self, size: int, replicas_each: int = 1) -> None:
        self.size = size
        self._replicas_each = replicas_each
        self._told: list[Any] = [None] * size
        self._meeting = threading.Barrier(size)

    def exchange(self, index: int, name: str, value: Any) -> list[Any]:
        """Return what all workers told, each the same name; raise BrokenBarrierError when one does not come."""
        self._told[index] = (name, value)
        self._meeting.wait(_MEETING_SECONDS)
        told = list(self._told)
        self._meeting.wait(_MEETING_SECONDS)
        assert {other for other, _ in told} == {name}, f"workers exchange different things: {told}"
        return [value for _, value in told]

    def run(self, function: Callable[[Any], T]) -> list[T]:
        """Call `function(worker)` for all workers at once, and return what they returned."""

        def call(index: int) -> T:
            try:
                return function(Worker(self, index, self._replicas_each))
            except BaseException:
                self._meeting.abort()
                raise

        with ThreadPoolExecutor(self.size) as pool:
            return [future.result() for future in [pool.submit(call, index) for index in range(self.size)]]
