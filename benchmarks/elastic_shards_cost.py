"""Cost of shards where workers may die: a step of `fit` with and without them, in turns.

stratagem run --workers 2 --spares 1 benchmarks/elastic_shards_cost.py
stratagem run --workers 2 --spares 1 benchmarks/elastic_shards_cost.py --shards backup     without copies
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np

import stratagem
from stratagem import keras

STEPS, ROWS, FEATURES = 24, 64, 256


class Times(keras.callbacks.Callback):
    """Callback that notes the milliseconds of a step in each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[float] = []
        self._began = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._began = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.steps.append(1000 * (time.perf_counter() - self._began) / STEPS)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--width", type=int, default=1024, help="units of each of four dense layers")
    parser.add_argument("--shards", choices=("copies", "backup"), default="copies")
    options = parser.parse_args()
    elastic = stratagem.ElasticOptions(shards=options.shards)
    x = np.random.default_rng(0).random((STEPS * ROWS, FEATURES), "float32")
    dataset = stratagem.data.Dataset.from_tensor_slices((x, np.arange(len(x)) % 2)).batch(ROWS)
    models: dict[str | None, tuple[Any, Times]] = {}
    for stage in (None, "optimizer", "parameters"):
        strategy = stratagem.MultiWorkerMirroredStrategy(shard=stage, elastic=elastic)
        with strategy.scope():
            layers = [keras.layers.Dense(options.width, activation="relu") for _ in range(4)]
            model = keras.Sequential([keras.Input((FEATURES,)), *layers, keras.layers.Dense(2)])
            model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        models[stage] = model, Times()
    for turn in range(options.turns):
        for stage in list(models)[:: 1 if turn % 2 else -1]:
            model, times = models[stage]
            model.fit(dataset, epochs=2, verbose=0, callbacks=[times])
    if strategy.is_chief:
        print(f"{model.count_params():,} weights with Adam, {options.shards}:")
        whole = statistics.median(models[None][1].steps[1::2])
        for stage, (_, times) in models.items():
            step = statistics.median(times.steps[1::2])  # the first epoch of each turn begins with what is prepared
            print(f"  shard={stage!r}: {step:.1f} ms a step, {step / whole:.2f} times as long as without")


if __name__ == "__main__":
    main()
