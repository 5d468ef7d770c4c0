"""Stand-in for the private classes by which TensorFlow's tests distribute a dataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tools.tensorflow_suites.verdicts import PRIVATE, NotApplicable


class InputWorkers:
    """The devices of each worker; the strategy knows them.

    Args:
        worker_device_pairs: The device that reads, and those that compute, of each worker.
    """

    def __init__(self, worker_device_pairs: Sequence[tuple[str, Sequence[str]]], *_: Any, **__: Any) -> None:
        if any(not device for device, _ in worker_device_pairs):
            raise NotApplicable(PRIVATE, "a strategy of the test's own")
        self.num_workers = len(worker_device_pairs)


def DistributedDataset(
    input_workers: InputWorkers,
    strategy: Any,
    dataset: Any = None,
    num_replicas_in_sync: int | None = None,
    input_context: Any = None,
    **_: Any,
) -> Any:
    """Distribute a dataset: divide its batches, or, where no number of replicas is said, hand them out one by one."""
    if dataset is None or input_workers.num_workers > 1:
        raise NotApplicable(PRIVATE, "a dataset of several workers of one process")
    if num_replicas_in_sync is not None:
        return strategy.experimental_distribute_dataset(dataset)
    if input_context is not None and input_context.num_input_pipelines > 1:
        raise NotApplicable(PRIVATE, "a dataset that workers share, batch by batch")
    return strategy.distribute_datasets_from_function(lambda _: dataset)


def get_distributed_dataset(
    dataset: Any,
    input_workers: InputWorkers,
    strategy: Any,
    num_replicas_in_sync: int | None = None,
    input_context: Any = None,
    **_: Any,
) -> Any:
    """Distribute a dataset."""
    return DistributedDataset(input_workers, strategy, dataset, num_replicas_in_sync, input_context)


def get_distributed_datasets_from_function(
    dataset_fn: Callable[[Any], Any], input_workers: InputWorkers, input_contexts: Any, strategy: Any, **_: Any
) -> Any:
    """Distribute what a function makes for each worker."""
    return strategy.distribute_datasets_from_function(dataset_fn)
