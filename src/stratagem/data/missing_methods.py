"""Methods of `tf.data.Dataset` that datasets here lack, and what to write in their place."""

from __future__ import annotations

from typing import Final

from stratagem.core.errors import explain

_INSTEAD: Final = {
    "bucket_by_sequence_length": "Write padded_batch: XLA compiles a step for each shape, so few shapes are fast.",
    "get_single_element": "Write next(iter(dataset)).",
    "group_by_window": "Group in a generator function, and write Dataset.from_generator.",
    "ignore_errors": "Catch the error in the function given to map, return a mark, and filter marked elements out.",
    "ragged_batch": "Write padded_batch: XLA compiles for known shapes.",
    "rebatch": "Write unbatch().batch(n).",
    "rejection_resample": "Write Dataset.sample_from_datasets([one of each class], weights).",
    "save": "Write stratagem.data.write_tfrecord, or NumPy files that NumpyDataset reads; cache() for this run.",
    "scan": "Keep the state in a generator function, and write Dataset.from_generator.",
    "snapshot": "Write cache().",
    "sparse_batch": "Write padded_batch: XLA compiles for known shapes.",
    "take_while": "Stop in a generator function, and write Dataset.from_generator; take(n) where the number is known.",
    "unique": "Write numpy.unique on the arrays, or a generator function that keeps a set.",
    "window": (
        "Cut the windows from the array, which copies nothing: "
        "Dataset.from_tensor_slices(numpy.lib.stride_tricks.sliding_window_view(array, size, axis=0))."
    ),
}


def absent(name: str) -> AttributeError:
    """Return the error for an attribute that a dataset does not have.

    Example:
        >>> print(absent("rebatch"))
        A dataset has no 'rebatch'.
        ...
    """
    return AttributeError(
        explain(f"A dataset has no {name!r}.", _INSTEAD.get(name, "docs/data.md says what a dataset can do."))
    )
