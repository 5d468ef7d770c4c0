"""The data of `fit`, `evaluate` and `predict`, as Keras sees it."""

from __future__ import annotations

from typing import Any

import numpy as np

from stratagem.core.errors import InputError, explain
from stratagem.data.dataset import Dataset
from stratagem.fit import compat
from stratagem.fit.batch import GlobalBatch, place_batch
from stratagem.fit.sources import AgreedReader, DatasetSource, Source, WholeBatches
from stratagem.replica.context import StrategyLike
from stratagem.replica.mesh import Tree


class ShareIterator:
    """Global batches on the mesh. Keras sees their arrays, the step function takes them whole.

    Args:
        source: The batches.
        strategy: Where they go.
    """

    def __init__(self, source: Source, strategy: StrategyLike) -> None:
        # Begun with the first batch: Keras also asks for iterators that it never reads, and a pass of the
        # dataset that nobody sees would change the order of the next epoch.
        self._begin = lambda: AgreedReader(source, strategy)
        self._reader: AgreedReader | None = None
        self._mesh = strategy.mesh

    def __iter__(self) -> ShareIterator:
        return self

    def __next__(self) -> Tree:
        return self.next_batch().data

    def next_batch(self) -> GlobalBatch:
        """Return the next batch that has rows."""
        if self._reader is None:
            self._reader = self._begin()
        batch = next(self._reader)
        return place_batch(self._mesh, batch.rows, batch.data)

    def take(self, count: int) -> list[GlobalBatch]:
        """Return up to `count` batches, fewer where the data ends."""
        batches = []
        for _ in range(count):
            try:
                batches.append(self.next_batch())
            except StopIteration:
                if not batches:
                    raise
                break
        return batches

    def close(self) -> None:
        """Stop reading, in the background too."""
        if self._reader is not None:
            self._reader.close()


class ShareAdapter(compat.DataAdapter):
    """Keras's view of a source.

    Args:
        source: The batches.
        strategy: Where they go.
        batch_size: Rows in a full global batch, where known.
    """

    def __init__(self, source: Source, strategy: StrategyLike, batch_size: int | None = None) -> None:
        self.source = source
        self.strategy = strategy
        self._batch_size = batch_size
        self._reading: ShareIterator | None = None

    def get_jax_iterator(self) -> ShareIterator:
        self.close()
        self._reading = ShareIterator(self.source, self.strategy)
        return self._reading

    def close(self) -> None:
        """Stop reading. Without this the thread that reads ahead in endless data would stay after `fit`."""
        if self._reading is not None:
            self._reading.close()

    get_numpy_iterator = get_jax_iterator

    @property
    def num_batches(self) -> int | None:
        return self.source.num_batches

    @property
    def batch_size(self) -> int | None:
        return self._batch_size

    @property
    def has_partial_batch(self) -> bool:
        return False

    @property
    def partial_batch_size(self) -> int | None:
        return None


def make_adapter(strategy: StrategyLike, arguments: dict[str, Any]) -> ShareAdapter:
    """Choose how the input of `fit`, `evaluate` or `predict` is read.

    Args:
        strategy: Whose workers share it.
        arguments: x, y, sample_weight, batch_size, steps_per_epoch, shuffle, class_weight, as Keras
            hands them to its own choice of adapter.
    """
    x, y, sample_weight = arguments["x"], arguments.get("y"), arguments.get("sample_weight")
    class_weight = arguments.get("class_weight")
    if isinstance(x, Dataset):
        _check_alone(y, sample_weight)
        return ShareAdapter(DatasetSource(x, strategy, class_weight), strategy)
    if compat.is_array_input(x, y, sample_weight):
        arrays, batch_size = compat.array_inputs(
            x,
            y,
            sample_weight,
            arguments.get("batch_size"),
            arguments.get("steps_per_epoch"),
            class_weight=class_weight,
        )
        dataset = _array_dataset(arrays, batch_size, arguments.get("shuffle", False))
        return ShareAdapter(DatasetSource(dataset, strategy), strategy, batch_size)
    return ShareAdapter(WholeBatches(compat.keras_adapter(arguments), strategy.mesh.local_rows), strategy)


def _array_dataset(arrays: Tree, batch_size: int, shuffle: bool | str) -> Dataset:
    dataset = Dataset.from_tensor_slices(arrays)
    # NumPy's generator follows keras.utils.set_random_seed, as Keras's own shuffle does.
    seed = int(np.random.randint(2**31)) if shuffle else None
    if shuffle == "batch":
        dataset = dataset.batch(batch_size)
        return dataset.shuffle(max(1, int(dataset.cardinality())), seed=seed)
    if shuffle:
        dataset = dataset.shuffle(max(1, int(dataset.cardinality())), seed=seed)
    return dataset.batch(batch_size)


def _check_alone(y: Any, sample_weight: Any) -> None:
    for name, value in (("y", y), ("sample_weight", sample_weight)):
        if value is not None:
            raise InputError(
                explain(
                    f"`x` is a dataset, and `{name}` was given too.",
                    "Rows of the two could not be paired: a dataset may be shuffled.",
                    f"Put `{name}` into the dataset: `Dataset.from_tensor_slices((x, y))`, with sample weights third.",
                )
            )
