"""Cost of `ElasticState.commit`: alone, and behind each step of a loop, in turns with it and without.

stratagem run --workers 2 --spares 1 benchmarks/elastic_loop_cost.py
stratagem run --workers 2 --spares 1 benchmarks/elastic_loop_cost.py --layers 30     more variables in smaller steps
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np

import stratagem
from stratagem import keras


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100, help="steps of a turn")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--layers", type=int, default=0, help="dense layers beside the convolution")
    options = parser.parse_args()
    strategy = stratagem.MultiWorkerMirroredStrategy()
    rng = np.random.default_rng(0)
    x, y = rng.random((64, 28, 28, 1), "float32"), rng.integers(0, 10, 64)
    dataset = stratagem.data.Dataset.from_tensor_slices((x, y)).batch(64)
    batches = strategy.experimental_distribute_dataset(dataset)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((28, 28, 1)),
                keras.layers.Conv2D(32, 3, activation="relu"),
                keras.layers.MaxPooling2D(),
                keras.layers.Flatten(),
                *(keras.layers.Dense(64, activation="relu") for _ in range(options.layers + 1)),
                keras.layers.Dense(10),
            ]
        )
        optimizer = keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)
    losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)

    def step(batch: Any) -> None:
        with stratagem.GradientTape() as tape:
            loss = stratagem.nn.compute_average_loss(losses(batch[1], model(batch[0], training=True)))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    seconds: dict[bool, list[float]] = {False: [], True: []}
    alone: list[float] = []

    def loop(state: Any) -> None:
        (batch,) = batches
        for turn in range(options.turns + 1):
            for commits in (False, True) if turn % 2 else (True, False):
                began = time.perf_counter()
                for _ in range(options.steps):
                    strategy.run(step, args=(batch,))
                    if commits:
                        state.commit()
                if turn:  # the first compiles
                    seconds[commits].append((time.perf_counter() - began) / options.steps)
                state.commit()
        for _ in range(200):
            began = time.perf_counter()
            state.commit()
            alone.append(time.perf_counter() - began)

    state = stratagem.ElasticState(strategy, model=model, optimizer=optimizer)
    state.run(loop)
    if strategy.is_chief:
        plain, with_commits = (statistics.median(seconds[commits]) for commits in (False, True))
        ratios = [b / a for a, b in zip(seconds[False], seconds[True], strict=True)]
        print(
            f"{len(model.variables) + len(optimizer.variables)} variables; a commit takes "
            f"{statistics.median(alone) * 1e3:.3f} ms; a step: {plain * 1e3:.3f} ms without, "
            f"{with_commits * 1e3:.3f} ms with a commit; median of the turns' ratios {statistics.median(ratios):.4f}"
        )


if __name__ == "__main__":
    main()
