"""Whether the chief still trains, seen by who listens on its port."""

from __future__ import annotations

import socket

import pytest

from stratagem.cluster.chief_alive import GONE_SECONDS, ChiefWatch
from stratagem.cluster.spec import ClusterSpec
from stratagem.core.clock import Clock


class HandClock(Clock):
    """Moves when the test says so."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time


def address(listener: socket.socket) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}"


def test_the_chief_has_left_when_it_was_there_and_its_port_is_silent() -> None:
    clock = HandClock()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        watch = ChiefWatch(ClusterSpec({"chief": [address(listener)], "worker": ["127.0.0.1:1"]}), clock)
        assert not watch.has_left()
    clock.time += GONE_SECONDS - 1.0
    assert not watch.has_left()
    clock.time += 1.0
    assert watch.has_left()


@pytest.mark.parametrize("more", [{}, {"ps": ["127.0.0.1:2"]}])
def test_a_chief_that_was_never_there_has_not_left(more: dict[str, list[str]]) -> None:
    clock = HandClock()
    watch = ChiefWatch(ClusterSpec({"worker": ["127.0.0.1:1"], **more}), clock)
    assert not watch.has_left()
    clock.time += 10 * GONE_SECONDS
    assert not watch.has_left()


def test_with_parameter_servers_any_of_them_or_the_workers_will_do() -> None:
    clock = HandClock()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        cluster = ClusterSpec({"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"], "ps": [address(listener)]})
        watch = ChiefWatch(cluster, clock)
        clock.time += 10 * GONE_SECONDS
        assert not watch.has_left()
        clock.time += 10 * GONE_SECONDS
        assert not watch.has_left()
