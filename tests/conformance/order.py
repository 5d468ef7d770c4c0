"""Which rows a model sees, at which step, on which replica: recorded by a metric inside the compiled step."""

# Keras's layers and operations bear types of all its backends, and arguments those of their defaults.
# pyright: reportOptionalSubscript=false, reportOptionalOperand=false, reportOptionalMemberAccess=false
# pyright: reportOperatorIssue=false, reportAssignmentType=false, reportArgumentType=false

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from keras import layers, ops

import stratagem
from stratagem.data import Dataset

ROWS = 23
BATCH = 5
STEPS = 5
"""An epoch: four batches of 5 rows and one of 3, so with 4 replicas one has none."""

EPOCHS = 3

REPLICAS = 4
"""At most."""

SEED = 100

Batches = list[list[int]]
"""The rows of each step, in order."""


class _Recorder(keras.metrics.Metric):
    """Notes at each step since it was made which rows each replica got, in order. The targets are the rows' numbers."""

    def __init__(self) -> None:
        super().__init__(name="recorder")
        self.step = self.add_variable((), "zeros", dtype="int32", aggregation="only_first_replica", name="step")
        shape = (STEPS * EPOCHS, REPLICAS, BATCH)
        self.seen = self.add_variable(shape, "zeros", dtype="int32", name="seen")  # a row's number plus 1

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        rows = ops.cast(ops.reshape(y_true, (-1,)), "int32")
        context = stratagem.get_replica_context()
        replica = 0 if context is None else context.replica_id_in_sync_group
        now = ops.one_hot(self.step.value, STEPS * EPOCHS, dtype="int32")[:, None, None]
        here = ops.one_hot(replica, REPLICAS, dtype="int32")[:, None]
        self.seen.assign(self.seen + now * here * ops.pad(rows + 1, [[0, BATCH - rows.shape[0]]]))
        self.step.assign(self.step + 1)

    def result(self) -> Any:
        return ops.cast(self.step, "float32")

    def reset_state(self) -> None:
        """Go on through all epochs."""

    def batches(self) -> Batches:
        """Return the rows of each step: the replicas' shares side by side."""
        return [[int(row) - 1 for row in shares.ravel() if row] for shares in np.asarray(self.seen)]


def _arrays(shuffle: bool) -> dict[str, Any]:
    return {"x": np.ones((ROWS, 1), "float32"), "y": np.arange(ROWS), "batch_size": BATCH, "shuffle": shuffle}


def _dataset(
    *, shuffle: bool = False, seed: int | None = 5, repeat: bool = False, generator: bool = False
) -> dict[str, Any]:
    def rows() -> Iterator[Any]:
        for row in range(ROWS):
            yield np.ones(1, "float32"), np.int64(row)

    if generator:
        dataset = Dataset.from_generator(rows)
    else:
        dataset = Dataset.from_tensor_slices((np.ones((ROWS, 1), "float32"), np.arange(ROWS)))
    if shuffle:
        dataset = dataset.shuffle(10, seed=seed)
    if repeat:
        return {"x": dataset.repeat().batch(BATCH), "steps_per_epoch": STEPS}
    return {"x": dataset.batch(BATCH)}


def _interleaved() -> dict[str, Any]:
    def part(first: np.int64) -> Dataset:
        numbers = np.arange(first, ROWS, 3)
        return Dataset.from_tensor_slices((np.ones((len(numbers), 1), "float32"), numbers)).shuffle(10)

    return {"x": Dataset.range(3).interleave(part, cycle_length=2, block_length=2).batch(BATCH)}


def _generator() -> dict[str, Any]:
    def batches() -> Iterator[Any]:
        while True:
            for start in range(0, ROWS, BATCH):
                rows = np.arange(start, min(start + BATCH, ROWS))
                yield np.ones((len(rows), 1), "float32"), rows

    return {"x": batches(), "steps_per_epoch": STEPS}


