"""A worker comes back on another address: it says so itself, and nobody can say it in its place."""

from __future__ import annotations

import contextlib

import pytest
from tests.clock import HandClock
from tests.unit.ps.servers import Cluster, keys_of, serve

import stratagem
from stratagem.cluster.spec import Task
from stratagem.coordinator import ClusterCoordinator, experimental_get_current_worker_index
from stratagem.core.errors import RefusedError
from stratagem.ps.server.addresses import KEPT_SECONDS, Board
from stratagem.ps.serving import Serving
from stratagem.transport.channel import Channel
from stratagem.transport.keys import Role, make_keys
from stratagem.transport.message import Message


def test_a_stale_life_does_not_replace_a_newer_one_while_that_says_where_it_is() -> None:
    clock = HandClock()
    board = Board(clock)
    board.announce(0, "new:1", life=20)
    board.announce(1, "other:1", life=5)
    board.announce(0, "old:1", life=10)
    assert board.addresses() == {0: "new:1", 1: "other:1"}
    clock.time += KEPT_SECONDS - 1.0
    board.announce(0, "new:2", life=20)
    clock.time += 1.0
    assert board.addresses() == {0: "new:2"}
    clock.time += KEPT_SECONDS
    board.announce(0, "moved:1", life=10)  # a machine whose clock is behind
    assert board.addresses() == {0: "moved:1"}


def test_a_worker_speaks_for_itself_only() -> None:
    keys = make_keys(workers=2)
    serving = Serving(Task("ps", 0), "127.0.0.1:0", keys=keys["ps"])
    where = {"worker": 1, "address": "stranger:1", "life": 1}
    channels = [Channel("ps 0", serving.address, keys=keys[holder]) for holder in ("worker 0", "worker 1", "chief")]
    try:
        worker, itself, chief = channels
        with pytest.raises(RefusedError, match="worker 0 said where worker 1 is"):
            worker.request(Message("here", where))
        with pytest.raises(RefusedError, match="A chief asked for 'here'"):
            chief.request(Message("here", where))
        with pytest.raises(RefusedError, match="A worker asked for 'hello'"):
            worker.request(Message("hello"))
        assert chief.request(Message("hello")).fields == {"workers": []}
        itself.request(Message("here", {**where, "address": "moved:1"}))
        assert chief.request(Message("hello")).fields == {"workers": [[1, "moved:1"]]}
    finally:
        for channel in channels:
            channel.close()
        serving.stop()


def test_a_server_does_not_take_itself_for_a_worker() -> None:
    """Else a chief would look for worker 0 at parameter server 0, as long as the worker is not there."""
    with contextlib.closing(Cluster()) as cluster, contextlib.ExitStack() as closing:
        chief = Channel("ps 0", cluster.addresses[0], keys=keys_of("chief"))
        closing.callback(chief.close)
        another = serve("ps", 1, servers=cluster.addresses)
        another.look_for_chief()
        another.stop()
        assert chief.request(Message("hello")).fields == {"workers": []}
        cluster.worker.look_for_chief()
        assert chief.request(Message("hello")).fields == {"workers": [[0, cluster.worker.address]]}


@pytest.mark.thorough
def test_the_chief_follows_a_worker_whose_address_is_taken() -> None:
    with contextlib.closing(Cluster()) as cluster:
        strategy = stratagem.ParameterServerStrategy(cluster.resolver)
        coordinator = ClusterCoordinator(strategy)
        assert coordinator.schedule(experimental_get_current_worker_index).fetch() == 0
        returned = serve("worker", 0, cluster.worker.address, cluster.addresses)
        assert returned.address != cluster.worker.address
        returned.look_for_chief()
        assert coordinator.schedule(lambda: 3).fetch() == 3
        assert strategy.workers.addresses[Role.WORKER, 0] == cluster.worker.address, "who is there is not replaced"
        cluster.worker.stop()
        assert coordinator.schedule(lambda: 4).fetch() == 4
        assert strategy.workers.addresses[Role.WORKER, 0] == returned.address
        strategy.close()
        returned.wait()  # it was told that it is over
        returned.stop()
