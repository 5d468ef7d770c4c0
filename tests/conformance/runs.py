"""The table on virtual devices, in a process with double precision, and on the workers of a cluster."""

from __future__ import annotations

import functools
import json
import os
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import keras
import pytest
from tests.conformance import inputs
from tests.conformance.compat import keep_double_precision
from tests.conformance.table import ALL, EXCEPTIONS, ROWS, SHAPES, Record, Row, Tolerance, differences, run

import stratagem
from stratagem.testing import run_workers

Outcome = Record | str
"""What a row recorded; or the traceback of what went wrong, so that other rows still tell."""

TABLE_SECONDS = 540.0
"""For a whole table, on a machine that is busy; an idle one with two cores takes a tenth of that."""

# The first test that needs a cluster waits for the whole table to run on it.
needs_whole_table = pytest.mark.timeout(TABLE_SECONDS + 60)


@functools.cache
def mirrored(replicas: int) -> stratagem.MirroredStrategy:
    """Return the strategy on the first virtual devices."""
    return stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)])


@functools.cache
def sharded(stage: str, replicas: int) -> stratagem.MirroredStrategy:
    """Return the strategy on the first virtual devices that keeps what a stage says in shards, however small."""
    return stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)], shard=stage, shard_min_size=1)


@functools.cache
def grouped(shard: str | None) -> stratagem.MirroredStrategy:
    """Return the strategy of two replicas of two virtual devices each, which divide all that divides."""
    return stratagem.MirroredStrategy([f"cpu:{i}" for i in range(4)], model_parallel=2, shard=shard, shard_min_size=1)


@functools.cache
def central() -> stratagem.CentralStorageStrategy:
    """Return the strategy that computes on three virtual devices and keeps variables on a fourth."""
    return stratagem.CentralStorageStrategy(["cpu:0", "cpu:1", "cpu:2"], parameter_device="cpu:3")


@functools.cache
def reference(name: str) -> Record:
    """Run a row on plain Keras, in single precision."""
    return run(ALL[name], None)


def outcome(do: Callable[[], Record]) -> Outcome:
    try:
        return do()
    except Exception:
        return traceback.format_exc()


def check(found: Outcome, expected: Outcome, tolerance: Tolerance | None) -> None:
    """Assert that a row recorded what it should; a tolerance of None means in every bit."""
    assert not isinstance(expected, str), expected
    assert not isinstance(found, str), found
    different = differences(found, expected, tolerance)
    assert not different, "\n".join(different)


def begin_worker() -> None:
    """Do in a worker what pyproject.toml says for pytest."""
    warnings.simplefilter("error")
    # Keras's metrics cast to int64, which JAX holds as int32, and it traces with it; plain Keras warns as well.
    for place in ("asarray", "ShapeDtypeStruct"):
        warnings.filterwarnings("ignore", f"Explicitly requested dtype int64 requested in {place} is not available")


# Several workers -----------------------------------------------------------------------------------


def on_worker(names: Iterable[str], stage: str | None = None) -> dict[str, Outcome]:
    """Run rows as one worker of a cluster, with what a stage says in shards."""
    begin_worker()
    strategy = stratagem.MultiWorkerMirroredStrategy(shard=stage, shard_min_size=stage and 1)
    return {name: outcome(lambda name=name: run(ALL[name], strategy)) for name in names}


def rows_for(workers: int) -> list[str]:
    """Name the rows that run on so many workers.

    What more than two workers change is who reads which rows of a batch, and who has none. So only what differs in that
    runs on four, and what computes across replicas: batch statistics, and the exceptions. Four processes on two cores
    compile for minutes. Two workers run what is exchanged in another way; what an optimizer or a loss does with what
    was exchanged, or with even batches where there is a row with uneven ones, is seen on virtual devices.
    """
    if workers <= 2:
        return [name for name in ROWS if name not in _EXCHANGED_AS_OTHERS]
    return [name for name in ALL if name in _READ_APART or name in EXCEPTIONS or "synchronized" in name]


_EXCHANGED_AS_OTHERS = (
    "add_loss",
    "clipnorm",
    "clipvalue",
    "even",
    "own compute_loss",
    "own train_step",
    "sum",
    "synchronized batch norm",
)
_READ_APART = ("uneven", "sample_weight", "shuffled dataset", "generator", "validation_data", "validation_split")


QUICK = (
    "cnn",
    "generator",
    "masked lstm, sample_weight",
    "mixed_float16",
    "own train_step, uneven",
    "steps_per_execution",
    "synchronized batch norm, uneven",
    "two outputs, sample_weight",
    "uneven",
    "validation_data",
)
"""The rows that `make test` runs in this process: each kind of model, step and data once."""


