"""Connections of a worker to those of other hosts with the same share: what the memory of a host cannot reach.

Each sends its parcels to the others and combines what comes, in the order of the hosts, so all get the same bits. Of
two hosts each sends all that it has. Of more each combines a part of a large parcel and sends the result to the others:
what a host sends and receives then does not grow with their number.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stratagem.core.errors import PeerError
from stratagem.host_memory.lanes import fold
from stratagem.host_memory.plan import LARGE, Operation

SLICE_SECONDS: Final = 0.05
"""Seconds after which a worker that waits checks whether the exchange was cut."""

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
    """

    def __init__(self, own: int, connections: Sequence[socket.socket | None], names: Sequence[str]) -> None:
        self._own = own
        self._connections = list(connections)
        self._names = tuple(names)
        self._count = len(self._connections)
        self._turn = 0
        self.is_lost = False
        for connection in self._connections:
            if connection is not None:
                connection.setblocking(False)

    def close(self) -> None:
        """End the connections; who waits on them hears it."""
        for connection in self._connections:
            if connection is not None:
                connection.close()

    def combine(self, signature: int, parcels: Sequence[Parcel], wait: Callable[[float], object]) -> list[np.ndarray]:
        """Combine parcels with those of the others, who call it with parcels of the same kinds and sizes.

        Args:
            signature: The signature of the exchange, the same on all.
            parcels: Those of this worker.
            wait: Called after each wait, with its seconds. It raises an error where there is nothing to wait for.

        Returns:
            The bytes of each: combined; of what is gathered a block of each host; of what is scattered the own block.

        Raises:
            PeerError: One of them is gone, or makes another exchange.
        """
        shares = [self._shares(parcel) for parcel in parcels]
        blocks = [self._room(parcel, share[self._own]) for parcel, share in zip(parcels, shares, strict=True)]
        self._swap(
            signature,
            [[p.data[share[host]] for p, share in zip(parcels, shares, strict=True)] for host in range(self._count)],
            [[block[host] for block in blocks] for host in range(self._count)],
            wait,
        )
        combined = [self._combined(*each) for each in zip(parcels, shares, blocks, strict=True)]
        in_parts = [i for i, (parcel, share) in enumerate(zip(parcels, shares, strict=True)) if _is_cut(parcel, share)]
        if in_parts:
            whole = {i: np.empty(parcels[i].data.nbytes, np.uint8) for i in in_parts}
            for i in in_parts:
                whole[i][shares[i][self._own]] = combined[i]
            others = [[whole[i][shares[i][host]] for i in in_parts] for host in range(self._count)]
            self._swap(signature, [[combined[i] for i in in_parts]] * self._count, others, wait)
            combined = [whole.get(i, each) for i, each in enumerate(combined)]
        return combined

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

    def _room(self, parcel: Parcel, own: slice) -> np.ndarray:
        """Return room for what comes from each host, with the own part in its place."""
        room = np.empty((self._count, own.stop - own.start), np.uint8)
        room[self._own] = parcel.data[own]
        return room

    def _combined(self, parcel: Parcel, shares: Sequence[slice], blocks: np.ndarray) -> np.ndarray:
        if parcel.operation == "gather":
            return blocks.reshape(-1)
        if blocks.nbytes:
            total, *terms = blocks.view(parcel.dtype)
            fold(parcel.operation, total, terms)
        return blocks[0]

    def _swap(
        self,
        signature: int,
        outgoing: Sequence[Sequence[np.ndarray]],
        incoming: Sequence[Sequence[np.ndarray]],
        wait: Callable[[float], object],
    ) -> None:
        """Send arrays to the others, and receive as many from each, at once: none waits until another has read."""
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
                began = time.perf_counter()
                found = poll.poll(1000 * SLICE_SECONDS)
                wait(time.perf_counter() - began)
                for number, _ in found:
                    end = waiting[number]
                    end.move()
                    if end.events:
                        poll.modify(number, end.events)
                    else:
                        poll.unregister(number)
                        del waiting[number]
        except OSError as error:
            self.is_lost = True
            gone = ", ".join(end.name for end in waiting.values())
            raise PeerError(
                f"The connection of {self._names[self._own]} to {gone} broke in a step: {error.strerror or error}.",
                "The other worker has ended, or the network is down.",
                "Look at its output, and start the group again (`stratagem run --max-restarts` does).",
            ) from None


class _End:
    """One connection in one exchange: what is left to be sent and received on it."""

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
