"""Functions of datasets that are methods of `Dataset` by now (`tf.data.experimental`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stratagem.core.errors import InputError
from stratagem.data.dataset import Dataset
from stratagem.data.files.writers import TFRecordWriter as _FileWriter

Step = Callable[[Dataset], Dataset]
"""A function that `Dataset.apply` takes."""


def assert_cardinality(expected_cardinality: int) -> Step:
    """Return a step that holds a dataset to its number of elements (`tf.data.experimental.assert_cardinality`).

    A known number is compared at once. A number that can only be found by reading the data is not compared.

    Raises:
        InputError: The dataset has another number of elements.

    Example:
        >>> Dataset.range(3).apply(assert_cardinality(3)).cardinality()
        3
    """

    def checked(dataset: Dataset) -> Dataset:
        found = int(dataset.cardinality())
        if found not in (expected_cardinality, -2):
            raise InputError(
                f"The dataset has {found} elements; assert_cardinality({expected_cardinality}) was written.",
                "Epochs would have another length than the program counts on.",
                "Correct the number, or leave the line out: sizes of files are found without it.",
            )
        return dataset

    return checked


def enumerate_dataset(start: int = 0) -> Step:
    """Return `dataset.enumerate(start)` as a step.

    Example:
        >>> [int(i) for i, _ in Dataset.range(2).apply(enumerate_dataset(5))]
        [5, 6]
    """
    return lambda dataset: dataset.enumerate(start)


def map_and_batch(
    map_func: Callable[..., Any],
    batch_size: int,
    num_parallel_batches: int | None = None,
    drop_remainder: bool = False,
    num_parallel_calls: int | None = None,
) -> Step:
    """Return `dataset.map(map_func).batch(batch_size)` as a step.

    Example:
        >>> [x.numpy().tolist() for x in Dataset.range(3).apply(map_and_batch(lambda x: x + 1, 2))]
        [[1, 2], [3]]
    """
    return lambda dataset: dataset.map(map_func, num_parallel_calls).batch(batch_size, drop_remainder)


def shuffle_and_repeat(buffer_size: int, count: int | None = None, seed: int | None = None) -> Step:
    """Return `dataset.shuffle(buffer_size, seed).repeat(count)` as a step.

    Example:
        >>> Dataset.range(3).apply(shuffle_and_repeat(3, 2)).cardinality()
        6
    """
    return lambda dataset: dataset.shuffle(buffer_size, seed).repeat(count)


def parallel_interleave(
    map_func: Callable[..., Dataset], cycle_length: int, block_length: int = 1, **tuning: Any
) -> Step:
    """Return `dataset.interleave(map_func, cycle_length, block_length)` as a step; the order is always the same.

    Example:
        >>> twice = parallel_interleave(lambda x: Dataset.from_tensors(x).repeat(2), cycle_length=2)
        >>> [int(x) for x in Dataset.range(2).apply(twice)]
        [0, 1, 0, 1]
    """
    return lambda dataset: dataset.interleave(map_func, cycle_length, block_length)


def unbatch() -> Step:
    """Return `dataset.unbatch()` as a step.

    Example:
        >>> [int(x) for x in Dataset.range(2).batch(2).apply(unbatch())]
        [0, 1]
    """
    return lambda dataset: dataset.unbatch()


def choose_from_datasets(
    datasets: Sequence[Dataset], choice_dataset: Dataset, stop_on_empty_dataset: bool = False
) -> Dataset:
    """Return `Dataset.choose_from_datasets(...)`.

    Example:
        >>> [int(x) for x in choose_from_datasets([Dataset.range(2), Dataset.range(5, 7)], Dataset.range(2))]
        [0, 5]
    """
    return Dataset.choose_from_datasets(datasets, choice_dataset, stop_on_empty_dataset)


def sample_from_datasets(
    datasets: Sequence[Dataset],
    weights: Any = None,
    seed: int | None = None,
    stop_on_empty_dataset: bool = False,
) -> Dataset:
    """Return `Dataset.sample_from_datasets(...)`.

    Example:
        >>> len(list(sample_from_datasets([Dataset.range(2), Dataset.range(5, 7)], seed=1)))
        4
    """
    return Dataset.sample_from_datasets(datasets, weights, seed, stop_on_empty_dataset)


def get_single_element(dataset: Dataset) -> Any:
    """Return the only element of a dataset (`tf.data.experimental.get_single_element`).

    Raises:
        InputError: It has none, or more than one.

    Example:
        >>> get_single_element(Dataset.range(1)).numpy()
        np.int64(0)
    """
    elements = list(dataset.take(2))
    if len(elements) != 1:
        raise InputError(
            f"get_single_element was given a dataset with {'no element' if not elements else 'several elements'}.",
            "Give a dataset of one element, for example dataset.batch(n).take(1).",
        )
    return elements[0]


def get_structure(dataset_or_iterator: Any) -> Any:
    """Return `dataset.element_spec`.

    Example:
        >>> get_structure(Dataset.range(1)).shape
        ()
    """
    return dataset_or_iterator.element_spec


def get_next_as_optional(iterator: Any) -> Any:
    """Return `iterator.get_next_as_optional()`."""
    return iterator.get_next_as_optional()


class TFRecordWriter:
    """Writes a dataset of records to a file (`tf.data.experimental.TFRecordWriter`).

    Args:
        filename: The file.
        compression_type: "GZIP", "ZLIB", or None.

    Example:
        >>> TFRecordWriter(getfixture("tmp_path") / "records").write(Dataset.from_tensor_slices([b"one", b"two"]))
    """

    def __init__(self, filename: Any, compression_type: str | None = None) -> None:
        self._filename = filename
        self._compression = compression_type or None

    def write(self, dataset: Dataset) -> None:
        """Write all records."""
        with _FileWriter(self._filename, self._compression) as writer:
            for record in dataset.as_numpy_iterator():
                writer.write(record)
