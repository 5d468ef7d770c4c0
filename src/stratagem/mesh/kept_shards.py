"""Shards that outlive their worker: each worker keeps a copy of another one's, as they are after a step.

A worker that dies takes its shards with it. So after each step the workers hand their shards round a ring, each to the
next one (`Hosts.ring`: of another host, where there are several), and then meet once more. Who has passed that meeting
drops the state of the step before. Hence all who are left hold some step together, whenever one dies: the last one
where somebody has passed, and the one before where nobody has. From the shards and copies of that step the variables
are put together again, one at a time, and divided among the workers of the next world.

The price: a worker keeps twice its shards, and each step sends all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import jax
import numpy as np

from stratagem.cluster.agreement import Peers
from stratagem.core.errors import PeerError
from stratagem.host_memory.memory import HostMemory
from stratagem.host_memory.plan import PlanPart
from stratagem.mesh.divided import is_divided, sharding_of
from stratagem.mesh.worker_counts import Layout

ROOM: Final = 4 << 20
"""Bytes that each worker hands on at once."""


class Shard(NamedTuple):
    """Shard of a value, on the worker that holds it.

    Args:
        place: Which value of a step it is.
        value: The array, of which this process has a part.
    """

    place: int
    value: jax.Array


class Kind(NamedTuple):
    """A variable in shards, as workers tell each other of it.

    Args:
        place: Which value of a step it is.
        axis: Along which it is divided among the workers.
        dtype: The name of its dtype.
        shape: That of all shards together.
    """

    place: int
    axis: int
    dtype: str
    shape: Sequence[int]

    @classmethod
    def of(cls, shard: Shard) -> Kind:
        """Return the kind of a shard."""
        axis = next(axis for axis, name in enumerate(sharding_of(shard.value).spec) if name is not None)
        return cls(shard.place, axis, shard.value.dtype.name, shard.value.shape)

    def block(self, rank: int, size: int) -> tuple[slice, ...]:
        """Return where the shard of a worker lies.

        Args:
            rank: The worker's.
            size: How many workers there are.
        """
        length = self.shape[self.axis] // size
        return (*[slice(None)] * self.axis, slice(rank * length, (rank + 1) * length))


class Held(NamedTuple):
    """Shards after a step: those of this worker, and copies of those of another.

    Args:
        steps: How many steps are done.
        world: In which world they were handed round.
        turn: For the how many-th time there.
        layout: Of which workers, and which of them this one was.
        other: The rank of the other.
        shards: This worker's.
        copies: The other's, in the same order.
    """

    steps: int
    world: int
    turn: int
    layout: Layout
    other: int
    shards: Sequence[Shard]
    copies: Sequence[np.ndarray]

    @property
    def name(self) -> tuple[int, int, int]:
        """By which workers know that they hold the same. The greatest is the newest."""
        return self.steps, self.world, self.turn

    def arrays(self) -> dict[int, list[np.ndarray]]:
        """Return the shards that are here, by the rank of their worker."""
        return {self.other: list(self.copies), self.layout.rank: [own_part(shard.value) for shard in self.shards]}


class _Told(NamedTuple):
    """Description of the shards that a worker holds, for the others."""

    name: Sequence[int]
    size: int
    rank: int
    other: int
    kinds: Sequence[Any]

    @classmethod
    def of(cls, held: Held) -> _Told:
        return cls(held.name, *held.layout, held.other, [Kind.of(shard) for shard in held.shards])


class Found(NamedTuple):
    """Shards of one step that workers hold together.

    Args:
        size: Among how many workers they are divided.
        kinds: What is divided.
        here: Those that this worker is to give, by rank.
    """

    size: int
    kinds: Sequence[Kind]
    here: dict[int, list[np.ndarray]]


class KeptShards:
    """Shards that this worker holds: its own, and copies of another worker's.

    Args:
        keeps_copies: Whether it keeps another's.
    """

    def __init__(self, keeps_copies: bool = True) -> None:
        self._keeps_copies = keeps_copies
        self._held: list[Held] = []
        """The newest last. It is the only one, unless some may not have come so far."""

    def is_of(self, world: int) -> bool:
        """Whether shards have been handed round in a world."""
        return bool(self._held) and self._held[-1].world == world

    def forget(self) -> None:
        """Keep nothing: every worker has the whole state."""
        self._held = []

    def hand_round(self, memory: HostMemory, steps: int, world: int, layout: Layout, shards: Sequence[Shard]) -> None:
        """Keep shards, and a copy of another worker's. All workers call it.

        Args:
            memory: Through which they exchange.
            steps: How many steps are done.
            world: The number of the world.
            layout: The workers, and which of them this one is.
            shards: This worker's.

        Raises:
            PeerError: A worker is gone. What was held before is held still.
        """
        turn = self._held[-1].turn + 1 if self.is_of(world) else 0
        if not self._keeps_copies:
            self._held = [Held(steps, world, turn, layout, layout.rank, shards, [])]
            return
        ring = memory.hosts.ring
        other = ring[ring.index(layout.rank) - 1]
        copies = _handed_round(memory, other, [own_part(shard.value) for shard in shards])
        self._held.append(Held(steps, world, turn, layout, other, shards, copies))
        _meet(memory)
        self._held = self._held[-1:]

    def find(self, peers: Peers, steps: int) -> Found | None:
        """Find out who gives which shards of a step. All workers call it.

        Args:
            peers: The workers.
            steps: How many steps are done.

        Returns:
            The shards; None where nobody keeps any.

        Raises:
            PeerError: The worker of some shards is gone, and so is the one that had a copy.
        """
        own = [held for held in self._held if held.steps == steps]
        said = peers.from_all("shards", [_Told.of(held) for held in own])
        told = [(who, _Told(*each)) for who, listed in enumerate(said) for each in listed]
        if not told:
            return None
        for name in sorted({tuple(each.name) for _, each in told}, reverse=True):
            found = [(who, each) for who, each in told if tuple(each.name) == name]
            givers = {each.other: who for who, each in found} | {each.rank: who for who, each in found}
            first = found[0][1]
            if len(givers) == first.size:
                here = next((each.arrays() for each in own if each.name == name), {})
                mine = {rank: here[rank] for rank, who in givers.items() if who == peers.own_index}
                return Found(first.size, [Kind(*kind) for kind in first.kinds], mine)
        raise lost_shards()

    def put_together(
        self, peers: Peers, memory: HostMemory, values: Sequence[jax.Array], use: Callable[[int, np.ndarray], None]
    ) -> None:
        """Put values in shards together, one at a time. All who meet call it.

        Args:
            peers: The workers.
            memory: Through which those exchange who meet.
            values: Arrays that are divided among workers, of whom some may be gone.
            use: Called with the number of each, and the whole.

        Raises:
            PeerError: A worker is gone; or some shards are lost.
        """
        here = [self._shards_of(value) for value in values]
        said = peers.from_all("shards that are read", [list(each) for each in here])
        for number, value in enumerate(values):
            kind, size = Kind.of(Shard(number, value)), value.sharding.num_devices
            givers = {rank: who for who in peers.present for rank in said[who][number]}
            if len(givers) < size:
                raise lost_shards()
            given = {rank: shard for rank, shard in here[number].items() if givers[rank] == peers.own_index}
            use(number, _whole_of(memory, kind, size, given))

    def _shards_of(self, value: jax.Array) -> dict[int, np.ndarray]:
        """Return the shards of a value that are here, by rank: the copy of another worker's only if it is as new."""
        copies = [
            (held.other, copy)
            for held in self._held
            for shard, copy in zip(held.shards, held.copies, strict=False)  # there may be no copies
            if shard.value is value
        ]
        devices = np.asarray(sharding_of(value).mesh.devices).tolist()
        rank = devices.index(value.addressable_shards[0].device)
        return {**dict(copies[:1]), rank: own_part(value)}


