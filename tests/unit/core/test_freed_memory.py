"""Steps take the memory that the steps before have freed."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import statistics
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.fresh import run_python

import stratagem
from stratagem import keras
from stratagem.core import freed_memory
from stratagem.core.clock import Clock
from stratagem.core.freed_memory import NowAndThen
from stratagem.core.heap import Piece
from stratagem.core.tunables import c_library_version, to_start_with

COUNTING = """
import resource
import keras, numpy as np, stratagem

class CountFaults(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    def on_epoch_end(self, epoch, logs=None):
        print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - self.before)

"""

SMALL = """
with stratagem.OneDeviceStrategy("cpu:0").scope():
    model = keras.Sequential([keras.Input((1024,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=32)
x = np.ones((8 * 1024, 1024), np.float32)  # a program of 32 steps takes 4 MiB, 1,024 pages; there are 8 in an epoch
model.fit(x, x[:, :1], batch_size=32, epochs=9, verbose=0, callbacks=[CountFaults()])
"""

LARGE = """
with stratagem.OneDeviceStrategy("cpu:0").scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(10_000)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
x = np.ones((8 * 1024, 4), np.float32)  # logits and their gradients: blocks of 40 MB, 10,000 pages; 8 steps in an epoch
model.fit(x, np.zeros(8 * 1024, int), batch_size=1024, epochs=9, verbose=0, callbacks=[CountFaults()])
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")


def faults(program: str, **variables: str) -> float:
    """Return the page faults of an epoch: of most; where the memory gets another layout, some are new."""
    free = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    environment = free | variables
    result = subprocess.run(
        [sys.executable, "-c", COUNTING + program],
        env=environment | to_start_with(environment, c_library_version()),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return statistics.median(map(int, result.stdout.split()))


@pytest.mark.parametrize(
    ("platforms", "plugins", "keeps"),
    [("cpu", True, True), (None, False, True), (None, True, False), ("cuda", False, False), ("cuda,cpu", False, False)],
)
def test_one_heap_is_for_machines_without_accelerators(
    platforms: str | None, plugins: bool, keeps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that read data for an accelerator keep heaps of their own."""
    calls: list[bool] = []
    monkeypatch.setattr(freed_memory, "jax", SimpleNamespace(config=SimpleNamespace(jax_platforms=platforms)))
    monkeypatch.setattr(freed_memory, "find_spec", lambda name: name if plugins else None)
    monkeypatch.setattr(freed_memory, "keep_freed_memory", lambda: calls.append(True))
    freed_memory.keep_freed_memory_for_cpu()
    assert bool(calls) == keeps


@pytest.mark.thorough
@pytest.mark.parametrize("program", [SMALL, LARGE], ids=["small", "large"])
def test_steps_make_no_new_pages(program: str) -> None:
    assert faults(program) < 8  # of 2 MiB each where the system has such pages


@pytest.mark.thorough
def test_the_environment_decides_instead() -> None:
    assert faults(SMALL, MALLOC_TRIM_THRESHOLD_="131072", MALLOC_MMAP_THRESHOLD_="131072") > 4096


GROWTH = """
import sys
import stratagem
import keras, numpy as np
from stratagem.core import freed_memory

if sys.argv[1] == "keep all":
    freed_memory.give_back = lambda **how: None

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

class Measure(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.last = resident()

before, measure = resident(), Measure()
strategy = stratagem.MultiWorkerMirroredStrategy()
with strategy.scope():
    layers = [keras.layers.Dense(2048, activation="relu") for _ in range(6)]
    model = keras.Sequential([keras.Input((512,)), *layers, keras.layers.Dense(1)])
    model.compile("adam", "mse")
x = np.zeros((1024, 512), np.float32)
model.fit(x, x[:, :1], batch_size=128, verbose=0, callbacks=[measure])
if strategy.is_chief:
    print("grew by", measure.last - before)
"""


PROFILED = """
import os, sys

os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])  # one core: that one thread runs the steps
import jax
import keras, numpy as np, stratagem
from stratagem.core.counters import resident_bytes

class Measure(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        resident.append(resident_bytes())

resident = []
with stratagem.OneDeviceStrategy("cpu:0").scope():
    layers = [keras.layers.Dense(512, "tanh") for _ in range(3)]  # 3 MB; a step takes 70 MB beside them
    model = keras.Sequential([keras.Input((512,)), *layers, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
rows = np.ones((5_000, 512), np.float32), np.ones((5_000, 1), np.float32)
batches = stratagem.data.Dataset.from_tensors(rows).repeat(60)
model.fit(batches, verbose=0, callbacks=[Measure()])
usual = max(resident)
resident.clear()
with jax.profiler.trace(sys.argv[1]):  # keeps something small of each step
    model.fit(batches, verbose=0, callbacks=[Measure()])
print(max(resident) / usual)
"""


@pytest.mark.thorough
def test_memory_stays_within_bounds_without_tunables(tmp_path: Path) -> None:
    """It became 6.5 to 6.9 times as much in these 60 steps with glibc 2.36, and becomes 3.3 to 3.6 times."""
    done = run_python("-c", PROFILED, str(tmp_path), home=tmp_path, variables={"KERAS_BACKEND": "jax"})
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.splitlines()[-1]) < 5


@pytest.mark.multiprocess
def test_what_making_variables_and_compiling_took_goes_back(tmp_path: Path) -> None:
    """A worker grows by 520 MB where it grew by 1,200; variables and slots are 264 MB, gradients 88."""
    (tmp_path / "grow.py").write_text(GROWTH)

    def growth(how: str) -> float:
        command = [sys.executable, "-m", "stratagem", "run", "--workers", "2", "grow.py", how]
        as_users_do = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
        done = subprocess.run(command, env=as_users_do, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return int(done.stdout.rpartition("grew by ")[2].split()[0])

    assert growth("give back") < 0.6 * growth("keep all")


@pytest.mark.parametrize(("nbytes", "trims"), [(1 << 20, 0), (1 << 24, 3)])
def test_only_the_step_memory_of_large_programs_give_memory_back(
    nbytes: int, trims: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    freed_memory.keep_freed_memory()
    library = SimpleNamespace(malloc_trim=calls.append)
    monkeypatch.setattr(freed_memory, "request_huge_pages", lambda pieces, step_runs: None)
    monkeypatch.setattr(freed_memory, "keep_freed_memory", functools.lru_cache(lambda: True))
    freed_memory.keep_freed_memory()
    monkeypatch.setattr(freed_memory, "c_library", lambda: library)
    memory = freed_memory.StepMemory(nbytes)
    for _ in range(10):
        memory.tidy()
    assert len(calls) == trims


def test_memory_that_has_grown_goes_back_after_more_and_more_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first step, beside and after the next two; then where it has grown, at 4, 8, 16 ... calls."""
    trims: list[int] = []
    resident = {4: 100, 8: 105, 16: 130, 32: 109, 64: 111}
    calls = iter(range(1, 100))
    now, waits = [0], []
    monkeypatch.setattr(jax, "block_until_ready", lambda arrays: waits.append(now[0]))
    library = SimpleNamespace(malloc_trim=lambda pad: trims.append(now[0]))
    monkeypatch.setattr(freed_memory, "_is_kept", lambda: True)
    monkeypatch.setattr(freed_memory, "c_library", lambda: library)
    monkeypatch.setattr(freed_memory, "request_huge_pages", lambda pieces, step_runs: None)
    monkeypatch.setattr(freed_memory, "resident_bytes", lambda: resident.get(now[0], 100))
    steps = freed_memory.StepMemory(1 << 30)
    for now[0] in calls:
        steps.tidy(None if now[0] == 1 else (jnp.zeros(2), "a name"))
    assert trims == [1, 2, 2, 3, 3, 16, 64]
    assert waits == [2, 3, 4, 8, 16, 32, 64]  # what a step took is free when its results are there


def test_memory_of_a_step_without_results_stays_as_it_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []
    monkeypatch.setattr(freed_memory, "give_back", lambda step_runs: calls.append(step_runs))
    steps = freed_memory.StepMemory(1 << 30)
    for results in (None, (None,), (None,)):
        steps.tidy(results)
    assert calls == [False, True, True]


def test_where_nothing_is_kept_nothing_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Systems other than Linux have no such file."""
    monkeypatch.setattr(freed_memory, "_is_kept", lambda: False)
    monkeypatch.setattr(freed_memory, "resident_bytes", lambda: pytest.fail("asked"))
    steps = freed_memory.StepMemory(1 << 30)
    for _ in range(20):
        steps.tidy()
    assert steps._usual is None


class Moved(Clock):
    """A clock that is moved by hand."""

    time = 0.0

    def now(self) -> float:
        return self.time


@pytest.mark.parametrize("nbytes", [1 << 20, 1 << 30])
def test_memory_that_is_three_times_as_much_goes_back_at_once(nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of programs with few variables, too, whose steps may take much beside them. What does not go is usual then."""
    clock, gave = Moved(), []
    resident = iter([100, 299, 300, 250, 749, 750, 120, 749])  # when looked at, and after what was given back
    looked: list[float] = []
    monkeypatch.setattr(freed_memory, "give_back", lambda step_runs: gave.append((clock.time, step_runs)))
    monkeypatch.setattr(freed_memory, "resident_bytes", lambda: looked.append(clock.time) or next(resident))
    monkeypatch.setattr(freed_memory, "_is_kept", lambda: False)
    steps = freed_memory.StepMemory(nbytes, clock)
    for _ in range(16):
        steps.tidy((jnp.zeros(2),))
    gave.clear()
    monkeypatch.setattr(freed_memory, "_is_kept", lambda: True)
    for call in range(12):  # each second one comes too early
        clock.time = 1 + call / 16
        steps.tidy((jnp.zeros(2),) if call < 8 else ("no array",))
    assert looked == [1.0, 1.125, 1.25, 1.25, 1.375, 1.5, 1.5, 1.625]
    assert gave == [(1.25, False), (1.5, True)]


def test_what_is_done_now_and_then_takes_a_three_hundredth_of_the_time() -> None:
    clock, done = Moved(), []

    def do() -> float:
        done.append(clock.time)
        clock.time += 0.25
        return 0.75

    now_and_then = NowAndThen(do, 1 / 300, clock)
    for second in range(1000):
        clock.time = float(second)
        now_and_then()
    assert done == [10.0, 311.0, 612.0, 913.0]  # each took until 0.25, and 300 times a second passed


@pytest.mark.parametrize("is_enabled", [True, False])
def test_cycles_are_collected_between_epochs_unless_the_program_has_switched_that_off(
    is_enabled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cycle:
        def __init__(self) -> None:
            self.own = self

    clock = Moved()
    monkeypatch.setattr(
        freed_memory, "_BETWEEN_EPOCHS", [NowAndThen(each._do, 0.01, clock) for each in freed_memory._BETWEEN_EPOCHS]
    )
    gone = weakref.ref(Cycle())
    was_enabled = gc.isenabled()
    (gc.enable if is_enabled else gc.disable)()
    try:
        freed_memory.tidy_between_epochs()
        clock.time = 10.0
        freed_memory.tidy_between_epochs()
    finally:
        (gc.enable if was_enabled else gc.disable)()
    assert (gone() is None) == is_enabled


@pytest.mark.parametrize(
    ("megabytes", "huge", "seconds"), [(20, False, 0.008), (20, True, 0.002), (500, False, 1.25), (500, True, 1.25)]
)
def test_freed_memory_goes_back_between_epochs(
    megabytes: int, huge: bool, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[bool] = []
    resident = iter([200 + megabytes, 200])
    monkeypatch.setattr(freed_memory, "_is_kept", lambda: True)
    monkeypatch.setattr(freed_memory, "are_on_request", lambda: huge)
    monkeypatch.setattr(freed_memory, "give_back", lambda keep_large: calls.append(keep_large))
    monkeypatch.setattr(freed_memory, "resident_bytes", lambda: next(resident) * 1_000_000)
    assert freed_memory.EpochMemory()() == pytest.approx(seconds)
    assert calls == [False]


def test_much_that_the_next_epoch_takes_again_stays_unless_it_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after each call: little goes back each time, much stays until it is a tenth more than usual."""
    found = [(400, 300), (320, 300), (640, 630), (660, 650), (700, 690), (710, 300), (650, 640), (660, 650)]
    kept: list[bool] = []
    resident = iter([number * 1_000_000 for pair in found for number in pair])
    monkeypatch.setattr(freed_memory, "_is_kept", lambda: True)
    monkeypatch.setattr(freed_memory, "give_back", lambda keep_large: kept.append(keep_large))
    monkeypatch.setattr(freed_memory, "resident_bytes", lambda: next(resident))
    memory = freed_memory.EpochMemory()
    for _ in found:
        memory()
    assert kept == [False, False, True, True, True, False, True, True]


@pytest.mark.parametrize(
    ("keep_large", "huge", "order"),
    [
        (False, True, ["trim", "hold", "request"]),
        (True, True, ["hold", "trim", "request"]),
        (False, False, ["trim"]),  # to look for pieces takes addresses, which count where there is a limit
        (True, False, ["hold", "trim"]),
    ],
)
def test_what_is_held_does_not_go_back(
    keep_large: bool, huge: bool, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    did: list[str] = []

    @contextlib.contextmanager
    def free_pieces() -> Iterator[list[Piece]]:
        did.append("hold")
        yield []

    monkeypatch.setattr(freed_memory, "_is_kept", lambda: True)
    monkeypatch.setattr(freed_memory, "are_on_request", lambda: huge)
    monkeypatch.setattr(freed_memory, "free_pieces", free_pieces)
    monkeypatch.setattr(freed_memory, "request_huge_pages", lambda pieces, step_runs: did.append("request"))
    monkeypatch.setattr(freed_memory, "c_library", lambda: SimpleNamespace(malloc_trim=lambda pad: did.append("trim")))
    freed_memory.give_back(keep_large=keep_large)
    assert did == order


def test_the_time_that_a_process_is_busy_is_that_of_all_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that waits for data, or for another one, gives back no more often for it."""
    monkeypatch.setattr(freed_memory, "available_cores", lambda: 4)
    monkeypatch.setattr(time, "process_time", lambda: 6.0)
    assert freed_memory.BusyClock().now() == 1.5


def test_an_epoch_of_fit_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(freed_memory, "_BETWEEN_EPOCHS", [lambda: calls.append(1)])
    with stratagem.OneDeviceStrategy("cpu:0").scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(np.ones((4, 2)), np.ones((4, 1)), epochs=3, verbose=0)
    assert len(calls) == 3


def test_epochs_of_fit_leave_no_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does what is done at their ends now and then, which here is done at each."""
    freed_memory.keep_freed_memory()
    monkeypatch.setattr(freed_memory, "_BETWEEN_EPOCHS", [each._do for each in freed_memory._BETWEEN_EPOCHS])
    found: list[int] = []

    class Collect(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: object = None) -> None:
            found.append(gc.collect())

    with stratagem.MultiWorkerMirroredStrategy().scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    x, y = np.ones((8, 2)), np.ones((8, 1))
    model.fit(x, y, batch_size=2, epochs=5, verbose=0, validation_data=(x, y), callbacks=[Collect()])
    assert found[3:] == [0, 0]  # a walk over the steps of a dataset left 50 objects an epoch
