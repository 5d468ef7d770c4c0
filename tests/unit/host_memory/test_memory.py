"""Exchanges through memory: workers are threads here, each with a view of its own."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from stratagem.core.errors import PeerError
from stratagem.host_memory import memory
from stratagem.host_memory.memory import HostMemory, needed_bytes
from stratagem.host_memory.plan import ALIGNMENT, LARGE, Plan, PlanPart
from stratagem.transport.memory import make_file

CAPACITY = 1 << 18

Views = Callable[[int], list[HostMemory]]


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> Iterator[Views]:
    """Return views of new memory. A process cannot tell by its own locks whether its threads live: they do."""
    files: list[FileIO] = []
    monkeypatch.setattr(HostMemory, "_lives", lambda *_: True)

    def make(workers: int) -> list[HostMemory]:
        made = make_file(needed_bytes(workers, CAPACITY))
        assert made is not None
        files.append(made.file)
        names = [f"worker {i}" for i in range(workers)]
        return [HostMemory(made.file, i, names, capacity=CAPACITY) for i in range(workers)]

    yield make
    for file in files:
        file.close()


def exchanged(view: HostMemory, plan: Plan, arrays: list[np.ndarray], *, in_place: bool) -> list[np.ndarray]:
    """Make one exchange as one worker, and return the results."""
    view.add(plan)
    own = [array.copy() for array in arrays]
    results = [
        np.full((view.workers, *part.shape), 77).astype(part.dtype)
        if part.operation == "gather"
        else array
        if in_place
        else np.zeros_like(array)
        for part, array in zip(plan.parts, own, strict=True)
    ]
    view.run(plan.signature, [a.ctypes.data for a in own], [a.ctypes.data for a in results])
    return results


def on_threads(work: list[Callable[[], object]]) -> list[object]:
    """Run each function on a thread of its own; return what they return or raise."""
    found: list[object] = [None] * len(work)

    def run(i: int) -> None:
        try:
            found[i] = work[i]()
        except PeerError as error:
            found[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


def combined(part: PlanPart, arrays: list[np.ndarray]) -> np.ndarray:
    """What an exchange is to give: elements combined in the order of the workers."""
    if part.operation == "gather":
        return np.stack(arrays)
    combine = {"sum": np.add, "min": np.minimum, "max": np.maximum}[part.operation]
    total = arrays[0]
    for array in arrays[1:]:
        total = combine(total, array)
    return total


SMALL = [
    PlanPart("sum", np.dtype(np.float32), (3, 5)),
    PlanPart("sum", np.dtype(np.int32), ()),
    PlanPart("max", np.dtype(np.float64), (7,)),
    PlanPart("sum", np.dtype(np.float32), (0, 4)),
    PlanPart("min", np.dtype(np.int8), (2, 2)),
    PlanPart("gather", np.dtype(np.bool_), (3,)),
    PlanPart("sum", np.dtype(np.complex64), (2,)),
    PlanPart("sum", np.dtype(ml_dtypes.bfloat16), (4,)),
    PlanPart("sum", np.dtype(np.float32), (9,)),
]
FILLING = [PlanPart("sum", np.dtype(np.float32), (15_000,)) for _ in range(7)]
"""Small arrays, more than fit into one round."""
LARGE_ONES = [
    PlanPart("sum", np.dtype(np.float32), (CAPACITY // 4 + 1000,)),  # goes on in a second round
    PlanPart("gather", np.dtype(np.float32), (LARGE // 4,)),
    PlanPart("max", np.dtype(np.int32), (LARGE // 4 + 3,)),
]


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("workers", [2, 3, 5])
def test_arrays_combine_to_the_same_bits_everywhere(views: Views, workers: int, in_place: bool) -> None:
    rng = np.random.default_rng(1)
    plans = [
        Plan("a", SMALL, CAPACITY, workers),
        Plan("b", [*SMALL, *LARGE_ONES, *FILLING], CAPACITY, workers),
        Plan("c", [], CAPACITY, workers),
    ]
    own = [
        [[rng.normal(size=part.shape, scale=9).astype(part.dtype) for part in plan.parts] for plan in plans]
        for _ in range(workers)
    ]

    def work(view: HostMemory) -> list[list[np.ndarray]]:
        # Each plan several times: sides of the memory are used again.
        return [
            exchanged(view, plan, arrays, in_place=in_place)
            for _ in range(3)
            for plan, arrays in zip(plans, own[view.index], strict=True)
        ]

    found = on_threads([lambda view=view: work(view) for view in views(workers)])

    expected = [
        [combined(part, [own[w][p][i] for w in range(workers)]) for i, part in enumerate(plan.parts)]
        for p, plan in enumerate(plans)
    ] * 3
    for results in found:
        assert isinstance(results, list)
        for result, wanted in zip(results, expected, strict=True):
            assert [a.tobytes() for a in result] == [np.ascontiguousarray(a).tobytes() for a in wanted]


@pytest.mark.parametrize(("workers", "sharers"), [(1, 1), (3, 2), (3, 3)])
def test_shares_meet_those_of_other_hosts(views: Views, workers: int, sharers: int) -> None:
    """Another host with the same values doubles every sum."""
    parts = [part for part in [*SMALL, *LARGE_ONES, *FILLING] if part.operation != "gather"]
    scatter, collect = (Plan("a", parts, CAPACITY, sharers, phase) for phase in ("scatter", "collect"))
    rng = np.random.default_rng(1)
    own = [[rng.normal(size=part.shape, scale=9).astype(part.dtype) for part in parts] for _ in range(workers)]

    def work(view: HostMemory) -> list[np.ndarray]:
        arrays = [array.copy() for array in own[view.index]]
        shares = [np.zeros(size // dtype.itemsize, dtype) for (_, dtype), size in scatter.shares.items()]
        addresses = [array.ctypes.data for array in [*arrays, *shares]]
        for plan in (scatter, collect):
            view.add(plan)
            view.run(plan.signature, addresses, addresses)
            if plan is scatter:
                assert all(np.array_equal(a, b) for a, b in zip(arrays, own[view.index], strict=True))
                for (operation, _), share in zip(scatter.shares, shares, strict=True):
                    share *= 2 if operation == "sum" and view.index < sharers else 1
        return arrays

    found = on_threads([lambda view=view: work(view) for view in views(workers)])

    for results in found:
        assert isinstance(results, list)
        for part, result, *terms in zip(parts, results, *own, strict=True):
            total = combined(part, terms)
            wanted = total + total if part.operation == "sum" else total
            assert np.asarray(result).tobytes() == np.asarray(wanted, part.dtype).tobytes()


def test_whoever_combines_other_values_is_told_so(views: Views) -> None:
    plans = [Plan("step 1", [SMALL[0]], CAPACITY, 2), Plan("step 1", [SMALL[0], SMALL[1]], CAPACITY, 2)]
    first = Plan("step 0", SMALL[:1], CAPACITY, 2)

    def work(view: HostMemory) -> None:
        exchanged(view, first, [np.ones((3, 5), np.float32)], in_place=True)
        plan = plans[view.index == 1]
        arrays = [np.ones(part.shape, part.dtype) for part in plan.parts]
        with pytest.raises(PeerError) as caught:
            exchanged(view, plan, arrays, in_place=False)
        exchanged(view, first, [np.ones((3, 5), np.float32)], in_place=True)  # no longer: the same error, at once
        raise AssertionError(caught.value)

    errors = on_threads([lambda view=view: work(view) for view in views(3)])

    assert len({str(error) for error in errors}) == 1
    assert "worker 1: exchange 2, step 1: sum float32[3, 5], sum int32[]\n" in str(errors[0])
    assert "worker 2: exchange 2, step 1: sum float32[3, 5]\n" in str(errors[0])


def test_signatures_are_the_same_in_every_process_and_differ_in_everything_else() -> None:
    plans = [
        Plan("a", SMALL[:1], CAPACITY, 2),
        Plan("b", SMALL[:1], CAPACITY, 2),
        Plan("a", SMALL[:2], CAPACITY, 2),
        Plan("a", [PlanPart("max", np.dtype(np.float32), (3, 5))], CAPACITY, 2),
        Plan("a", [PlanPart("sum", np.dtype(np.float32), (5, 3))], CAPACITY, 2),
    ]
    assert len({plan.signature for plan in plans}) == len(plans)
    program = (
        "import numpy as np; from stratagem.host_memory.plan import PlanPart, Plan;"
        f"print(Plan('a', [PlanPart('sum', np.dtype('float32'), (3, 5))], {CAPACITY}, 2).signature)"
    )
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(other.stdout) == plans[0].signature < 2**63


def test_no_two_pieces_of_a_round_overlap() -> None:
    plan = Plan("a", [*LARGE_ONES, *SMALL, *FILLING], CAPACITY, 2)
    assert len(plan.rounds) > 2
    covered = dict.fromkeys(range(len(plan.parts)), 0)
    for runs in plan.rounds:
        end = 0
        for run in runs:
            assert run.place % ALIGNMENT == 0
            for piece in run.pieces:
                assert piece.place >= end
                assert piece.start == covered[piece.index]
                end = piece.place + piece.nbytes
                covered[piece.index] += piece.nbytes
        assert end <= CAPACITY
    assert list(covered.values()) == [part.nbytes for part in plan.parts]


_WORKER = """
import sys
import numpy as np
from stratagem.core.errors import PeerError
from stratagem.host_memory.memory import HostMemory, needed_bytes
from stratagem.host_memory.plan import PlanPart, Plan
from stratagem.transport.memory import make_file, open_file

