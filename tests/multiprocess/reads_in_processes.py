"""A program whose input reads in processes of its own. Its arguments: `unguarded` without main guard, `grain`."""

from __future__ import annotations

import sys
from typing import Any

import keras
import numpy as np

import stratagem


class Batches(keras.utils.PyDataset):
    """Four batches; the inputs depend on how many epochs have ended."""

    epochs = 0

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        rows = np.arange(4 * index, 4 * index + 4, dtype="float32")
        return rows[:, None] * (self.epochs + 1), rows

    def on_epoch_end(self) -> None:
        self.epochs += 1


def grain_loader() -> Any:
    import grain

    rows = [(np.ones(1, "float32"), np.ones((), "float32"))] * 8
    order = grain.samplers.IndexSampler(8, grain.sharding.NoSharding(), num_epochs=1, seed=0)
    return grain.DataLoader(data_source=rows, sampler=order, operations=[grain.transforms.Batch(4)], worker_count=1)


class Sums(keras.callbacks.Callback):
    """Says what an epoch has seen."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        print(f"epoch {epoch}: {logs['seen'] * 16:g}", flush=True)


def main() -> None:
    strategy = stratagem.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
        seen = keras.metrics.MeanMetricWrapper(lambda y_true, y_pred: y_pred[:, 0], name="seen")
        model.compile(keras.optimizers.SGD(0.0), "mse", metrics=[seen])
    data = grain_loader() if "grain" in sys.argv else Batches(workers=1, use_multiprocessing=True, max_queue_size=2)
    model.fit(data, epochs=2, verbose=0, shuffle=False, callbacks=[Sums()])


if __name__ == "__main__" or "unguarded" in sys.argv:
    main()
