"""How fast values travel between the replicas, and whether a dataset is read once."""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from stratagem.data import Dataset
from stratagem.doctor.findings import Finding, passed
from stratagem.replica.context import current_replica_context
from stratagem.strategy.base import Strategy

_SMALL: Final = 1
_LARGE: Final = 4 * 2**20
"""Values of float32 in a large sum: 16 MiB, a few times the gradients of the tutorials' network."""

_ROUNDS: Final = 7
_SLOW_SECONDS: Final = 0.02
"""A small sum that takes longer makes every step longer: 1-4 ms on one machine, under 1 ms on a good network."""


def measure_sums(strategy: Strategy, clock: Callable[[], float] = time.perf_counter) -> Finding:
    """Time a small and a large sum over all replicas. All workers call it."""
    replicas = strategy.num_replicas_in_sync
    if replicas == 1:
        return passed("all-reduce", "one replica: nothing travels")
    latency, large = (_seconds(strategy, size, clock) for size in (_SMALL, _LARGE))
    # Bytes that each replica has to send, whatever the algorithm: 2 (n - 1) / n of the array.
    moved = 4 * _LARGE * 2 * (replicas - 1) / replicas
    found = f"{1000 * latency:.1f} ms for one value, {moved / large / 2**30:.2f} GiB/s for {4 * _LARGE >> 20} MiB"
    if latency > _SLOW_SECONDS:
        return Finding(
            "all-reduce",
            "warn",
            f"{found}, over {replicas} replicas",
            "See that the tasks do not share cores (stratagem run divides them), and use the fastest network.",
        )
    return passed("all-reduce", f"{found}, over {replicas} replicas")


def _seconds(strategy: Strategy, size: int, clock: Callable[[], float]) -> float:
    def total(values: jax.Array) -> jax.Array:
        context = current_replica_context()
        assert context is not None
        return context.all_reduce("SUM", values)

    values = jnp.ones((size,), "float32")
    times = []
    for _ in range(_ROUNDS + 1):
        start = clock()
        result = strategy.experimental_local_results(strategy.run(total, (values,)))[0]
        np.asarray(result[:1])
        times.append(clock() - start)
    return statistics.median(times[1:])  # the first one compiles


def check_dataset(strategy: Strategy, dataset: Dataset, everybody: Callable[[Any], Sequence[Any]]) -> Finding:
    """Read one pass of a global dataset as training would, and compare with reading it alone.

    Args:
        strategy: What distributes it.
        dataset: A batched dataset that ends.
        everybody: Returns what every worker says, in order.
    """
    if dataset.cardinality() < 0:
        return Finding("dataset", "FAIL", "The dataset has no end, or none that is known.", "Give it without repeat().")
    alone = _digest(jax.tree.leaves(batch) for batch in dataset)
    own = _digest(
        jax.tree.leaves(part)
        for batch in strategy.experimental_distribute_dataset(dataset)
        for part in strategy.experimental_local_results(batch)
    )
    said = everybody([own[0], str(own[1])])
    together = (sum(rows for rows, _ in said), sum(int(total) for _, total in said) % 2**128)
    shares = ", ".join(str(rows) for rows, _ in said)
    if together == alone:
        return passed("dataset", f"each of {alone[0]} examples once (shares: {shares})")
    return Finding(
        "dataset",
        "FAIL",
        f"{alone[0]} examples, of which the workers read {together[0]} (shares: {shares})",
        "Some come twice or never. Give the global dataset, the same on every worker, and let it be sharded; "
        "with AutoShardPolicy.OFF each worker has to take its own part.",
    )


def _digest(batches: Iterable[Sequence[Any]]) -> tuple[int, int]:
    """Return the number of examples, and the sum of their hashes, which does not depend on their order."""
    rows = total = 0
    for leaves in batches:
        columns = [_as_on_devices(np.asarray(leaf)) for leaf in leaves]
        for row in range(len(columns[0])):
            text = b"".join(column[row].tobytes() for column in columns)
            total = (total + int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "little")) % 2**128
        rows += len(columns[0])
    return rows, total


def _as_on_devices(values: np.ndarray) -> np.ndarray:
    """Return values in the dtype that JAX would give them (float32 for float64)."""
    return np.ascontiguousarray(values, jax.dtypes.canonicalize_dtype(values.dtype))
