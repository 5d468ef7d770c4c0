"""Steps on more workers: numbers worked out by hand."""

from __future__ import annotations

import random
import statistics

import pytest

from stratagem.plan.advice import advise, most_useful
from stratagem.plan.costs import Cost, Hosts, Link
from stratagem.plan.growth import Workload, exchange, slowest, strong, usual_way, weak

NETWORK = Link(latency=0.001, seconds_per_byte=1e-9, combining=1e-9)
HOSTS = Hosts(network=NETWORK, memory=Link(0.0001, combining=5e-10), loopback=Link(0.0002, combining=1e-9), per_host=2)
ONE_EACH = Hosts(network=NETWORK, memory=Link(), loopback=Link())
WORK = Workload(gradient_bytes=40e6, step_seconds=0.2, fixed_seconds=0.02, overlap=0.0)


def test_one_worker_is_the_reference() -> None:
    for step in (weak(WORK, 1, HOSTS), strong(WORK, 1, HOSTS)):
        assert (step.seconds, step.efficiency, step.bound) == (0.2, 1.0, "compute-bound")


def test_weak_growth() -> None:
    # 4 workers, one on each host: 6 messages of 1 ms; 3/4 of 40 MB sent twice at 1 ns and added at 1 ns: 90 ms.
    step = weak(WORK, 4, ONE_EACH)
    assert (step.computing, step.waiting) == (0.2, 0.0)
    assert step.exchange.messages == pytest.approx(0.006)
    assert step.exchange.bytes == pytest.approx(0.09)
    assert step.efficiency == pytest.approx(0.2 / 0.296)
    assert step.bound == "communication-bound, by bytes"


def test_strong_growth_shares_what_depends_on_rows() -> None:
    # 20 ms of a step do not shrink: 20 + 180 / 4 = 65 ms, and the same exchange.
    step = strong(WORK, 4, ONE_EACH)
    assert step.computing == pytest.approx(0.065)
    assert step.efficiency == pytest.approx(0.2 / (4 * 0.161))


def test_workers_of_one_host_use_its_memory() -> None:
    assert usual_way(3, ONE_EACH) == "two levels"
    assert [usual_way(workers, HOSTS) for workers in (1, 2, 3)] == ["memory", "memory", "two levels"]
    # Two passes of 40 MB at 0.5 ns, and one meeting.
    assert weak(WORK, 2, HOSTS).exchange.seconds == pytest.approx(0.04 + 0.0001)


def test_what_bounds_a_step() -> None:
    assert weak(Workload(40e6, 2.0), 4, ONE_EACH).bound == "compute-bound"
    assert weak(Workload(1000, 0.02), 64, ONE_EACH).bound == "communication-bound, by latency"
    assert weak(Workload(1000, 2.0, spread=0.1), 64, ONE_EACH).bound == "bound by the slowest worker"
    fixed = Workload(1000, 0.2, fixed_seconds=0.1)
    assert strong(fixed, 4, ONE_EACH).bound == "bound by the part of a step that does not shrink with its rows"


def test_packs_go_one_after_another() -> None:
    # 10 MB in packs of 4 MB: two of 4 and one of 2, each with 2 messages of 1 ms; 5 MB sent twice, added once.
    assert exchange("ring", 2, 10e6, ONE_EACH, 4e6) == (pytest.approx(0.006), pytest.approx(0.015))
    assert exchange("ring", 2, 8e6, ONE_EACH, 4e6) == (pytest.approx(0.004), pytest.approx(0.012))
    assert exchange("ring", 1, 8e6, ONE_EACH, 4e6) == Cost(0.0, 0.0)


def test_what_is_accumulated_travels_once() -> None:
    every = weak(WORK, 4, ONE_EACH).exchange.seconds
    assert weak(Workload(40e6, 0.2, steps_per_update=4, overlap=0.0), 4, ONE_EACH).exchange.seconds == pytest.approx(
        every / 4
    )


