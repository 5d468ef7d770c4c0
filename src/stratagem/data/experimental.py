"""Names that programs reach as `tf.data.experimental`."""

from __future__ import annotations

from stratagem.data.dataset import Cardinality, Dataset
from stratagem.data.nodes import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from stratagem.data.options import AUTOTUNE, AutoShardPolicy, DistributeOptions
from stratagem.data.sequence import SHARD_HINT

__all__ = [
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "SHARD_HINT",
    "UNKNOWN_CARDINALITY",
    "AutoShardPolicy",
    "DistributeOptions",
    "cardinality",
]


def cardinality(dataset: Dataset) -> Cardinality:
    """Return `dataset.cardinality()` (`tf.data.experimental.cardinality`).

    Example:
        >>> cardinality(Dataset.range(5))
        5
    """
    return dataset.cardinality()
