"""Step time, bytes sent and accuracy of the MNIST network with compressed gradients, on two workers of this machine.

    python benchmarks/compressed_gradients.py [--epochs 3] [--steps 70] [--ways RING AUTO] [--write]

Bytes are those that a worker sends over the loopback device, so nothing else may use it meanwhile; through memory
(AUTO) it sends none. Each worker is bound to one core. All start with the same weights and see the same batches.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from mnist_cnn.network import network
from pages import page, save
from step_time import prepare_data

import stratagem
from stratagem import keras
from stratagem.testing import run_workers

NAMES = ("none", "bf16", "int8", "powersgd")
BATCH = 128
WARM_UP = 10
"""Steps that do not count: the first ones compile."""


class _Clock(keras.callbacks.Callback):
    """Notes when each step ends, and what has been sent by then."""

    def __init__(self) -> None:
        super().__init__()
        self.marks: list[tuple[float, int]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.marks.append((time.perf_counter(), sent_bytes()))


def sent_bytes() -> int:
    """Return the bytes that this machine has sent to itself."""
    (line,) = [line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:")]
    return int(line.split(":")[1].split()[8])


def measured(data: str, way: str, epochs: int, steps: int, cores: list[int]) -> list[list[Any]]:
    """Train with each compression on this worker; return a row of the table for each."""
    index = stratagem.cluster_resolver.TFConfigClusterResolver().task_id or 0
    os.sched_setaffinity(0, {cores[index % len(cores)]})
    with np.load(data) as arrays:
        x, y = arrays["x"], arrays["y"]
    last = min(len(x) // 5, 2000)
    rows = []
    for name in NAMES:
        chosen: Any = None if name == "none" else name
        implementation = stratagem.CommunicationImplementation[way]
        options = stratagem.CommunicationOptions(implementation=implementation, compression=chosen)
        strategy = stratagem.MultiWorkerMirroredStrategy(communication_options=options)
        keras.utils.set_random_seed(0)
        with strategy.scope():
            model = network(keras)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(keras.optimizers.SGD(0.01, momentum=0.9), loss=loss, metrics=["accuracy"])
        clock = _Clock()
        dataset = (
            stratagem.data.Dataset.from_tensor_slices((x[:-last], y[:-last])).shuffle(len(x)).repeat().batch(BATCH)
        )
        history = model.fit(dataset, epochs=epochs, steps_per_epoch=steps, verbose=0, callbacks=[clock]).history
        accuracy = model.evaluate(x[-last:], y[-last:], batch_size=BATCH, verbose=0)[1]
        marks = clock.marks[WARM_UP:]
        pairs = list(itertools.pairwise(marks))
        ms = 1e3 * statistics.median(after[0] - before[0] for before, after in pairs)
        sent = statistics.median(after[1] - before[1] for before, after in pairs) / strategy.worker_count
        rows.append([way, name, f"{ms:.1f}", f"{sent / 1e6:.2f}", f"{history['loss'][-1]:.4f}", f"{accuracy:.2%}"])
    return rows


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3, help="epochs of each training")
    parser.add_argument("--steps", type=int, default=70, help="steps in an epoch")
    parser.add_argument("--ways", nargs="+", choices=["RING", "AUTO"], default=["RING", "AUTO"], help="Gloo, memory")
    parser.add_argument("--write", action="store_true", help="save the page in benchmarks/results")
    arguments = parser.parse_args()
    if arguments.epochs * arguments.steps < 2 * WARM_UP:
        parser.error(f"--epochs times --steps: {2 * WARM_UP} or more")
    cores = sorted(os.sched_getaffinity(0))
    rows: list[list[Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        data, title = prepare_data(Path(folder))
        for way in arguments.ways:
            args = [str(data), way, arguments.epochs, arguments.steps, cores]
            rows += run_workers(measured, 2, args=args, timeout_seconds=600)[0].value
    columns = ["way", "compression", "ms/step", "MB sent/step", "loss", "accuracy"]
    lines = [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
    facts = [f"{title}; {arguments.epochs} epochs of {arguments.steps} steps, {BATCH} rows for both workers together"]
    text = page("Compressed gradients of the MNIST network", facts, "\n".join(lines))
    print(text)
    if arguments.write:
        print(f"written: {save('compression', text)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
