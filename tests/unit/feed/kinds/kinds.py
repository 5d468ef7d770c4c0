"""The kinds of input that `fit` takes beside arrays and our own datasets, each with the same 10 examples."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest

import stratagem
from stratagem.data.batches import whole
from stratagem.feed.kinds.choose import input_of
from stratagem.feed.whole_batches import WholeBatches

ROWS = 10
BATCH = 4


def batch(rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and targets of some rows; the target is the number of the row."""
    rows = np.asarray(rows)
    return np.stack([rows, rows**2], axis=-1).astype("float32"), rows.astype("int32")


def _starts() -> range:
    return range(0, ROWS, BATCH)


class Sequence(keras.utils.PyDataset):
    """Batches by number; notes what it hears of epochs."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.heard: list[str] = []

    def __len__(self) -> int:
        return len(_starts())

    def __getitem__(self, index: int) -> Any:
        return batch(np.arange(index * BATCH, min((index + 1) * BATCH, ROWS)))

    def on_epoch_begin(self) -> None:
        self.heard.append("begin")

    def on_epoch_end(self) -> None:
        self.heard.append("end")


class Rotating(Sequence):
    """Other examples in each epoch."""

    def __getitem__(self, index: int) -> Any:
        _, y = super().__getitem__(index)
        return batch((y + self.heard.count("end")) % ROWS)


class Endless(keras.utils.PyDataset):
    """Says nothing of its length."""

    def __getitem__(self, index: int) -> Any:
        return batch(np.arange(index, index + BATCH) % ROWS)


def generator() -> Iterator[Any]:
    """Yield other batches the longer it goes on, without end."""
    order = np.random.default_rng(3)
    while True:
        yield batch(order.permutation(ROWS)[:BATCH])


class Iterated:
    """Neither a generator nor anything Keras knows."""

    def __iter__(self) -> Iterator[Any]:
        for start in _starts():
            yield list(batch(np.arange(start, min(start + BATCH, ROWS))))  # as torch nests it


def grain_map(repeat: bool = False) -> Any:
    grain = pytest.importorskip("grain")
    dataset = grain.MapDataset.range(ROWS).seed(2).shuffle()
    return (dataset.repeat() if repeat else dataset).map(batch).batch(BATCH)


def grain_filtered() -> Any:
    return grain_map().filter(lambda element: len(element[1]) == BATCH)


def grain_iter() -> Any:
    grain = pytest.importorskip("grain")
    return grain.experimental.WindowShuffleIterDataset(grain_map().to_iter_dataset(), window_size=2, seed=6)


def grain_loader() -> Any:
    grain = pytest.importorskip("grain")
    order = grain.samplers.IndexSampler(ROWS, grain.sharding.NoSharding(), shuffle=True, num_epochs=1, seed=4)
    return grain.DataLoader(
        data_source=[batch(row) for row in range(ROWS)], sampler=order, operations=[grain.transforms.Batch(BATCH)]
    )


def torch_loader(**kwargs: Any) -> Any:
    data = pytest.importorskip("torch.utils.data")
    return data.DataLoader([batch(row) for row in range(ROWS)], batch_size=BATCH, **kwargs)


def torch_seeded() -> Any:
    torch = pytest.importorskip("torch")
    return torch_loader(shuffle=True, generator=torch.Generator().manual_seed(8))


def torch_weighted() -> Any:
    data = pytest.importorskip("torch.utils.data")
    return torch_loader(sampler=data.WeightedRandomSampler(np.arange(1.0, ROWS + 1), ROWS))


def torch_single() -> Any:
    """Batches come from the examples themselves."""
    data = pytest.importorskip("torch.utils.data")
    return data.DataLoader([batch(np.arange(s, min(s + BATCH, ROWS))) for s in _starts()], batch_size=None)


def torch_iterable() -> Any:
    data = pytest.importorskip("torch.utils.data")

    class Rows(data.IterableDataset):
        def __iter__(self) -> Iterator[Any]:
            return map(batch, range(ROWS))

    return data.DataLoader(Rows(), batch_size=BATCH)


def tensorflow(**options: Any) -> Any:
    tf = pytest.importorskip("tensorflow")
    dataset = tf.data.Dataset.from_tensor_slices(batch(np.arange(ROWS))).shuffle(ROWS, **{"seed": 5, **options})
    return dataset.batch(BATCH).map(lambda x, y: (x + 0, y)).prefetch(2)


KINDS: dict[str, Callable[[], Any]] = {
    "PyDataset": Sequence,
    "PyDataset with threads": lambda: Sequence(workers=3, max_queue_size=2),
    "rotating PyDataset": Rotating,
    "rotating PyDataset with threads": lambda: Rotating(workers=2),
    "endless PyDataset": Endless,
    "endless PyDataset with threads": lambda: Endless(workers=2),
    "generator": generator,
    "iterable": Iterated,
    "grain MapDataset": grain_map,
    "repeated grain MapDataset": lambda: grain_map(repeat=True),
    "filtered grain MapDataset": grain_filtered,
    "grain IterDataset": grain_iter,
    "grain DataLoader": grain_loader,
    "torch": torch_loader,
    "shuffled torch": lambda: torch_loader(shuffle=True),
    "torch with drop_last": lambda: torch_loader(shuffle=True, drop_last=True),
    "torch with a generator": torch_seeded,
    "torch with a sampler": torch_weighted,
    "torch of batches": torch_single,
    "torch IterableDataset": torch_iterable,
    "tf.data": tensorflow,
    "repeated tf.data": lambda: tensorflow().repeat(),
}


def alone() -> stratagem.OneDeviceStrategy:
    """Return a strategy of one replica. Not when this module is imported: workers join their cluster first."""
    return stratagem.OneDeviceStrategy("cpu:0")


def model(**compile_arguments: Any) -> Any:
    """Return a compiled model of two replicas."""
    with stratagem.MirroredStrategy(["cpu:0", "cpu:1"]).scope():
        made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        made.compile("sgd", "mse", **compile_arguments)
    return made


def read(value: Any, *, seed: int = 1, count: int = 9) -> list[list[int]]:
    """Return the targets of some batches, as a worker of two reads them."""
    source = WholeBatches(input_of(value, lambda _, __: seed, 2), alone(), rows_of=whole)
    try:
        return [rows.data[1].tolist() for rows in itertools.islice(source.batches(), count)]
    finally:
        source.close()
