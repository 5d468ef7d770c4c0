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
from tests.threads import on_threads

from stratagem.core.errors import PeerError
from stratagem.host_memory import memory
from stratagem.host_memory.hosts import Hosts
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


def alone(workers: int) -> Hosts:
    """Return so many workers on one host."""
    return Hosts((tuple(range(workers)),))


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


def combined(part: PlanPart, arrays: list[np.ndarray]) -> np.ndarray:
    """What an exchange is to give: elements combined in the order of the workers."""
    if part.operation == "gather":
        return np.stack(arrays)
    combine = {"sum": np.add, "scatter": np.add, "min": np.minimum, "max": np.maximum}[part.operation]
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
@pytest.mark.parametrize("workers", [2, 3, 4])
def test_each_worker_gets_its_part_of_a_sum_that_is_scattered(views: Views, workers: int, in_place: bool) -> None:
    """Of small arrays, and of large ones that take several rounds, beside others; with the bits of the whole sum."""
    lengths = (1, 5, LARGE // 4, CAPACITY // 4 + 1000)
    parts = [PlanPart("scatter", np.dtype(np.float32), (workers * length, 3)) for length in lengths]
    plan = Plan("a", [*SMALL, *parts, *LARGE_ONES], CAPACITY, alone(workers))
    rng = np.random.default_rng(1)
    own = [[rng.normal(size=part.shape, scale=9).astype(part.dtype) for part in plan.parts] for _ in range(workers)]

    def work(view: HostMemory) -> list[list[np.ndarray]]:
        return [exchanged(view, plan, own[view.index], in_place=in_place) for _ in range(2)]

    found = on_threads([lambda view=view: work(view) for view in views(workers)])
    for worker, turns in enumerate(found):
        assert isinstance(turns, list)
        for results in turns:
            for i, part in enumerate(plan.parts):
                wanted = combined(part, [own[w][i] for w in range(workers)])
                result = results[i]
                if part.operation == "scatter":
                    rows = part.shape[0] // workers
                    mine = slice(worker * rows, (worker + 1) * rows)
                    wanted, result = wanted[mine], result[mine]
                assert result.tobytes() == np.ascontiguousarray(wanted).tobytes()


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("workers", [2, 3, 5])
def test_arrays_combine_to_the_same_bits_everywhere(views: Views, workers: int, in_place: bool) -> None:
    rng = np.random.default_rng(1)
    plans = [
        Plan("a", SMALL, CAPACITY, alone(workers)),
        Plan("b", [*SMALL, *LARGE_ONES, *FILLING], CAPACITY, alone(workers)),
        Plan("c", [], CAPACITY, alone(workers)),
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


def parcels_of(plan: Plan, blocks: int) -> list[np.ndarray]:
    """Return room for what a worker sends to other hosts."""
    return [
        np.zeros((blocks if operation == "scatter" else 1, size // dtype.itemsize), dtype)
        for (operation, dtype), size in plan.parcels.items()
    ]


def in_blocks(workers: int) -> tuple[list[PlanPart], list[PlanPart]]:
    """Return arrays to scatter and to gather: small ones, and large ones that take several rounds."""
    lengths = (1, 5, LARGE // 4, CAPACITY // 4 + 1000)
    scattered = [PlanPart("scatter", np.dtype(np.float32), (workers * length, 3)) for length in (*lengths, 0)]
    gathered = [PlanPart("gather", np.dtype(np.float32), (length, 3)) for length in (*lengths, 0)]
    others = [PlanPart("gather", np.dtype(dtype), (7, 3)) for dtype in (ml_dtypes.bfloat16, np.int8)]
    return scattered, [*gathered, *others, PlanPart("gather", np.dtype(np.int8), ())]


def test_a_parcel_holds_what_other_hosts_need_and_no_byte_more() -> None:
    hosts = Hosts(((0, 1, 2), (3, 4, 5)))
    scattered, gathered = in_blocks(6)
    plan = Plan("a", [*scattered, *gathered], CAPACITY, hosts, "scatter")
    # Of a sum the blocks of the two workers of a group, of six; of what is gathered the own block.
    assert parcels_of(plan, 2)[0].nbytes == sum(part.nbytes for part in scattered) * 2 // 6
    assert plan.parcels["gather", np.dtype(np.uint8)] == sum(part.nbytes for part in gathered)


def test_whoever_combines_other_values_is_told_so(views: Views) -> None:
    plans = [Plan("step 1", [SMALL[0]], CAPACITY, alone(3)), Plan("step 1", [SMALL[0], SMALL[1]], CAPACITY, alone(3))]
    first = Plan("step 0", SMALL[:1], CAPACITY, alone(3))

    def work(view: HostMemory) -> None:
        exchanged(view, first, [np.ones((3, 5), np.float32)], in_place=True)
        plan = plans[view.index == 1]
        arrays = [np.ones(part.shape, part.dtype) for part in plan.parts]
        with pytest.raises(PeerError) as caught:
            exchanged(view, plan, arrays, in_place=False)
        exchanged(view, first, [np.ones((3, 5), np.float32)], in_place=True)  # no longer: the same error, at once
        raise AssertionError(caught.value)

    errors = on_threads([lambda view=view: work(view) for view in views(3)], PeerError)

    assert len({str(error) for error in errors}) == 1
    assert "worker 1: exchange 2, step 1: sum float32[3, 5], sum int32[]\n" in str(errors[0])
    assert "worker 2: exchange 2, step 1: sum float32[3, 5]\n" in str(errors[0])


def test_signatures_are_the_same_in_every_process_and_differ_in_everything_else() -> None:
    plans = [
        Plan("a", SMALL[:1], CAPACITY, alone(2)),
        Plan("b", SMALL[:1], CAPACITY, alone(2)),
        Plan("a", SMALL[:2], CAPACITY, alone(2)),
        Plan("a", [PlanPart("max", np.dtype(np.float32), (3, 5))], CAPACITY, alone(2)),
        Plan("a", [PlanPart("sum", np.dtype(np.float32), (5, 3))], CAPACITY, alone(2)),
    ]
    assert len({plan.signature for plan in plans}) == len(plans)
    program = (
        "import numpy as np; from stratagem.host_memory.hosts import Hosts;"
        "from stratagem.host_memory.plan import PlanPart, Plan; part = PlanPart('sum', np.dtype('float32'), (3, 5));"
        f"print(Plan('a', [part], {CAPACITY}, Hosts(((0, 1),))).signature)"
    )
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(other.stdout) == plans[0].signature < 2**63


def test_no_two_pieces_of_a_round_overlap() -> None:
    plan = Plan("a", [*LARGE_ONES, *SMALL, *FILLING], CAPACITY, alone(2))
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
plan = Plan("a", [PlanPart("sum", own.dtype, own.shape)], view.capacity, view.hosts)
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


# Where workers change --------------------------------------------------------------------------------


def moving(file: FileIO, index: int) -> HostMemory:
    return HostMemory(file, index, ["worker 0", "worker 1"], capacity=CAPACITY, world=1)


def test_an_exchange_that_is_cut_fails_and_the_next_world_has_the_same_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostMemory, "_lives", lambda *_: True)
    made = [make_file(needed_bytes(2, CAPACITY)) for _ in range(2)]
    files = [each.file for each in made if each is not None]
    stays, goes = moving(files[0], 0), moving(files[0], 1)
    plan = Plan("step 1", [PlanPart("sum", np.dtype(np.float32), (3,))], CAPACITY, alone(2))
    stays.add(plan)
    own = np.ones(3, np.float32)
    errors: list[Exception] = []

    def step() -> None:
        try:
            stays.run(plan.signature, [own.ctypes.data], [own.ctypes.data])
        except PeerError as error:
            errors.append(error)

    thread = threading.Thread(target=step)
    thread.start()
    stays.cut(1, "worker 1 is frozen")
    thread.join(20)
    assert "The exchange of a step was cut: worker 1 is frozen." in str(errors[0])
    assert stays.is_cut
    np.testing.assert_array_equal(own, 1)

    del goes
    stays.move(2, files[1], 1, ["worker 0", "worker 1"], hosts=alone(2), rank=1)
    assert not stays.is_cut
    stays.cut(1, "it comes late")
    assert not stays.is_cut
    comes = moving(files[1], 0)
    comes.add(plan)
    other = np.full(3, 4, np.float32)
    thread = threading.Thread(target=step)
    thread.start()
    comes.run(plan.signature, [other.ctypes.data], [other.ctypes.data])
    thread.join(20)
    np.testing.assert_array_equal(own, 5)
    np.testing.assert_array_equal(other, 5)
    files[1].close()


def test_a_memory_of_another_number_of_workers_has_plans_of_its_own() -> None:
    made = [make_file(needed_bytes(count, CAPACITY)) for count in (2, 1)]
    files = [each.file for each in made if each is not None]
    view = moving(files[0], 0)
    parts = [PlanPart("sum", np.dtype(np.float32), (3,)), PlanPart("gather", np.dtype(np.float32), (2,))]
    view.add(Plan("step 1", parts, CAPACITY, alone(2)))
    view.move(2, files[1], 0, ["worker 0"], hosts=alone(1), rank=0)
    assert (view.workers, view.index, view.world) == (1, 0, 2)
    plan = Plan("step 1", parts, CAPACITY, view.hosts)
    view.add(plan)
    summed, sent, gathered = np.arange(3, dtype=np.float32), np.ones(2, np.float32), np.zeros((1, 2), np.float32)
    view.run(plan.signature, [summed.ctypes.data, sent.ctypes.data], [summed.ctypes.data, gathered.ctypes.data])
    np.testing.assert_array_equal(summed, [0, 1, 2])
    np.testing.assert_array_equal(gathered, [[1, 1]])
    files[1].close()


def test_what_overflows_is_infinite_without_a_warning(views: Views) -> None:
    """As in XLA; the tests make a warning an error."""
    greatest = np.finfo(np.float32).max
    arrays = [np.full(4, greatest, np.float32), np.full(LARGE, greatest, np.float32)]
    plan = Plan("a", [PlanPart("sum", each.dtype, each.shape) for each in arrays], CAPACITY, alone(2))
    found = on_threads([lambda view=view: exchanged(view, plan, arrays, in_place=True) for view in views(2)])
    for results in found:
        assert isinstance(results, list)
        assert all(np.isinf(result).all() for result in results)
