"""Exchanges of workers of several hosts, each with its memory and connections to the others: threads here."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from tests.threads import on_threads
from tests.unit.host_memory.test_memory import CAPACITY, LARGE_ONES, SMALL, combined, in_blocks

from stratagem.core.errors import PeerError
from stratagem.host_memory.hosts import Hosts
from stratagem.host_memory.links import Links
from stratagem.host_memory.memory import HostMemory, needed_bytes
from stratagem.host_memory.plan import PlanPart
from stratagem.transport.memory import make_file

Workers = Callable[[Hosts], list[HostMemory]]

BY_HOST = (
    *(((0,), (1,)), ((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2)), ((0,), (1,), (2,))),
    *(((0, 1), (2,)), ((0,), (1, 2, 3)), ((0, 3), (1,), (2, 4))),
)
"""Some with equal numbers of workers, some without."""


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Workers]:
    """Return the memory of each worker, in a world of these hosts."""
    monkeypatch.setattr(HostMemory, "_lives", lambda *_: True)
    every: list[HostMemory] = []

    def new(size: int) -> tuple[int, ...]:
        made = make_file(needed_bytes(size, CAPACITY))
        assert made is not None
        with made.file:
            return tuple(os.dup(made.file.fileno()) for _ in range(size))

    def make(hosts: Hosts) -> list[HostMemory]:
        ends: dict[tuple[int, int], socket.socket] = {}
        for group in hosts.groups:
            for one, other in itertools.combinations(group, 2):
                ends[one, other], ends[other, one] = socket.socketpair()
        made: dict[int, HostMemory] = {}
        for host in hosts.workers:
            for index, (rank, number) in enumerate(zip(host, new(len(host)), strict=True)):
                group = hosts.group_of(rank)
                names = [f"worker {each}" for each in host]
                view = HostMemory(os.fdopen(new(1)[0], "r+b", 0), 0, ["alone"], capacity=CAPACITY)
                links = Links(group.index(rank), [ends.get((rank, each)) for each in group], [str(i) for i in group])
                view.move(1, os.fdopen(number, "r+b", 0), index, names, hosts=hosts, rank=rank, links=links)
                made[rank] = view
        every.extend(made.values())
        return [made[rank] for rank in range(hosts.size)]

    yield make
    for view in every:
        assert view._links is not None
        view._links.close()
        view._file.close()


def exchanged(view: HostMemory, parts: list[PlanPart], arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Make an exchange as one worker; sums lie where the arrays lay."""
    plan = view.plan("a", parts)
    view.add(plan)
    own = [array.copy() for array in arrays]
    results = [
        np.full((view.hosts.size, *part.shape), 77).astype(part.dtype) if part.operation == "gather" else array
        for part, array in zip(parts, own, strict=True)
    ]
    view.run(plan.signature, [a.ctypes.data for a in own], [a.ctypes.data for a in results])
    return results


@pytest.mark.parametrize("by_host", BY_HOST, ids=str)
def test_all_get_what_all_have_combined(workers: Workers, by_host: tuple[tuple[int, ...], ...]) -> None:
    """Sums of each host are summed in the order of hosts; what is gathered is in the order of workers."""
    hosts = Hosts(by_host)
    scattered, gathered = in_blocks(hosts.size)
    parts = [*SMALL, *scattered, *LARGE_ONES, *gathered]
    rng = np.random.default_rng(1)
    own = [[rng.normal(size=part.shape, scale=9).astype(part.dtype) for part in parts] for _ in range(hosts.size)]
    views = workers(hosts)
    found = on_threads([lambda w=w, v=v: [exchanged(v, parts, own[w]) for _ in range(2)] for w, v in enumerate(views)])
    for worker, turns in enumerate(found):
        assert isinstance(turns, list), turns
        for results, (i, part) in itertools.product(turns, enumerate(parts)):
            arrays = [own[each][i] for each in range(hosts.size)]
            of_hosts = [combined(part, [arrays[each] for each in host]) for host in by_host]
            wanted = np.stack(arrays) if part.operation == "gather" else combined(part, of_hosts)
            result = results[i]
            if part.operation == "scatter":
                rows = part.shape[0] // hosts.size
                wanted, result = (whole[worker * rows : (worker + 1) * rows] for whole in (wanted, result))
            assert result.tobytes() == np.ascontiguousarray(wanted).tobytes(), part


