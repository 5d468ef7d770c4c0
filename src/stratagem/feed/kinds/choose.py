"""The choice of how an input is read, by its kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras

from stratagem.core.errors import InputError
from stratagem.feed.kinds.again import ReadAgain, tf_data_input
from stratagem.feed.kinds.base import ChiefSeed, Input
from stratagem.feed.kinds.grain_data import GrainIteratorInput, GrainMapInput
from stratagem.feed.kinds.py_dataset import PyDatasetInput
from stratagem.feed.kinds.torch_loader import torch_input


def input_of(value: Any, chief_seed: ChiefSeed, worker_count: int, *, shuffle: bool = False) -> Input:
    """Return how an input is read that is no `stratagem.data.Dataset` and no array.

    Args:
        value: What `fit` was given as `x`.
        chief_seed: Makes the workers agree on a seed.
        worker_count: How many workers read the same; 1 where each reads its own.
        shuffle: Whether the batches of a PyDataset come in a random order.

    Raises:
        InputError: It cannot be read, or not alike by all workers.
    """
    if isinstance(value, keras.utils.PyDataset):
        return PyDatasetInput(value, shuffle, chief_seed)
    if _is_instance(value, "torch.utils.data", "DataLoader"):
        return torch_input(value, chief_seed, worker_count)
    if _is_instance(value, "tensorflow", "DatasetV2"):
        return tf_data_input(value, worker_count)
    if _is_instance(value, "grain", "MapDataset"):
        # A filter leaves holes, so that numbers of elements and of batches differ: Grain's iterator knows how.
        return GrainIteratorInput(value.to_iter_dataset()) if _is_filtered(value) else GrainMapInput(value)
    if _is_instance(value, "grain", "IterDataset", "DataLoader"):
        return GrainIteratorInput(value)
    if _is_instance(value, "datasets", "Dataset"):
        raise InputError(
            "A Hugging Face dataset was given as it is.",
            "It yields single examples, and does not say how many of them make a global batch.",
            'Write stratagem.data.Dataset.from_source(dataset.with_format("numpy")).batch(GLOBAL_BATCH_SIZE).',
        )
    if isinstance(value, Iterable) and not isinstance(value, list | tuple | dict | str | bytes):
        return ReadAgain(value)
    raise InputError(
        f"The data is a {type(value).__module__}.{type(value).__qualname__}.",
        "It is neither an array nor a dataset.",
        "Give numpy.asarray(values), a stratagem.data.Dataset, a PyDataset, a generator, or a dataset of Grain, "
        "torch or TensorFlow.",
    )


def _is_filtered(dataset: Any) -> bool:
    return type(dataset).__name__ == "FilterMapDataset" or any(map(_is_filtered, dataset.parents))


def _is_instance(value: Any, module: str, *names: str) -> bool:
    """Whether a value is of one of these classes, of a library that need not be installed.

    Args:
        value: Anything.
        module: Where the classes are defined, or a package above.
        names: Their names.
    """
    return any(
        base.__name__ in names and f"{base.__module__}.".startswith(f"{module}.") for base in type(value).__mro__
    )
