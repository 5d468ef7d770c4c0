"""Shards and copies that workers keep: workers are threads here, which meet in memory."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from tests.threads import on_threads
from tests.unit.host_memory.test_memory import Views, views

from stratagem.core.errors import PeerError
from stratagem.host_memory.memory import HostMemory
from stratagem.mesh import kept_shards
from stratagem.mesh.kept_shards import KeptShards, Kind, Shard, shards_among, wholes
from stratagem.mesh.mesh import ReplicaMesh, spec_of
from stratagem.mesh.worker_counts import Layout

__all__ = ["views"]

SHAPES = [((6, 3), 0), ((4, 12), 1), ((3000,), 0)]


def array(number: int, steps: int) -> np.ndarray:
    shape, _ = SHAPES[number]
    return np.arange(np.prod(shape), dtype="float32").reshape(shape) + 1000 * steps + number


def shards(rank: int, size: int, steps: int) -> list[Shard]:
    """Return what a worker has of all arrays behind a step, as JAX would say it of the processes of a cluster."""
    mesh = ReplicaMesh(jax.devices()[:size])
    found = []
    for number, (shape, axis) in enumerate(SHAPES):
        whole = array(number, steps)
        own = whole[Kind(number, axis, "float32", shape).block(rank, size)]
        value: Any = SimpleNamespace(
            shape=shape,
            dtype=whole.dtype,
            sharding=NamedSharding(mesh.mesh, spec_of(axis)),
            addressable_data=lambda _, own=own: own,
            addressable_shards=[SimpleNamespace(device=mesh.devices[rank])],
        )
        found.append(Shard(number, value))
    return found


class Meeting:
    """Workers of a world, as threads that tell each other values."""

    def __init__(self, own_index: int, told: dict[int, Any], barrier: threading.Barrier) -> None:
        self.own_index, self._told, self._barrier = own_index, told, barrier
        self.present = range(barrier.parties)

    def from_all(self, name: str, value: Any) -> list[Any]:
        self._told[self.own_index] = value
        self._barrier.wait(60.0)
        said = [self._told[each] for each in self.present]
        self._barrier.wait(60.0)
        return said


def meetings(size: int) -> list[Any]:
    told: dict[int, Any] = {}
    barrier = threading.Barrier(size)
    return [Meeting(rank, told, barrier) for rank in range(size)]


def together(work: list[Any]) -> list[Any]:
    """Run functions on threads; raise the error of one."""
    found = on_threads(work, PeerError)
    for each in found:
        if isinstance(each, PeerError):
            raise each
    return found


def stepped(kept: list[KeptShards], memories: list[HostMemory], steps: int, world: int = 1) -> None:
    size = len(memories)
    together(
        [
            lambda rank=rank: kept[rank].hand_round(
                memories[rank], steps, world, Layout(size, rank), shards(rank, size, steps)
            )
            for rank in range(size)
        ]
    )


def put_together(kept: list[KeptShards], memories: list[HostMemory], steps: int) -> list[list[np.ndarray] | None]:
    """Return the wholes that workers of another world find; None where nobody keeps any."""

    def own(rank: int, peers: Any) -> list[np.ndarray] | None:
        found = kept[rank].find(peers, steps)
        return None if found is None else [whole for _, whole in wholes(memories[rank], found)]

    peers = meetings(len(kept))
    return together([lambda rank=rank: own(rank, peers[rank]) for rank in range(len(kept))])


@pytest.mark.parametrize("size", [2, 3])
def test_the_shards_of_any_worker_are_found_without_it(views: Views, size: int) -> None:
    for dead in range(size):
        kept = [KeptShards() for _ in range(size)]
        memories = views(size)
        stepped(kept, memories, 1)
        stepped(kept, memories, 2)
        others = [each for rank, each in enumerate(kept) if rank != dead]
        for found in put_together([*others, KeptShards()], views(size), 2):  # the last is new
            assert found is not None
            for number, whole in enumerate(found):
                np.testing.assert_array_equal(whole, array(number, 2))


def test_large_shards_cross_in_pieces(views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_shards, "ROOM", 40)  # bytes: none divides evenly
    kept = [KeptShards() for _ in range(2)]
    stepped(kept, views(2), 1)
    (found,) = put_together(kept[1:], views(1), 1)
    assert found is not None
    for number, whole in enumerate(found):
        np.testing.assert_array_equal(whole, array(number, 1))


def test_a_step_that_some_have_not_come_to_is_taken_back(views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    """All hold the step before until all have met behind the next one; who has copies of both gives either."""
    kept = [KeptShards() for _ in range(3)]
    stepped(kept, views(3), 4)

    def cut(memory: HostMemory) -> None:
        raise PeerError("A worker is gone.")

    with monkeypatch.context() as patched:
        patched.setattr(kept_shards, "_meet", cut)
        with pytest.raises(PeerError):
            stepped(kept, views(3), 5)
    for steps in (4, 5):
        for found in put_together([kept[0], kept[2]], views(2), steps):
            assert found is not None
            np.testing.assert_array_equal(found[0], array(0, steps))


def test_two_neighbours_at_once_are_too_many(views: Views) -> None:
    kept = [KeptShards() for _ in range(3)]
    stepped(kept, views(3), 1)
    with pytest.raises(PeerError, match="Workers were lost, and with them shards"):
        put_together(kept[:1], views(1), 1)


def test_nothing_is_found_where_nobody_keeps_any(views: Views) -> None:
    kept = [KeptShards() for _ in range(2)]
    assert put_together(kept, views(2), 0) == [None, None]
    stepped(kept, views(2), 1)
    for each in kept:
        each.forget()
    assert put_together(kept, views(2), 1) == [None, None]


def test_without_copies_all_who_live_give_theirs(views: Views) -> None:
    kept = [KeptShards(keeps_copies=False) for _ in range(2)]
    stepped(kept, views(2), 1)
    for found in put_together([*kept, KeptShards(keeps_copies=False)], views(3), 1):
        assert found is not None
        np.testing.assert_array_equal(found[1], array(1, 1))
    with pytest.raises(PeerError, match='ElasticOptions\\(shards="backup"\\)'):
        put_together(kept[:1], views(1), 1)


def test_what_has_been_assigned_since_the_step_has_no_copy(views: Views) -> None:
    kept = [KeptShards() for _ in range(2)]
    values = [shards(rank, 2, 1) for rank in range(2)]
    memories = views(2)
    together([lambda r=r: kept[r].hand_round(memories[r], 1, 1, Layout(2, r), values[r]) for r in range(2)])
    used: list[np.ndarray] = []
    alone, memory = meetings(1)[0], views(1)[0]
    kept[0].put_together(alone, memory, [values[0][0].value], lambda number, whole: used.append(whole))
    np.testing.assert_array_equal(used[0], array(0, 1))
    with pytest.raises(PeerError):
        kept[0].put_together(alone, memory, [shards(0, 2, 1)[0].value], lambda number, whole: used.append(whole))


def test_what_is_divided_among_processes_is_a_shard() -> None:
    assert shards_among([np.zeros(3), jax.numpy.ones(2), None]) == []


def test_the_kind_of_a_shard_says_where_those_of_others_lie() -> None:
    kind = Kind.of(shards(1, 3, 0)[1])
    assert kind == (1, 1, "float32", (4, 12))
    assert kind.block(2, 3) == (slice(None), slice(8, 12))
