"""Connections of a worker to those of other hosts with the same share: what the memory of a host cannot reach.

Each sends its parcels to the others and combines what comes, in the order of the hosts, so all get the same bits. Of
two hosts each sends all that it has. Of more each combines a part of a large parcel and sends the result to the others:
what a host sends and receives then does not grow with their number.
"""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stratagem.core.errors import PeerError
from stratagem.host_memory.crossings import Crossings
from stratagem.host_memory.lanes import fold
from stratagem.host_memory.plan import LARGE, Operation

SLICE_SECONDS: Final = 0.05
"""Seconds after which a worker that waits checks whether the exchange was cut."""

_FOLDED: Final = 1 << 18
"""Bytes that are combined at once while others are on their way. They fit into the cache of a core."""

_HEAD: Final = struct.Struct("<qq")


@dataclass(frozen=True)
class Parcel:
    """Values of one kind for other hosts.

    Args:
        operation: How they combine.
        dtype: Their dtype.
        data: Their bytes; of what is scattered, a block for each host.
    """

    operation: Operation
    dtype: np.dtype
    data: np.ndarray


class Links:
    """Connections of a worker to others, each of another host.

    Args:
        own: The position of this worker among them.
        connections: A connection to each of the others, by position; None at the own one.
        names: The name of each in messages.

    Attributes:
        crossings: The thread that calls `combine`, so that the program may compute meanwhile.
        is_lost: Whether one of them is gone.
    """

    def __init__(self, own: int, connections: Sequence[socket.socket | None], names: Sequence[str]) -> None:
        self._own = own
        self._connections = list(connections)
        self._names = tuple(names)
        self._count = len(self._connections)
        self._turn = 0
        self._rooms: dict[int, list[_Room]] = {}
        self.crossings = Crossings()
        self.is_lost = False
        for connection in self._connections:
            if connection is not None:
                connection.setblocking(False)

    def close(self) -> None:
        """End the connections; who waits on them hears it."""
        self.crossings.close()
        for connection in self._connections:
            if connection is not None:
                connection.close()

    def combine(self, signature: int, parcels: Sequence[Parcel], check: Callable[[], object]) -> list[np.ndarray]:
        """Combine parcels with those of the others, who call it with parcels of the same kinds and sizes.

        Args:
            signature: The signature of the exchange, the same on all, and of the same kinds and sizes each time.
            parcels: Those of this worker.
            check: Called after each wait. It raises an error where there is nothing to wait for.

        Returns:
            The bytes of each: combined; of what is gathered a block of each host; of what is scattered the own block.
            They are there until the next exchange with this signature.

        Raises:
            PeerError: One of them is gone, or makes another exchange.
        """
        shares = [self._shares(parcel) for parcel in parcels]
        if signature not in self._rooms:
            self._rooms[signature] = [_Room(*each, self._own) for each in zip(parcels, shares, strict=True)]
        rooms = self._rooms[signature]
        for room, parcel, share in zip(rooms, parcels, shares, strict=True):
            room.take_own(parcel.data[share[self._own]])
        self._swap(
            signature,
            [[p.data[share[host]] for p, share in zip(parcels, shares, strict=True)] for host in range(self._count)],
            [[room.blocks[host] for room in rooms] for host in range(self._count)],
            check,
            lambda arrived: _fold(rooms, arrived),
        )
        _fold(rooms, sum(room.blocks[0].nbytes for room in rooms))
        in_parts = [i for i, room in enumerate(rooms) if room.whole is not None]
        if in_parts:
            combined = [rooms[i].total for i in in_parts]
            others = [[rooms[i].part_of(shares[i][host]) for i in in_parts] for host in range(self._count)]
            self._swap(signature, [combined] * self._count, others, check)
        return [room.total if room.whole is None else room.whole for room in rooms]

    def _shares(self, parcel: Parcel) -> list[slice]:
        """Return the bytes of a parcel that each of the others is to have first."""
        nbytes = parcel.data.nbytes
        if parcel.operation == "scatter":
            size = nbytes // self._count
        elif parcel.operation == "gather" or self._count == 2 or nbytes < LARGE:
            return [slice(0, nbytes)] * self._count
        else:
            items = nbytes // parcel.dtype.itemsize
            size = -(-items // self._count) * parcel.dtype.itemsize
        return [slice(min(i * size, nbytes), min((i + 1) * size, nbytes)) for i in range(self._count)]

    def _swap(
        self,
        signature: int,
        outgoing: Sequence[Sequence[np.ndarray]],
        incoming: Sequence[Sequence[np.ndarray]],
        check: Callable[[], object],
        arrive: Callable[[int], object] = lambda _: None,
    ) -> None:
        """Send arrays to the others, and receive as many from each, at once: none waits until another has read.

        Args:
            signature: The signature of the exchange.
            outgoing: What each of the others is to have.
            incoming: Where what comes from each of them is to lie.
            check: Called after each wait.
            arrive: Called now and then with the number of bytes that have come from each of them.
        """
        self._turn += 1
        head = _HEAD.pack(signature, self._turn)
        ends = [
            _End(connection, self._names[host], head, outgoing[host], incoming[host])
            for host, connection in enumerate(self._connections)
            if connection is not None
        ]
        poll = select.poll()
        waiting = {}
        for end in ends:
            waiting[end.connection.fileno()] = end
            poll.register(end.connection, end.events)
        try:
            while waiting:
                found = poll.poll(1000 * SLICE_SECONDS)
                check()
                for number, _ in found:
                    end = waiting[number]
                    end.move()
                    if end.events:
                        poll.modify(number, end.events)
                    else:
                        poll.unregister(number)
                        del waiting[number]
                arrive(min(end.arrived for end in ends))
        except OSError as error:
            self.is_lost = True
            gone = ", ".join(end.name for end in waiting.values())
            raise PeerError(
                f"The connection of {self._names[self._own]} to {gone} broke in a step: {error.strerror or error}.",
                "The other worker has ended, or the network is down.",
                "Look at its output, and start the group again (`stratagem run --max-restarts` does).",
            ) from None


class _Room:
    """Room for one parcel of every host, and what they combine to. It is kept: new memory costs a page fault for 4 KiB.

    Args:
        parcel: The parcel.
        shares: The bytes of it that each host is to have first.
        own: The position of this worker.

    Attributes:
        blocks: What comes from each host; the own block is read where it lies, unless it is gathered.
        whole: Combined bytes of all shares, where each worker combines one for all; None where each combines all.
        total: Combined bytes of the own share; of what is gathered all blocks.
    """

    def __init__(self, parcel: Parcel, shares: Sequence[slice], own: int) -> None:
        self._operation: Operation = parcel.operation
        self._dtype, self._own, self._done = parcel.dtype, own, 0
        share = shares[own]
        nbytes = share.stop - share.start
        self.whole = np.empty(parcel.data.nbytes, np.uint8) if _is_cut(parcel, shares) else None
        if parcel.operation == "gather":
            room = np.empty((len(shares), nbytes), np.uint8)
            self.blocks, self.total = list(room), room.reshape(-1)
            return
        room = np.empty((max(len(shares) - 1, 1), nbytes), np.uint8)
        self.blocks = [*room[:own], parcel.data[share], *room[own : len(shares) - 1]]
        # The first block of another host is one of the two that are combined first, and not needed after that.
        self.total = room[0] if self.whole is None else self.whole[share]

    def part_of(self, share: slice) -> np.ndarray:
        """Return where the combined bytes of a share are to lie."""
        assert self.whole is not None, "only a whole has parts"
        return self.whole[share]

    def take_own(self, block: np.ndarray) -> None:
        """Begin an exchange with what this worker has."""
        self._done = 0
        if self._operation == "gather":
            self.blocks[self._own][:] = block
        else:
            self.blocks[self._own] = block

    def fold_until(self, end: int) -> None:
        """Combine what has come.

        Args:
            end: Bytes that have come of each block.
        """
        end = end // self._dtype.itemsize * self._dtype.itemsize
        if self._operation == "gather" or end <= self._done:
            return
        if end - self._done < _FOLDED and end < self.total.nbytes:
            return
        first, *terms = (block[self._done : end].view(self._dtype) for block in self.blocks)
        fold(self._operation, self.total[self._done : end].view(self._dtype), terms, first)
        self._done = end


def _fold(rooms: Sequence[_Room], arrived: int) -> None:
    """Combine what has come of some parcels, which travel one after the other.

    Args:
        rooms: Theirs.
        arrived: Bytes that have come from each host.
    """
    for room in rooms:
        nbytes = room.blocks[0].nbytes
        room.fold_until(min(arrived, nbytes))
        arrived -= nbytes


class _End:
    """One connection in one exchange: what is left to be sent and received on it.

    Attributes:
        arrived: Bytes that have come, without the head.
    """

    def __init__(
        self,
        connection: socket.socket,
        name: str,
        head: bytes,
        outgoing: Sequence[np.ndarray],
        incoming: Sequence[np.ndarray],
    ) -> None:
        self.connection = connection
        self.name = name
        self._head = head
        self._came = bytearray(len(head))
        self._out = [memoryview(head), *_views(outgoing)]
        self._in = [memoryview(self._came), *_views(incoming)]
        self._is_checked = False
        self.arrived = -len(head)

    @property
    def events(self) -> int:
        """What to wait for."""
        return (select.POLLOUT if self._out else 0) | (select.POLLIN if self._in else 0)

    def move(self) -> None:
        """Send and receive as much as goes without waiting."""
        try:
            while self._out:
                self._out = _left(self._out, self.connection.sendmsg(self._out[:_MOST_VIEWS]))
        except BlockingIOError:
            pass
        try:
            while self._in:
                received = self.connection.recvmsg_into(self._in[:_MOST_VIEWS])[0]
                if not received:
                    raise ConnectionResetError("it was closed")
                self._in = _left(self._in, received)
                self.arrived += received
                self._check()
        except BlockingIOError:
            pass

    def _check(self) -> None:
        """Compare which exchange the other side makes, once it has said so."""
        if self._is_checked or (self._in and self._in[0].obj is self._came):
            return
        self._is_checked = True
        if bytes(self._came) == self._head:
            return
        (own, turn), (other, others_turn) = _HEAD.unpack(self._head), _HEAD.unpack(self._came)
        raise PeerError(
            f"{self.name} makes exchange {others_turn} ({other:x}) where this worker makes exchange {turn} ({own:x}).",
            "Gradients of one variable would be added to those of another.",
            "Run the same program with the same model and data on every worker.",
        )


_MOST_VIEWS: Final = 64
"""Pieces that are sent or received at once; systems take 1,024 at most."""


def _views(arrays: Sequence[np.ndarray]) -> list[memoryview]:
    return [array.data for array in arrays if array.nbytes]


def _left(views: list[memoryview], moved: int) -> list[memoryview]:
    """Return what is left of some pieces after so many bytes."""
    while views and moved >= views[0].nbytes:
        moved -= views[0].nbytes
        views = views[1:]
    return [views[0][moved:], *views[1:]] if moved else views


def _is_cut(parcel: Parcel, shares: Sequence[slice]) -> bool:
    """Whether each worker combines a part of a parcel for all."""
    return parcel.operation not in ("gather", "scatter") and shares[0].stop < parcel.data.nbytes
