"""Messages between a worker and a reader process."""

from __future__ import annotations

import pickle
import socket
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from stratagem.data.processes.messages import Message, receive, send


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0.01)
        theirs.settimeout(0.01)
        yield ours, theirs


def nothing() -> None:
    """Find that the other side lives."""


@pytest.mark.parametrize("size", [3, 1_000_000])
def test_arrays_travel_beside_the_pickle(size: int, ends: tuple[socket.socket, socket.socket]) -> None:
    array, buffers = np.arange(size), []
    pickled = pickle.dumps(array, protocol=5, buffer_callback=buffers.append)
    assert len(pickled) < 500
    sending = threading.Thread(target=send, args=(ends[0], Message(pickled, buffers), nothing))
    sending.start()
    got = receive(ends[1], nothing)
    sending.join()
    found = pickle.loads(got.pickled, buffers=got.buffers)
    np.testing.assert_array_equal(found, array)
    found[0] = 7  # it can be written to


def test_who_waits_looks_whether_the_other_side_lives(ends: tuple[socket.socket, socket.socket]) -> None:
    looks = []

    def gone() -> None:
        looks.append(1)
        if len(looks) == 2:
            raise EOFError("gone")

    with pytest.raises(EOFError, match="gone"):
        receive(ends[1], gone)
    with pytest.raises(EOFError, match="gone"):
        send(ends[0], Message(bytes(1 << 24), []), lambda: (_ for _ in ()).throw(EOFError("gone")))


def test_a_closed_side_is_the_end(ends: tuple[socket.socket, socket.socket]) -> None:
    ends[0].close()
    with pytest.raises(EOFError):
        receive(ends[1], nothing)
