"""Rows of a large embedding on parameter servers: bytes and time of a step, against the rows that it looks up.

stratagem run --ps 2 --workers 1 benchmarks/embedding_traffic.py
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import stratagem
from stratagem import keras
from stratagem.ps.task import current_task


def traffic() -> tuple[int, int]:
    """Return the bytes that this worker has received from the parameter servers, and sent to them."""
    return current_task().residence.servers.traffic


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--columns", type=int, default=16)
    parser.add_argument("--looked-up", type=int, nargs="+", default=[100, 1_000, 10_000, 100_000])
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()

    partitioner = stratagem.experimental.partitioners.FixedShardsPartitioner(2)
    strategy = stratagem.ParameterServerStrategy(variable_partitioner=partitioner)
    coordinator = stratagem.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        layer = keras.layers.Embedding(options.rows, options.columns, embeddings_initializer="zeros")
        layer.build()
        optimizer = keras.optimizers.Adagrad(0.1)

    @stratagem.function
    def step(ids: Any) -> Any:
        with stratagem.GradientTape() as tape:
            loss = keras.ops.mean((layer(ids) - 1.0) ** 2)
        optimizer.apply(tape.gradient(loss, layer.trainable_variables), layer.trainable_variables)
        return loss

    def run(ids: np.ndarray) -> None:
        coordinator.schedule(step, args=(ids,)).fetch()

    random = np.random.default_rng(0)
    print(
        f"A table of {options.rows:,} rows of {options.columns} numbers: {options.rows * options.columns * 4:,} bytes."
    )
    print(
        "| rows looked up | bytes read | bytes sent | bytes per row, both ways | ms/step |\n| --- " + "| --- " * 4 + "|"
    )
    for count in options.looked_up:
        batches = [random.choice(options.rows, count, replace=False).astype("int32") for _ in range(options.steps)]
        run(batches[0])  # compiles
        before, begin = coordinator.schedule(traffic).fetch(), time.perf_counter()
        for batch in batches:
            run(batch)
        seconds = time.perf_counter() - begin
        after = coordinator.schedule(traffic).fetch()
        read, sent = ((new - old) / options.steps for new, old in zip(after, before, strict=True))
        per_row, milliseconds = (read + sent) / count, seconds / options.steps * 1000
        print(f"| {count:,} | {read:,.0f} | {sent:,.0f} | {per_row:.1f} | {milliseconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