def wholes(memory: HostMemory, found: Found) -> Iterator[tuple[Kind, np.ndarray]]:
    """Yield variables in shards, put together one at a time. All workers take all of them.

    Args:
        memory: Through which they exchange.
        found: What each has.

    Raises:
        PeerError: A worker is gone.
    """
    for number, kind in enumerate(found.kinds):
        given = {rank: arrays[number] for rank, arrays in found.here.items()}
        yield kind, _whole_of(memory, kind, found.size, given)


def _whole_of(memory: HostMemory, kind: Kind, size: int, given: dict[int, np.ndarray]) -> np.ndarray:
    """Return a variable of which workers give the shards. All call it.

    Args:
        memory: Through which they exchange.
        kind: What it is.
        size: How many shards it has.
        given: Those that this worker gives, by rank. No other one gives them too.
    """
    whole = np.zeros(kind.shape, jax.numpy.dtype(kind.dtype))
    for rank, shard in given.items():
        whole[kind.block(rank, size)] = shard
    flat = whole.reshape(-1).view(np.uint8)  # others have zeros in its place, so a sum of bytes puts them together
    _run(memory, "shards of a variable", [PlanPart("sum", flat.dtype, flat.shape)], [flat], [flat])
    return whole


def lost_shards() -> PeerError:
    """Return the error where nobody is left with some shards."""
    return PeerError(
        "Workers were lost, and with them shards of the model or its optimizer.",
        "No worker has these shards. A copy of each lies on one other worker only, which is lost too; or on none, with "
        'ElasticOptions(shards="backup").',
        "Start the run again; stratagem run --max-restarts does, and BackupAndRestore resumes from its backup.",
    ).of_peer()


