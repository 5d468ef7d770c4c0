"""`tf.data.Dataset`: read by every worker, once it is certain that all have one order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stratagem.core.errors import InputError
from stratagem.feed.kinds.again import ReadAgain

_INFINITE = -1
_UNKNOWN = -2


def tf_data_input(dataset: Any, worker_count: int) -> ReadAgain:
    """Return how a `tf.data.Dataset` is read.

    Args:
        dataset: The user's, batched.
        worker_count: How many workers read it.

    Raises:
        InputError: Several workers would each have an order of their own.
    """
    if worker_count > 1:
        _check_order(dataset, worker_count)
    cardinality = int(dataset.cardinality())
    return ReadAgain(
        dataset,
        num_batches=cardinality if cardinality >= 0 else None,
        may_end=cardinality == _UNKNOWN,
        alike="Write a seed where the dataset draws random numbers, such as shuffle(..., seed=1), give all workers the "
        "same tf.random.set_seed, and shard nothing: Stratagem gives each worker its rows.",
    )


def _check_order(dataset: Any, worker_count: int) -> None:
    """Refuse what makes the workers' orders differ. What is not seen here shows in the first batch of a pass."""
    if dataset.options().deterministic is False:
        raise InputError(
            f"The tf.data.Dataset of {worker_count} workers has options().deterministic = False.",
            "Its elements come as they are ready, in an order of their own on every worker.",
            "Leave the option out.",
        )
    for step in _steps(dataset):
        # TensorFlow writes two zeros where neither shuffle() nor tf.random.set_seed gave a seed.
        seeds = [getattr(step, name, None) for name in ("_seed", "_seed2")]
        if type(step).__name__ == "_ShuffleDataset" and all(seed is not None and int(seed) == 0 for seed in seeds):
            raise InputError(
                f"The tf.data.Dataset of {worker_count} workers has a shuffle() without a seed.",
                "Each worker would draw an order of its own, and take its rows of another global batch.",
                "Write shuffle(buffer_size, seed=1), or tf.random.set_seed(1) before it.",
            )


def _steps(dataset: Any) -> Iterator[Any]:
    yield dataset
    for inner in getattr(dataset, "_inputs", list)():
        yield from _steps(inner)