QUICK_ELSEWHERE = ("uneven",)
"""The rows that `make test` runs where variables lie at a centre or in shards: what passes there is the same."""


def in_tiers(names: Iterable[str], quick: Sequence[str] = QUICK) -> list[Any]:
    """Return rows for parametrize; `make test-all` alone runs those that are not quick."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.thorough) for name in names]


CHOSEN = ("uneven", "synchronized batch norm, uneven")
"""Rows that `make test` runs on two workers: shares that differ, sums within the step."""


def is_chosen(workers: int, name: str) -> bool:
    """Tell whether `make test` runs a row on so many workers."""
    return workers == 2 and name in CHOSEN


def on_workers(workers: int, name: str) -> list[Outcome]:
    """Return what each worker of a cluster recorded of a row."""
    return [outcomes[name] for outcomes in _cluster(workers, is_chosen(workers, name))]


@functools.cache
def _cluster(workers: int, chosen: bool) -> list[dict[str, Outcome]]:
    """Run the chosen rows, or all others, in one go: starting a cluster takes as long as several rows."""
    names = [name for name in rows_for(workers) if is_chosen(workers, name) == chosen]
    results = run_workers(on_worker, workers, args=[names], timeout_seconds=TABLE_SECONDS)
    return [result.value for result in results]


UPDATED_ELSEWHERE = (
    "uneven",
    "steps_per_execution",
    "accumulation, uneven",
    "loss scale shrinks and grows",
    "averaged weights, schedule, weight decay",
    "global_clipnorm",
    "frozen base",
    "masked lstm, sample_weight",
    "own train_step, uneven",
    "synchronized batch norm, uneven",
    "two outputs, sample_weight",
    "validation_data",
)
"""Rows in which an update, a sum or a weight at a centre or in shards differs from one that is whole on each device."""

CHOSEN_STAGES = (("optimizer", 2), ("parameters", 2), ("parameters", 3), ("optimizer", 4))
"""Stages, and numbers of virtual devices, at which these rows run in shards in `make test-all`."""

SHARDED_ON_WORKERS = {
    (2, "optimizer"): UPDATED_ELSEWHERE,
    (2, "parameters"): UPDATED_ELSEWHERE,
    (4, "parameters"): UPDATED_ELSEWHERE[:3],
}
"""The rows by number of workers and stage."""


@functools.cache
def on_workers_in_shards(workers: int, stage: str) -> list[dict[str, Outcome]]:
    """Return what each worker recorded of the rows that run in shards."""
    names = [*SHARDED_ON_WORKERS[workers, stage]]
    results = run_workers(on_worker, workers, args=[names, stage], timeout_seconds=TABLE_SECONDS)
    return [result.value for result in results]


# Double precision ----------------------------------------------------------------------------------


def sizes_of(name: str) -> tuple[int, ...]:
    """Return on how many virtual devices a row is compared in double precision.

    On three, shares are unequal where the batch does not divide, and sums of three have no exact halves: a model with
    the common data that agrees there agrees on two and four, which compiling twice more would cost a minute to show.
    Each shape of data meets all sizes with one model.
    """
    return (2, 3, 4) if name in SHAPES and ROWS[name].shape is not inputs.tail else (3,)


def begin_double_precision() -> None:
    """Set up a process that computes in float64: precision is a setting of the whole process."""
    begin_worker()
    jax.config.update("jax_enable_x64", True)
    keras.config.set_floatx("float64")
    keep_double_precision()


def own_half(names: list[str]) -> list[str]:
    """Return this process's names: two processes that know nothing of each other share the work."""
    return names[json.loads(os.environ["TF_CONFIG"])["task"]["index"] :: 2]


def in_double_precision(names: list[str]) -> dict[str, dict[int, Outcome]]:
    """Run every other row on plain Keras (number 0) and on virtual devices, all in float64."""
    begin_double_precision()

    def outcomes(row: Row) -> dict[int, Outcome]:
        found = {size: outcome(lambda size=size: run(row, mirrored(size))) for size in sizes_of(row.name)}
        return {0: outcome(lambda: run(row, None)), **found}

    return {name: outcomes(ROWS[name]) for name in own_half(names)}


@functools.cache
def double_precision() -> dict[str, dict[int, Outcome]]:
    """Run all rows that double precision suits."""
    names = [row.name for row in ROWS.values() if row.float64]
    results = run_workers(in_double_precision, 2, args=[names], devices_per_worker=4, timeout_seconds=TABLE_SECONDS)
    return {name: outcomes for result in results for name, outcomes in result.value.items()}
