"""All processes, here threads, stop behind the same step."""

from __future__ import annotations

import itertools
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.unit.cluster.test_agreement import members

from stratagem.cluster.agreement import Peers
from stratagem.cluster.stopping import CommonStop
from stratagem.core.errors import PeerError

STEPS = 40
TRIALS = 100


def train(own: Peers | None, step: threading.Barrier, request_at: int | None, stop: CommonStop) -> int:
    """Do steps that every process must be in; return how many were done."""
    for done in range(STEPS):
        if done == request_at:
            stop.request("as the test wants")
        if not stop.may_begin():
            return done
        step.wait(20)  # a collective: waits for all
    return STEPS


def trial(count: int, requests: dict[int, int]) -> list[int]:
    """Return how many steps each process has done."""
    _, peers = members(count)
    stops = [CommonStop(own, name="stop") for own in peers]
    step = threading.Barrier(count)
    with ThreadPoolExecutor(count) as pool:
        done = list(pool.map(lambda i: train(peers[i], step, requests.get(i), stops[i]), range(count)))
        list(pool.map(lambda stop: stop.close(), stops))
    return done


@pytest.mark.parametrize("count", [2, 3])
def test_any_process_may_ask_at_any_step(count: int) -> None:
    moments = random.Random(count)
    for _ in range(TRIALS):
        asking = {moments.randrange(count): moments.randrange(STEPS) for _ in range(moments.choice([1, 2]))}
        done = trial(count, asking)
        assert len(set(done)) == 1, asking
        assert done[0] >= min(asking.values())


def test_nobody_asks() -> None:
    assert trial(2, {}) == [STEPS, STEPS]


def test_a_process_on_its_own() -> None:
    stop = CommonStop(None)
    assert stop.may_begin()
    stop.request("as the test wants")
    begun = 1
    while stop.may_begin():  # the thread that hears of it may take a moment
        begun += 1
    assert not stop.may_begin()
    stop.close()
    assert begun >= 1


def test_training_goes_on_for_the_time_of_grace() -> None:
    asked = threading.Event()

    def delay() -> float:
        asked.set()
        return 3600.0

    stop = CommonStop(None, delay)
    stop.request("as the test wants")
    assert asked.wait(20)
    assert all(stop.may_begin() for _ in range(1000))
    stop.close()


def test_a_process_that_does_not_answer_is_named() -> None:
    _, peers = members(2)
    stop = CommonStop(Peers(peers[0].client, peers[0].peers, 0, timeout_seconds=0.05))
    stop.request("as the test wants")
    with pytest.raises(PeerError, match=r"worker 1 .* did not report its step"):
        all(stop.may_begin() for _ in itertools.count())
    stop.close()
