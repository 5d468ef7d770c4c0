"""What it brings to say differently what XLA:CPU is slow at: steps with and without `stratagem.program.rules.cpu`.

The networks of two tutorials, which are made of such spots, on one core: that of "Custom training with
tf.distribute.Strategy" (max-pooling; 64 rows of 28x28) and a ResNet-18 (512 channels on images of 2x2; 16 rows of
64x64). Contenders take turns, so that a ratio compares neighbours in time. Page faults tell what of it is memory that
the C library takes from the system anew at every step.
Run `python benchmarks/weak_spots.py [--only custom_training] [--rounds N]`.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import sys
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = os.environ["PJRT_NPROC"] = "1"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import custom_loop
import numpy as np
import resnet

import stratagem
from stratagem import keras
from stratagem.core.environment import XLA_AS_IS

ROWS = {"custom_training": 64, "resnet": 16}
SHAPES = {"custom_training": (28, 28, 1), "resnet": (64, 64, 3)}
STEPS = {"custom_training": 20, "resnet": 2}
CONTENDERS = ("as JAX made it", "said differently")


def make_model(name: str) -> keras.Model:
    """Return a compiled network of an example."""
    keras.utils.set_random_seed(0)
    with stratagem.OneDeviceStrategy("cpu:0").scope():
        if name == "resnet":
            return resnet.make_resnet(SHAPES[name][0], filters=64, blocks=2)
        model = custom_loop.create_model()
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def make_data(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return random images with labels, enough for the steps of a round."""
    rng = np.random.default_rng(0)
    rows = ROWS[name] * STEPS[name]
    labels = rng.integers(0, 10, rows)
    images = rng.random((rows, *SHAPES[name]), np.float32)
    return images, np.eye(10, dtype=np.float32)[labels] if name == "resnet" else labels


def measure(name: str, rounds: int) -> None:
    """Print the step of one network in both ways."""
    data = make_data(name)
    models = {contender: make_model(name) for contender in CONTENDERS}
    times: dict[str, list[float]] = {contender: [] for contender in CONTENDERS}
    faults = dict.fromkeys(CONTENDERS, 0)
    losses = dict.fromkeys(CONTENDERS, 0.0)
    for turn in range(rounds + 1):  # the first compiles
        for contender, model in models.items():
            os.environ[XLA_AS_IS] = "1" if contender == CONTENDERS[0] else "0"
            before, start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter()
            history = model.fit(*data, batch_size=ROWS[name], epochs=1, shuffle=False, verbose=0)
            seconds = time.perf_counter() - start
            losses[contender] = history.history["loss"][0]
            if turn:
                times[contender].append(seconds / STEPS[name])
                faults[contender] = (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // STEPS[name]
    reference = times[CONTENDERS[0]]
    for contender in CONTENDERS:
        own = times[contender]
        ratio = statistics.median(slow / quick for slow, quick in zip(reference, own, strict=True))
        print(
            f"{name:16} {contender:17} {1000 * statistics.median(own):8.1f} ms/step  {ratio:5.2f} times as fast"
            f"  {faults[contender]:7} page faults/step  loss {losses[contender]:.6f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=ROWS, help="this network alone")
    parser.add_argument("--rounds", type=int, default=5, help="the median of so many is shown")
    options = parser.parse_args()
    for name in [options.only] if options.only else ROWS:
        measure(name, options.rounds)


if __name__ == "__main__":
    main()