@pytest.mark.parametrize("by_host", BY_HOST, ids=str)
def test_exchanges_go_on_beside_each_other(workers: Workers, by_host: tuple[tuple[int, ...], ...]) -> None:
    """Three have begun before the first is finished. What an array held is sent by then, and may be lost."""
    hosts = Hosts(by_host)
    parts = [PlanPart("sum", np.dtype(np.float64), (number * 9_000,)) for number in (1, 2, 3)]

    def exchange(rank: int, view: HostMemory) -> list[np.ndarray]:
        plans = [view.plan(f"exchange {number}", [part]) for number, part in enumerate(parts)]
        arrays = [np.arange(part.shape[0], dtype=np.float64) * (rank + 1) for part in parts]
        for plan in plans:
            view.add(plan)
        results: list[np.ndarray] = []
        for _ in range(2):
            results = [array.copy() for array in arrays]
            for plan, result in zip(plans, results, strict=True):
                view.begin(plan.signature, [result.ctypes.data], [result.ctypes.data])
                if hosts.number > 1:
                    result[:] = -1
            for plan, result in zip(plans, results, strict=True):
                view.finish(plan.signature, [result.ctypes.data], [result.ctypes.data])
        return results

    found = on_threads([lambda w=w, v=v: exchange(w, v) for w, v in enumerate(workers(hosts))])
    factor = sum(range(1, hosts.size + 1))
    for results in found:
        assert isinstance(results, list), results
        for part, result in zip(parts, results, strict=True):
            np.testing.assert_array_equal(result, np.arange(part.shape[0]) * factor)


def test_an_exchange_that_nobody_finishes_can_begin_again(workers: Workers) -> None:
    """XLA leaves out what finishes it where a program needs none of its results, but not what begins it."""
    part = PlanPart("sum", np.dtype(np.float64), (9_000,))

    def exchange(rank: int, view: HostMemory) -> np.ndarray:
        plan = view.plan("exchange", [part])
        view.add(plan)
        result = np.zeros(part.shape)
        for turn in range(3):
            result[:] = (rank + 1) * (turn + 1)
            view.begin(plan.signature, [result.ctypes.data], [result.ctypes.data])
        view.finish(plan.signature, [result.ctypes.data], [result.ctypes.data])
        return result

    for result in on_threads([lambda w=w, v=v: exchange(w, v) for w, v in enumerate(workers(Hosts(((0,), (1,)))))]):
        assert isinstance(result, np.ndarray), result
        np.testing.assert_array_equal(result, 9.0)


def test_programs_go_on_where_a_worker_is_replaced_by_one_of_another_host(workers: Workers) -> None:
    """The same signature is called in a world of other hosts."""
    parts = [PlanPart("sum", np.dtype(np.float32), (5,)), PlanPart("gather", np.dtype(np.float32), (2,))]
    own = [[np.arange(5, dtype=np.float32) + rank, np.full(2, rank, np.float32)] for rank in range(3)]
    signatures = set()
    for by_host in (((0, 1), (2,)), ((0,), (1, 2)), ((0,), (1,), (2,))):
        views = workers(Hosts(by_host))
        found = on_threads([lambda w=w, v=v: exchanged(v, parts, own[w]) for w, v in enumerate(views)])
        for results in found:
            assert isinstance(results, list)
            np.testing.assert_array_equal(results[0], [3, 6, 9, 12, 15])
            np.testing.assert_array_equal(results[1], [[0, 0], [1, 1], [2, 2]])
        signatures |= {signature for view in views for signature in view._asked}
    assert len(signatures) == 1


def test_a_cut_ends_the_wait_for_another_host(workers: Workers) -> None:
    first, _ = workers(Hosts(((0,), (1,))))
    timer = threading.Timer(0.1, first.cut, (1, "worker 1 is gone"))
    timer.start()
    with pytest.raises(PeerError, match="The exchange of a step was cut: worker 1 is gone"):
        exchanged(first, SMALL[:1], [np.ones((3, 5), np.float32)])
    assert first.is_cut
    timer.join()


def test_a_worker_of_another_host_that_is_gone_ends_the_exchange(workers: Workers) -> None:
    first, second = workers(Hosts(((0,), (1,))))
    assert second._links is not None
    second._links.close()
    with contextlib.suppress(PeerError):
        exchanged(first, SMALL[:1], [np.ones((3, 5), np.float32)])
    assert first.is_cut
