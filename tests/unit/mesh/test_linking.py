"""Workers of different hosts connect to each other: threads here, all on the loopback address."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from tests.threads import on_threads

from stratagem.cluster.spec import split_address
from stratagem.core.clock import Deadline
from stratagem.host_memory.links import Links, Parcel
from stratagem.mesh.linking import Caller, LinkDoor, Reach, linked

SECRET = b"the secret of this cluster"
LOOPBACK = "127.0.0.1"


Doors = Callable[..., list[LinkDoor]]


@pytest.fixture
def doors() -> Iterator[Doors]:
    """Return the doors of a group of so many workers."""
    every: list[LinkDoor] = []

    def make(count: int, world: int = 3, secret: bytes = SECRET) -> list[LinkDoor]:
        made = [LinkDoor(Reach(LOOPBACK, secret), world, range(i + 1, count)) for i in range(count)]
        every.extend(made)
        return made

    yield make
    for door in every:
        door.close()


@pytest.mark.parametrize("count", [2, 3, 4])
def test_each_of_a_group_is_connected_to_each(doors: Doors, count: int) -> None:
    made = doors(count)
    addresses = [door.address for door in made]
    names = [f"worker {i}" for i in range(count)]

    met = threading.Barrier(count)

    def work(i: int) -> float:
        links = linked(made[i], Reach(LOOPBACK, SECRET), Caller(3, i), addresses, names, lambda: False)
        met.wait(60)
        value = np.array([2.0**i], np.float32)
        try:
            (found,) = links.combine(1, [Parcel("sum", value.dtype, value.view(np.uint8))], lambda: None)
        finally:
            links.close()
        return float(found.view(np.float32)[0])

    assert on_threads([lambda i=i: work(i) for i in range(count)]) == [2.0**count - 1] * count


def test_strangers_and_workers_of_another_world_are_not_let_in(doors: Doors) -> None:
    made = doors(2)
    stranger = socket.create_connection(split_address(made[0].address))
    stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
    old = doors(2, world=2)
    of_old = [made[0].address, old[1].address]

    def come_late() -> object:
        with pytest.raises(OSError, match="without a word"):
            linked(old[1], Reach(LOOPBACK, SECRET), Caller(2, 1), of_old, ["a", "b"], lambda: False)
        return linked(made[1], Reach(LOOPBACK, SECRET), Caller(3, 1), addresses, ["a", "b"], lambda: False)

    addresses = [door.address for door in made]
    found = on_threads(
        [
            lambda: linked(made[0], Reach(LOOPBACK, SECRET), Caller(3, 0), addresses, ["a", "b"], lambda: False),
            come_late,
        ]
    )
    for links in found:
        assert isinstance(links, Links), links
        links.close()
    stranger.close()


def test_who_does_not_know_the_secret_gets_no_link(doors: Doors) -> None:
    one, other = *doors(2)[:1], *doors(2, secret=b"another secret than theirs")[1:]
    is_over = threading.Event()

    def come() -> object:
        try:
            reach = Reach(LOOPBACK, b"another secret than theirs")
            return linked(other, reach, Caller(3, 1), [one.address, other.address], ["a", "b"], lambda: False)
        finally:
            is_over.set()

    addresses = [one.address, other.address]

    def wait() -> object:
        return linked(one, Reach(LOOPBACK, SECRET), Caller(3, 0), addresses, ["a", "b"], is_over.is_set)

    first, second = on_threads([wait, come], OSError, ValueError)
    assert isinstance(first, TimeoutError)
    assert "does not know the secret" in str(second)


def test_nobody_is_waited_for_in_a_world_that_is_over(doors: Doors) -> None:
    (door, _) = doors(2)
    with pytest.raises(TimeoutError, match="no connection from 1 of its group"):
        door.let_in(Deadline(60.0), lambda: True)