def shards_among(values: Sequence[Any]) -> list[Shard]:
    """Return what is divided among several workers, of some values.

    Args:
        values: Those of a step.
    """
    return [Shard(place, value) for place, value in enumerate(values) if is_divided(value)]


def own_part(value: jax.Array) -> np.ndarray:
    """Return what this process has of an array, where it lies."""
    return np.asarray(value.addressable_data(0))


def _handed_round(memory: HostMemory, other: int, shards: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return copies of the shards of another worker, in the order of the own ones."""
    copies = [np.empty_like(shard, order="C") for shard in shards]
    for pieces in _pieces([shard.nbytes for shard in shards]):
        sent = [_bytes_of(np.ascontiguousarray(shards[each]))[part] for each, part in pieces]
        came = [np.empty((memory.hosts.size, piece.nbytes), np.uint8) for piece in sent]
        _run(memory, "shards", [PlanPart("gather", piece.dtype, piece.shape) for piece in sent], sent, came)
        for (each, part), rows in zip(pieces, came, strict=True):
            _bytes_of(copies[each])[part] = rows[other]
    return copies


def _pieces(sizes: Sequence[int]) -> Iterator[list[tuple[int, slice]]]:
    """Yield what crosses at once: of which shard, and which of its bytes."""
    pieces: list[tuple[int, slice]] = []
    room = ROOM
    for number, size in enumerate(sizes):
        start = 0
        while start < size:
            length = min(size - start, room)
            pieces.append((number, slice(start, start + length)))
            start, room = start + length, room - length
            if not room:
                yield pieces
                pieces, room = [], ROOM
    if pieces:
        yield pieces


def _meet(memory: HostMemory) -> None:
    """Wait for all workers."""
    note = np.zeros(1, np.int32)
    _run(memory, "shards have been handed round", [PlanPart("sum", note.dtype, note.shape)], [note], [note])


def _run(
    memory: HostMemory,
    name: str,
    parts: Sequence[PlanPart],
    operands: Sequence[np.ndarray],
    results: Sequence[np.ndarray],
) -> None:
    plan = memory.plan(name, parts)
    memory.add(plan)
    memory.run(plan.signature, *([each.ctypes.data for each in arrays] for arrays in (operands, results)))


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)
