"""Processes of a cluster as threads of one process: they meet at a store and barriers like those of JAX."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import jax

from stratagem.cluster.agreement import Peers
from stratagem.cluster.hello import Peer
from stratagem.cluster.spec import Task
from stratagem.core.errors import PeerError


class FakeService:
    """A store and barriers as JAX's coordination service has them."""

    def __init__(self, processes: int) -> None:
        self.store: dict[str, bytes] = {}
        self.processes = processes
        self._barriers: dict[str, threading.Barrier] = {}
        self._lock = threading.Lock()
        self._set = threading.Condition()

    def key_value_set_bytes(self, key: str, value: bytes, allow_overwrite: bool = False) -> None:
        assert allow_overwrite or key not in self.store
        with self._set:
            self.store[key] = value
            self._set.notify_all()

    def key_value_dir_get_bytes(self, key: str) -> list[tuple[str, bytes]]:
        return [(name, value) for name, value in sorted(self.store.items()) if name.startswith(key)]

    def blocking_key_value_get_bytes(self, key: str, timeout_in_ms: int) -> bytes:
        with self._set:
            if not self._set.wait_for(lambda: key in self.store, timeout_in_ms / 1000):
                raise jax.errors.JaxRuntimeError("DEADLINE_EXCEEDED: GetKeyValue() timed out.")
            return self.store[key]

    def key_value_delete(self, key: str) -> None:
        self.store.pop(key, None)

    def wait_at_barrier(self, barrier_id: str, timeout_in_ms: int) -> None:
        with self._lock:
            barrier = self._barriers.setdefault(barrier_id, threading.Barrier(self.processes))
        try:
            barrier.wait(timeout_in_ms / 1000)
        except threading.BrokenBarrierError:
            raise jax.errors.JaxRuntimeError("DEADLINE_EXCEEDED: Barrier timed out.") from None


class FakeWorld(FakeService):
    """A store in which some of all processes may meet; a world that can end."""

    def __init__(self, processes: int) -> None:
        super().__init__(processes)
        self.is_over = False
        self._met = threading.Condition()
        self._notes: dict[str, dict[int, bytes]] = {}

    def of(self, rank: int) -> FakeMember:
        return FakeMember(self, rank)

    def meet(self, rank: int, place: str, note: bytes, ranks: Sequence[int], seconds: float) -> dict[int, bytes]:
        with self._met:
            self._notes.setdefault(place, {})[rank] = note
            self._met.notify_all()
            self._met.wait_for(lambda: self.is_over or set(ranks) <= self._notes[place].keys(), seconds)
            if self.is_over:
                raise PeerError("World 1 has ended.")
            return {each: self._notes[place][each] for each in ranks}

    def end(self) -> None:
        with self._met:
            self.is_over = True
            self._met.notify_all()


class FakeMember:
    """The store as one process has it."""

    def __init__(self, world: FakeWorld, rank: int) -> None:
        self._world, self._rank = world, rank
        # Attributes, as from Python 3.12 on a class is asked whether it has the methods of a protocol, not an object.
        for name in dir(world):
            if name.startswith(("key_value", "blocking", "wait_at")):
                setattr(self, name, getattr(world, name))

    def meet(self, place: str, note: bytes, ranks: Sequence[int], timeout_in_ms: int) -> dict[int, bytes]:
        return self._world.meet(self._rank, place, note, ranks, timeout_in_ms / 1000)


def members_of_world(count: int) -> tuple[FakeWorld, list[Peers]]:
    world = FakeWorld(count)
    peers = [Peer(Task("worker", index), f"node{index}", 100 + index) for index in range(count)]
    return world, [Peers(world.of(index), peers, index, timeout_seconds=20) for index in range(count)]


def members(count: int) -> tuple[FakeService, list[Peers]]:
    service = FakeService(count)
    peers = [Peer(Task("worker", index), f"node{index}", 100 + index) for index in range(count)]
    return service, [Peers(service, peers, index, timeout_seconds=20) for index in range(count)]


def on_all(peers: list[Peers], call: Callable[[int, Peers], object]) -> list[object]:
    """Call in one thread for each process; errors come back as values."""

    def caught(index: int) -> object:
        try:
            return call(index, peers[index])
        except PeerError as error:
            return error

    with ThreadPoolExecutor(len(peers)) as pool:
        return list(pool.map(caught, range(len(peers))))