def test_only_the_rest_of_an_overlapped_exchange_is_seen() -> None:
    # 96 ms beside half of 200 ms are not seen at all; beside a quarter, 46 are.
    assert weak(Workload(40e6, 0.2, overlap=0.5), 4, ONE_EACH).exchange.seconds == 0.0
    assert weak(Workload(40e6, 0.2, overlap=0.25), 4, ONE_EACH).exchange.seconds == pytest.approx(0.046)


def test_gradients_cross_beside_the_backward_pass_between_hosts_alone() -> None:
    work = Workload(40e6, 0.06)
    # 96 ms, of which 40 are hidden by two thirds of 60; what goes through Gloo or memory waits for the last gradient.
    assert weak(work, 4, ONE_EACH).exchange.seconds == pytest.approx(0.056)
    # The cores add 30 MB at 1 ns, whatever is hidden; of two levels they also pass 40 MB three times at 0.5 ns.
    assert weak(Workload(40e6, 1.0), 4, ONE_EACH).exchange.seconds == pytest.approx(0.03)
    assert weak(Workload(40e6, 1.0), 4, HOSTS).exchange.seconds == pytest.approx(0.06 + 0.02 / 2 + 2 * 0.0001)
    assert weak(work, 4, ONE_EACH, "ring").exchange.seconds == pytest.approx(0.096)
    assert weak(work, 2, HOSTS).exchange.seconds == pytest.approx(0.0401)


def test_connections_of_gloo_cost_what_they_cost() -> None:
    slow = Hosts(network=NETWORK, memory=Link(), loopback=Link(), by_gloo=NETWORK + Link(start=0.5))
    assert weak(WORK, 4, slow).exchange == weak(WORK, 4, ONE_EACH).exchange
    for way in ("ring", "tree"):
        own, gloo = (weak(WORK, 4, hosts, way).exchange.seconds for hosts in (ONE_EACH, slow))
        assert gloo == pytest.approx(own + 0.5)


def test_all_wait_for_the_slowest() -> None:
    # Of two normal values the greater is expected at 1 / sqrt(pi) standard deviations; of three at 1.5 of these.
    assert slowest(2) == pytest.approx(3.141592653589793**-0.5, rel=1e-7)
    assert slowest(3) == pytest.approx(1.5 * 3.141592653589793**-0.5, rel=1e-7)
    drawn = random.Random(1)
    seen = statistics.fmean(max(drawn.gauss(0, 1) for _ in range(50)) for _ in range(4000))
    assert slowest(50) == pytest.approx(seen, rel=0.01)
    assert weak(Workload(0.0, 0.2, spread=0.1), 2, ONE_EACH).waiting == pytest.approx(0.02 * slowest(2))


def test_advice_is_what_the_model_predicts() -> None:
    found = {advice.what.split("(")[0].strip(): advice.efficiency for advice in advise(WORK, 4, ONE_EACH)}
    assert found == {
        "accumulate gradients over 4 steps": pytest.approx(0.2 / (0.2 + 0.096 / 4)),
        "give each worker 4 times the rows": pytest.approx(0.74 / (0.74 + 0.096)),
        "send gradients in half the bytes": pytest.approx(0.2 / (0.2 + 0.051)),
    }


def test_advice_that_gains_nothing_is_not_given() -> None:
    assert advise(Workload(1000, 20.0), 4, ONE_EACH) == []
    on_one_host = {advice.what for advice in advise(WORK, 2, HOSTS)}
    assert not any("half the bytes" in what or "network" in what for what in on_one_host)


def test_more_workers_can_be_slower_with_a_fixed_batch() -> None:
    # 1: 200 ms. 2: 110 + 62. 4: 65 + 96. 8: 42.5 + 119. The network's share only grows.
    assert [round(1e3 * strong(WORK, workers, ONE_EACH).seconds, 1) for workers in (1, 2, 4, 8)] == [
        200,
        172,
        161,
        161.5,
    ]
    assert most_useful(WORK, 8, ONE_EACH) == 4