class _Sequence(keras.utils.PyDataset):
    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> Any:
        rows = np.arange(index * BATCH, min((index + 1) * BATCH, ROWS))
        return np.ones((len(rows), 1), "float32"), rows


def _example(row: int) -> Any:
    return np.ones(1, "float32"), np.int64(row)


def _grain() -> Any:
    return importlib.import_module("grain").MapDataset.range(ROWS).map(_example).batch(BATCH)


def _torch() -> Any:
    torch = importlib.import_module("torch")
    torch.manual_seed(np.random.randint(2**31))  # which keras.utils.set_random_seed leaves alone
    return torch.utils.data.DataLoader([_example(row) for row in range(ROWS)], batch_size=BATCH, shuffle=True)


def _tensorflow() -> Any:
    data = importlib.import_module("tensorflow").data.Dataset
    rows = data.from_tensor_slices((np.ones((ROWS, 1), "float32"), np.arange(ROWS)))
    return rows.shuffle(ROWS, seed=3).batch(BATCH).map(lambda x, y: (x, y)).prefetch(1)


OPTIONAL: dict[str, dict[str, Callable[[], dict[str, Any]]]] = {
    "grain": {
        "grain MapDataset": lambda: {"x": _grain()},
        "grain IterDataset of unknown length": lambda: {"x": _grain().to_iter_dataset()},
    },
    "torch": {"shuffled torch DataLoader": lambda: {"x": _torch()}},
    "tensorflow": {"shuffled tf.data": lambda: {"x": _tensorflow()}},
}
"""Inputs of libraries that may be missing."""

INPUTS: dict[str, Callable[[], dict[str, Any]]] = {
    "arrays": lambda: _arrays(shuffle=False),
    "shuffled arrays": lambda: _arrays(shuffle=True),
    "dataset": _dataset,
    "shuffled dataset": lambda: _dataset(shuffle=True),
    "dataset shuffled without a seed": lambda: _dataset(shuffle=True, seed=None),
    "repeated dataset": lambda: _dataset(repeat=True),
    "shuffled, repeated dataset": lambda: _dataset(shuffle=True, repeat=True),
    "dataset of a generator": lambda: _dataset(generator=True),
    "shuffled dataset of a generator": lambda: _dataset(shuffle=True, generator=True),
    "interleaved datasets, each shuffled without a seed": _interleaved,
    "generator": _generator,
    "PyDataset": lambda: {"x": _Sequence()},
    "PyDataset with threads": lambda: {"x": _Sequence(workers=2)},
}
for library, inputs in OPTIONAL.items():
    INPUTS.update(inputs if importlib.util.find_spec(library) else {})


def batches_seen(name: str, strategy: stratagem.Strategy | None, seed: int = SEED) -> Batches:
    """Train on an input and return the rows of each step.

    Args:
        name: The input.
        strategy: Where; None is plain Keras.
        seed: For the random numbers of this process.
    """
    keras.utils.set_random_seed(seed)
    arguments = INPUTS[name]()
    recorder = _Recorder()
    with strategy.scope() if strategy else keras.name_scope("plain"):
        model = keras.Sequential([keras.Input((1,)), layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse", metrics=[recorder])
    with warnings.catch_warnings():
        # What Keras says at the end of the first pass over data whose length nobody knew.
        unknown = "of a generator" in name or "of unknown length" in name or (strategy is None and "grain" in name)
        warnings.filterwarnings("ignore" if unknown else "error", "Your input ran out of data")
        model.fit(**{"shuffle": False, **arguments}, epochs=EPOCHS, verbose=0)
    return recorder.batches()


def seen_on_worker() -> dict[str, Batches]:
    """Run all inputs as one worker of a cluster. Its random numbers are its own: all must take the chief's."""
    strategy = stratagem.MultiWorkerMirroredStrategy()
    resolver = strategy.cluster_resolver
    own = 0 if resolver is None else int(resolver.task_id or 0)
    return {name: batches_seen(name, strategy, seed=SEED + own) for name in INPUTS}
