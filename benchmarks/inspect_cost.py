"""Cost of `Inspect(every=50)` for the tutorials' network: epochs with it and without, in turns.

python benchmarks/inspect_cost.py                               one device
stratagem run --workers 2 benchmarks/inspect_cost.py            two workers, which compare their replicas
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

import stratagem
from stratagem import keras


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100, help="steps of an epoch")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--optimizer", default="sgd")
    parser.add_argument("--without", action="store_true", help="compare nothing with nothing: what is noise")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    x, y = rng.random((64 * options.steps, 28, 28, 1), "float32"), rng.integers(0, 10, 64 * options.steps)
    strategy = stratagem.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((28, 28, 1)),
                keras.layers.Conv2D(32, 3, activation="relu"),
                keras.layers.MaxPooling2D(),
                keras.layers.Flatten(),
                keras.layers.Dense(64, activation="relu"),
                keras.layers.Dense(10),
            ]
        )
        model.compile(options.optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    inspect = stratagem.callbacks.Inspect(every=50)
    seconds: dict[bool, list[float]] = {False: [], True: []}
    work: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(options.turns + 1):
        for is_inspected in (False, True) if turn % 2 else (True, False):
            callbacks = [inspect] if is_inspected and not options.without else []
            began, worked = time.perf_counter(), time.process_time()
            model.fit(x, y, batch_size=64, shuffle=False, verbose=0, callbacks=callbacks)
            if turn:  # the first compiles
                seconds[is_inspected].append((time.perf_counter() - began) / options.steps)
                work[is_inspected].append((time.process_time() - worked) / options.steps)
    if strategy.is_chief:
        for name, measured in (("time", seconds), ("work of the processor", work)):
            plain, inspected = (statistics.median(measured[key]) for key in (False, True))
            ratios = [b / a for a, b in zip(measured[False], measured[True], strict=True)]
            print(
                f"{name} of a step: {plain * 1e3:.3f} ms without, {inspected * 1e3:.3f} ms with; "
                f"median of the turns' ratios {statistics.median(ratios):.4f}"
            )


if __name__ == "__main__":
    main()
