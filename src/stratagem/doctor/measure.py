"""Speed at which values travel between the replicas."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Final

import jax
import jax.numpy as jnp
import numpy as np

from stratagem.core.findings import Finding, passed
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
        return passed("all-reduce", "one replica: nothing to exchange")
    latency, large = (_seconds(strategy, size, clock) for size in (_SMALL, _LARGE))
    # Bytes that each replica has to send, whatever the algorithm: 2 (n - 1) / n of the array.
    moved = 4 * _LARGE * 2 * (replicas - 1) / replicas
    found = f"{1000 * latency:.1f} ms for one value, {moved / large / 2**30:.2f} GiB/s for {4 * _LARGE >> 20} MiB"
    if latency > _SLOW_SECONDS:
        return Finding(
            "all-reduce",
            "warn",
            f"{found}, over {replicas} replicas",
            "Make sure that the tasks do not share cores (stratagem run divides them), and use the fastest network.",
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
