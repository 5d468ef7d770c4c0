"""Messages through a socket between a worker and its reader processes: a pickle, and the arrays beside it.

Batches come back through the socket itself. Shared memory was measured beside it: 19 MB of images took 9 ms through a
pair of sockets, and 50 ms through memory that is made anew for each batch (its pages are cleared and mapped twice). And
a socket cannot be left behind, whichever side is killed.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

CHECK_SECONDS: Final = 0.5
"""How often a waiting side checks that the other lives. A closed socket does not tell: a copy may be open elsewhere."""

_SIZE: Final = struct.Struct("<Q")
_JOINED: Final = 1 << 16
"""Messages up to this many bytes are sent as one piece."""


class Message(NamedTuple):
    """What goes through the socket.

    Args:
        pickled: A pickle of protocol 5.
        buffers: What stands outside it, in order: the contents of arrays.
    """

    pickled: bytes
    buffers: Sequence[Any]


def send(end: socket.socket, message: Message, check: Callable[[], None]) -> None:
    """Send a message.

    Args:
        end: This side of the pair, with a timeout.
        message: What to send.
        check: Called at each timeout; raises when nobody is on the other side.

    Raises:
        OSError: The other side is closed.
    """
    buffers = [buffer.raw() for buffer in message.buffers]
    sizes = [len(message.pickled), *(buffer.nbytes for buffer in buffers)]
    head = b"".join(_SIZE.pack(number) for number in (len(sizes), *sizes))
    pieces = [head, message.pickled, *buffers]
    if sum(sizes) <= _JOINED:
        pieces = [b"".join(pieces)]
    for piece in pieces:
        left = memoryview(piece)
        while left:
            try:
                left = left[end.send(left) :]
            except TimeoutError:
                check()


def receive(end: socket.socket, check: Callable[[], None]) -> Message:
    """Wait for a message; its buffers can be written to.

    Args:
        end: This side of the pair, with a timeout.
        check: Called at each timeout; raises when nobody is on the other side.

    Raises:
        EOFError: The other side is closed.
        OSError: Likewise.
    """
    (count,) = _SIZE.unpack(_received(end, _SIZE.size, check))
    sizes = struct.unpack(f"<{count}Q", _received(end, _SIZE.size * count, check))
    pickled, *buffers = [_received(end, size, check) for size in sizes]
    return Message(bytes(pickled), buffers)


def _received(end: socket.socket, size: int, check: Callable[[], None]) -> memoryview:
    whole = np.empty(size, np.uint8).data  # not bytearray, which would write zeros first
    left = whole
    while left:
        try:
            received = end.recv_into(left)
        except TimeoutError:
            check()
            continue
        if not received:
            raise EOFError
        left = left[received:]
    return whole