index, size = int(sys.argv[1]), needed_bytes(2)
if index == 0:
    made = make_file(size)
    file = made.file
    view = HostMemory(file, index, ["worker 0", "worker 1"], spins=False)
    print(made.name, made.path, flush=True)
else:
    file = open_file(*sys.argv[2:4], size)
    view = HostMemory(file, index, ["worker 0", "worker 1"], spins=False)
    print("here", flush=True)
sys.stdin.readline()
own = np.full(1 << 20, index + 1.0, np.float32)
plan = Plan("a", [PlanPart("sum", own.dtype, own.shape)], view.capacity, 2)
view.add(plan)
try:
    while True:
        own[:] = index + 1
        view.run(plan.signature, [own.ctypes.data], [own.ctypes.data])
        assert (own == 3).all()
        print("met", flush=True)
except PeerError as error:
    print(error, flush=True)
"""


def test_a_worker_that_is_killed_is_missed_and_leaves_nothing_behind() -> None:
    def start(*args: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", _WORKER, *args]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def lines(process: subprocess.Popen[str]) -> Iterator[str]:
        assert process.stdout is not None
        return iter(process.stdout)

    before = set(Path("/dev/shm").iterdir())
    with start("0") as first:
        with start("1", *next(lines(first)).split()) as second:
            try:
                assert next(lines(second)) == "here\n"
                for process in (first, second):
                    assert process.stdin is not None
                    process.stdin.write("go\n")
                    process.stdin.flush()
                assert [next(lines(first)) for _ in range(3)] == ["met\n"] * 3
                second.kill()
                end = [line for line in lines(first) if line != "met\n"]
                assert end[0] == "worker 1 has ended while worker 0 waited for it in a step.\n"
                assert first.wait(60) == 0
            finally:
                first.kill()
                second.kill()
    assert set(Path("/dev/shm").iterdir()) <= before


def test_the_layout_is_that_of_the_system() -> None:
    assert memory._HEAD.itemsize == 1024
    assert ctypes.sizeof(ctypes.c_long) == 8
