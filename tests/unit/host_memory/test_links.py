"""Connections between hosts: workers are threads here, with a pair of sockets between each two of them."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Iterator

import ml_dtypes
import numpy as np
import pytest
from tests.threads import on_threads

from stratagem.core.errors import PeerError
from stratagem.host_memory.links import Links, Parcel
from stratagem.host_memory.plan import LARGE, Operation

SIGNATURE = 0x5EED

Made = Callable[[int], list[Links]]


@pytest.fixture
def made() -> Iterator[Made]:
    """Return links between so many workers."""
    every: list[Links] = []

    def make(count: int) -> list[Links]:
        ends: list[list[socket.socket | None]] = [[None] * count for _ in range(count)]
        for one, other in itertools.combinations(range(count), 2):
            ends[one][other], ends[other][one] = socket.socketpair()
        names = [f"worker {i}" for i in range(count)]
        every.extend(links := [Links(i, ends[i], names) for i in range(count)])
        return links

    yield make
    for links in every:
        links.close()


def never() -> None:
    """Wait on: what a wait calls."""


def together(links: list[Links], parcels: list[list[Parcel]]) -> list[list[np.ndarray]]:
    """Combine parcels on a thread for each worker."""
    work = [lambda i=i: links[i].combine(SIGNATURE, parcels[i], never) for i in range(len(links))]
    return on_threads(work)


def parcel(operation: Operation, array: np.ndarray) -> Parcel:
    return Parcel(operation, array.dtype, array.reshape(-1).view(np.uint8))


def total_of(operation: str, arrays: list[np.ndarray]) -> np.ndarray:
    """Return what arrays combine to, in their order."""
    total = arrays[0].copy()
    for array in arrays[1:]:
        total = {"sum": np.add, "scatter": np.add, "min": np.minimum, "max": np.maximum}[operation](total, array)
    return total


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("size", [1, 7, LARGE // 4 - 1, LARGE // 4 + 3, 300_001], ids=str)
def test_all_get_the_bits_of_the_values_combined_in_the_order_of_hosts(made: Made, count: int, size: int) -> None:
    """Large sums of more than two go in parts, small ones whole: which way, no bit shows."""
    rng = np.random.default_rng(size)
    kinds: list[tuple[Operation, type]] = [("sum", np.float32), ("max", np.int32), ("min", np.float64)]
    own = [[rng.normal(size=size, scale=9).astype(dtype) for _, dtype in kinds] for _ in range(count)]
    gathered = [rng.integers(0, 255, 11, np.uint8) for _ in range(count)]
    blocks = [rng.normal(size=(count, 9)).astype(np.float32) for _ in range(count)]
    sent = [
        [
            *(parcel(operation, array) for (operation, _), array in zip(kinds, arrays, strict=True)),
            parcel("gather", gathered[i]),
            parcel("scatter", blocks[i]),
        ]
        for i, arrays in enumerate(own)
    ]
    for _ in range(2):
        for i, (*combined, together_, block) in enumerate(together(made(count), sent)):
            for kind, (operation, _) in enumerate(kinds):
                wanted = total_of(operation, [arrays[kind] for arrays in own])
                assert combined[kind].tobytes() == wanted.tobytes(), operation
            assert together_.tobytes() == np.concatenate(gathered).tobytes()
            assert block.tobytes() == total_of("scatter", blocks)[i].tobytes()


def test_short_floats_and_nothing_cross_too(made: Made) -> None:
    arrays = [(np.arange(5) * (i + 1)).astype(ml_dtypes.bfloat16) for i in range(3)]
    nothing = np.zeros(0, np.float32)
    found = together(made(3), [[parcel("sum", array), parcel("sum", nothing)] for array in arrays])
    for summed, empty in found:
        assert summed.tobytes() == total_of("sum", arrays).tobytes()
        assert empty.nbytes == 0


def test_parts_of_a_large_sum_are_sent_once(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of four sends three quarters of the sum twice, whatever their number, and not the whole to each."""
    sent: list[int] = []
    swap = Links._swap

    def counted(self: Links, signature: int, outgoing: list, *others: object) -> None:
        sent.append(sum(a.nbytes for host, arrays in enumerate(outgoing) if host != self._own for a in arrays))
        swap(self, signature, outgoing, *others)

    monkeypatch.setattr(Links, "_swap", counted)
    array = np.ones(LARGE, np.float32)
    together(made(4), [[parcel("sum", array)]] * 4)
    assert sent == [array.nbytes * 3 // 4] * 8


def test_who_makes_another_exchange_is_named(made: Made) -> None:
    one, other = made(2)
    sent = [parcel("sum", np.ones(4, np.float32))]
    errors = on_threads([lambda: one.combine(0xA, sent, never), lambda: other.combine(0xB, sent, never)], PeerError)
    said = sorted(map(str, errors))
    assert said[0].startswith("worker 0 makes exchange 1 (a) where this worker makes exchange 1 (b).")
    assert said[1].startswith("worker 1 makes exchange 1 (b) where this worker makes exchange 1 (a).")
    assert not one.is_lost


def test_a_worker_that_is_gone_breaks_the_exchange(made: Made) -> None:
    one, other = made(2)
    other.close()
    with pytest.raises(PeerError, match="The connection of worker 0 to worker 1 broke in a step"):
        one.combine(SIGNATURE, [parcel("sum", np.ones(LARGE, np.float32))], never)
    assert one.is_lost


def test_a_wait_ends_where_there_is_nothing_to_wait_for(made: Made) -> None:
    one, _ = made(2)
    waited: list[int] = []

    def check() -> None:
        waited.append(len(waited))
        if len(waited) == 3:
            raise PeerError("The exchange was cut.", "Go on.")

    with pytest.raises(PeerError, match="The exchange was cut"):
        one.combine(SIGNATURE, [parcel("sum", np.ones(4, np.float32))], check)
    assert len(waited) == 3
