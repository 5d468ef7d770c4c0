"""How workers divide the cores of a machine."""

from __future__ import annotations

import os
import threading

import pytest

from stratagem.core.cores import HostCores, bind_process, divide_cores


@pytest.mark.parametrize(
    ("cores", "workers", "shares"),
    [
        ([0, 1], 1, [(0, 1)]),
        ([0, 1], 2, [(0,), (1,)]),
        ([0, 1], 3, [(0,), (1,), (0,)]),
        ([2, 3, 6, 7, 8], 2, [(2, 3, 6), (7, 8)]),
        ([0, 1, 2, 3, 4, 5, 6, 7], 3, [(0, 1, 2), (3, 4, 5), (6, 7)]),
        ([], 2, [(), ()]),
    ],
)
def test_cores_are_divided(cores: list[int], workers: int, shares: list[tuple[int, ...]]) -> None:
    assert divide_cores(cores, workers) == shares


@pytest.mark.parametrize("cores", [HostCores((1,), (0, 1)), HostCores((), ()), HostCores((0, 1), (0, 1, 5))])
def test_cores_pass_through_a_variable(cores: HostCores) -> None:
    assert HostCores.decode(cores.encode()) == cores


def test_no_variable_means_no_cores() -> None:
    assert HostCores.decode("") == HostCores((), ())


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no affinity")
def test_all_threads_of_a_process_are_bound() -> None:
    before, ends, begun = os.sched_getaffinity(0), threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        ends.wait(60.0)

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        begun.wait(60.0)
        bind_process([min(before)])
        assert os.sched_getaffinity(0) == os.sched_getaffinity(thread.native_id or 0) == {min(before)}
        bind_process([])
        assert os.sched_getaffinity(0) == {min(before)}
    finally:
        bind_process(sorted(before))
        ends.set()
        thread.join()
    assert os.sched_getaffinity(0) == before


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no affinity")
def test_cores_that_are_gone_change_nothing() -> None:
    """As in a container that has lost some while a worker trains."""
    before = os.sched_getaffinity(0)
    bind_process([100_000])
    assert os.sched_getaffinity(0) == before
