"""Reader processes: the same batches, errors that say what happened, and nothing left behind."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from stratagem.core.errors import InputError, ReaderError
from stratagem.data import Dataset, Options
from stratagem.data.batches import DatasetIterator

pytestmark = [pytest.mark.multiprocess, pytest.mark.quick]

WAIT = 20.0
"""Seconds after which a test that waits for an event has failed."""


def read_by(processes: int, dataset: Dataset) -> Dataset:
    options = Options()
    options.reader_processes = processes
    return dataset.with_options(options)


class Point(NamedTuple):
    x: Any
    y: Any


def pipelines() -> Iterator[Dataset]:
    """Pipelines of every kind of block, each of which tells with `pid` where its function ran."""
    x = np.arange(24.0).reshape(12, 2)
    pid = os.getpid()

    def elsewhere(*element: Any) -> Any:
        assert os.getpid() != pid
        return Point(element, np.zeros(0)), {"text": str(element[0]), "none": None}

    yield Dataset.from_tensor_slices((x, np.arange(12))).shuffle(12, seed=1).map(elsewhere).batch(4)
    yield Dataset.from_tensor_slices(x).batch(5).map(lambda rows: (rows[::-1], rows.sum(axis=1)))
    yield (
        Dataset.range(7).map(lambda i: i * 2).concatenate(Dataset.range(3).map(lambda i: i * 3)).shuffle(4, 2).batch(3)
    )
    yield Dataset.zip((Dataset.range(9).map(lambda i: i + 1), Dataset.range(5, 14))).batch(4)
    yield Dataset.from_generator(lambda: iter(range(6))).map(lambda i: i * 2).batch(4)
    yield Dataset.range(6).map(lambda i: i * 2).cache().map(lambda i: i + 1).batch(4)
    yield Dataset.range(20).filter(lambda i: i % 2 == 0).map(lambda i: i + 1).repeat(2).batch(6)


def contents(batches: DatasetIterator[Any]) -> list[Any]:
    return [(batch.rows, repr(batch.data)) for batch in batches]


def test_batches_are_those_of_one_process() -> None:
    halves = lambda rows: slice(rows // 2, rows)  # noqa: E731
    for here in pipelines():
        there = read_by(2, here)
        try:
            expected = contents(here.batches(halves, iteration=0))
        except AssertionError:  # its function refuses to run here
            expected = None
        got = contents(there.batches(halves, prefetch=2, iteration=0))
        assert expected is None or got == expected
        assert len(got) == int(here.cardinality()) or int(here.cardinality()) < 0


PROGRAM = """
import json, os, sys
from stratagem.data import Dataset, Options

print("begins", os.getpid(), flush=True)
options = Options()
options.reader_processes = 2
about = lambda i: (i, json.dumps([os.getpid(), "jax" in sys.modules, os.environ.get("TF_CONFIG"),
                                  os.environ["JAX_PLATFORMS"], os.environ.get("STRATAGEM_COUNTERS_FILE")]))
dataset = Dataset.range(8).map(about).batch(2).with_options(options)
batches = list(dataset.batches(prefetch=2))
print(json.dumps([[batch.data[0].tolist(), [json.loads(text) for text in batch.data[1]]] for batch in batches]))
"""


def test_a_program_without_guard_whose_processes_are_no_tasks(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    cluster = {"TF_CONFIG": "not read", "STRATAGEM_COUNTERS_FILE": str(tmp_path / "steps"), "JAX_PLATFORMS": "cuda"}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        env={**os.environ, **cluster},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    begins, batches = done.stdout.splitlines()
    worker = int(begins.split()[1])
    told = json.loads(batches)
    assert [numbers for numbers, _ in told] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    processes = {about[0] for _, abouts in told for about in abouts}
    assert worker not in processes
    assert 1 <= len(processes) <= 2
    assert all(about[1:] == [False, None, "cpu", None] for _, abouts in told for about in abouts)
    assert done.stderr == ""


KILLED = """
import os, threading
from stratagem.data import Dataset, Options

options = Options()
options.reader_processes = 2

def stuck(i):
    os.write(1, f"reading {i}\\n".encode())  # at once: print writes the end of the line apart
    threading.Event().wait()

batches = Dataset.range(8).map(stuck).batch(1).with_options(options).batches(prefetch=2)
next(batches)
"""


def test_processes_end_with_a_worker_that_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(KILLED)
    shared_memory = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert {worker.stdout.readline(), worker.stdout.readline()} == {"reading 0\n", "reading 1\n"}
        worker.send_signal(signal.SIGKILL)
        # The output ends when the last process that holds it has ended.
        assert worker.stdout.read() == ""
    if shared_memory:
        assert {name for name in os.listdir("/dev/shm") if "stratagem" in name} <= shared_memory


def test_exception_of_a_function_arrives_with_its_traceback() -> None:
    def break_at_five(i: int) -> int:
        if i == 5:
            raise KeyError("five")
        return i

    batches = read_by(2, Dataset.range(9).map(break_at_five).batch(2)).batches(prefetch=2)
    assert [next(batches).data.tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(KeyError, match="five") as caught:
        next(batches)
    (note,) = caught.value.__notes__
    assert "at batch 2:" in note
    assert "in break_at_five" in note
    assert list(batches) == []


def test_exception_that_does_not_pickle() -> None:
    class Odd(Exception):
        def __init__(self, first: int, second: int) -> None:
            super().__init__(first)

    def odd(i: int) -> int:
        raise Odd(1, 2)

    with pytest.raises(ReaderError, match=r"(?s)Batch 0 could not be read.*in odd.*Fix the function"):
        next(read_by(1, Dataset.range(2).map(odd).batch(2)).batches(prefetch=1))


@pytest.mark.parametrize(
    ("death", "words"),
    [
        (lambda: os._exit(7), r"exit code 7"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), r"signal SIGKILL.*memory may have been full"),
    ],
)
def test_a_process_that_dies_is_an_error(death: Any, words: str) -> None:
    def die_at_five(i: int) -> int:
        if i == 5:
            death()
        return i

    batches = read_by(2, Dataset.range(9).map(die_at_five).batch(2)).batches(prefetch=2)
    assert [next(batches).data.tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(ReaderError, match=rf"(?s)Reader process [12] of 2 ended \({words}.*reader_processes = 0"):
        next(batches)


def test_a_batch_is_named_by_its_number_in_the_pass() -> None:
    dataset = read_by(1, Dataset.range(9).map(lambda i: os._exit(3) if i == 5 else i).batch(1))
    batches = dataset.batches(prefetch=1)
    batches.set_state({"iteration": 0, "batches": 4, "seeds": []})
    assert next(batches).data.tolist() == [4]
    with pytest.raises(ReaderError, match=r"exit code 3\) while it read batch 5"):
        next(batches)


def test_what_cannot_be_pickled_is_named() -> None:
    lock = threading.Lock()

    def counted(i: int) -> int:
        with lock:
            return i

    with pytest.raises(InputError, match=r"(?s)map\(.*counted\) cannot go to a reader process.*lock.*first call"):
        next(read_by(1, Dataset.range(2).map(counted).batch(2)).batches(prefetch=1))


def test_rows_travel_and_arrays_stay() -> None:
    class Unpicklable(np.ndarray):
        def __reduce_ex__(self, protocol: Any) -> Any:
            raise AssertionError("the whole array was sent")

    images = np.arange(40).reshape(10, 4).view(Unpicklable)
    dataset = read_by(1, Dataset.from_tensor_slices(np.asarray(images)).map(lambda row: row + 1).batch(5))
    assert [batch.data[0].tolist() for batch in dataset.batches(prefetch=1)] == [[1, 2, 3, 4], [21, 22, 23, 24]]


@pytest.mark.parametrize("forget", [True, False])
def test_processes_end_with_the_iterator(forget: bool) -> None:
    def stuck_at_two(i: int) -> int:
        if i == 2:
            threading.Event().wait()
        return i

    batches = read_by(1, Dataset.range(6).map(stuck_at_two).batch(1)).batches(prefetch=2)
    assert next(batches).data.tolist() == [0]
    if forget:
        del batches
        gc.collect()
    else:
        batches.close()
        assert list(batches) == []
    # The fixture of all tests finds a process or thread that is left.


def test_one_pool_serves_several_passes() -> None:
    dataset = read_by(2, Dataset.range(6).map(lambda i: (i, os.getpid())).batch(1))
    pool = dataset.reader_pool()
    assert pool is not None
    first = dataset.batches(prefetch=2, readers=pool)
    pids = {int(next(first).data[1][0]) for _ in range(4)}
    first.close()
    for pid in pids:  # as the launcher stops a group, whose workers read on until they have stored their last steps
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
    again = [batch.data for batch in dataset.batches(prefetch=2, readers=pool)]
    assert [int(i[0]) for i, _ in again] == [0, 1, 2, 3, 4, 5]
    assert {int(pid[0]) for _, pid in again} | pids == pids
    pool.close()
    with pytest.raises(ReaderError):
        next(dataset.batches(prefetch=2, readers=pool))


factor = 1


@pytest.mark.parametrize("processes", [0, 1])
def test_a_pass_sees_what_its_functions_refer_to(processes: int) -> None:
    """A global that is rebound between two passes, in processes as in threads."""
    global factor
    dataset = read_by(processes, Dataset.range(4).map(lambda i: i * factor).batch(2))
    pool, found = dataset.reader_pool(), []
    for factor in (1, 10):  # noqa: B007 - read by the function
        found += [batch.data.tolist() for batch in dataset.batches(prefetch=1, readers=pool)]
    if pool is not None:
        pool.close()
    assert found == [[0, 1], [2, 3], [0, 10], [20, 30]]


def test_functions_without_end_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stratagem.data.processes.readers._MOST_CONSTANTS", 2)
    dataset = Dataset.range(8).interleave(lambda n: Dataset.range(2).map(lambda i: 10 * int(n) + i), cycle_length=1)
    batches = read_by(1, dataset.batch(2)).batches(prefetch=1)
    assert [batch.data.tolist() for batch in batches] == [[10 * n, 10 * n + 1] for n in range(8)]
