"""Datasets that each worker makes by itself: of a function that is told which worker it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stratagem.core.errors import InputError
from stratagem.core.types import InputContext, InputOptions, InputReplicationMode
from stratagem.data.batches import State, whole
from stratagem.data.dataset import Dataset
from stratagem.data.nodes import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from stratagem.feed.adapter import ShareAdapter, ShareIterator
from stratagem.feed.distributed import DistributedDataset, cardinality_of, kinds, whole_batches
from stratagem.feed.keras_input import WholeBatches
from stratagem.feed.reading import OneBatchForEach, OwnSteps, Steps, no_rows
from stratagem.feed.sources import DatasetReader, HasState, Reader, example_of, resumed, with_class_weight
from stratagem.mesh.mesh import Tree
from stratagem.replica.context import StrategyLike


def datasets_from_function(
    strategy: StrategyLike, dataset_fn: Callable[[InputContext], Any], options: InputOptions | None
) -> DistributedDataset:
    """Read each worker's own dataset (`Strategy.distribute_datasets_from_function`)."""
    source = FunctionSource(strategy, dataset_fn, options)
    return DistributedDataset(strategy.mesh, source.element_spec, source.cardinality, source.begin)


class FunctionSource:
    """What an input function returned on this worker: batches for its replicas. All workers make it together.

    Args:
        strategy: Whose replicas get them.
        dataset_fn: Gets an `InputContext`, returns a dataset.
        options: How it is read.
        class_weight: Weight of each class, turned into sample weights; or None.
    """

    def __init__(
        self,
        strategy: StrategyLike,
        dataset_fn: Callable[[InputContext], Any],
        options: InputOptions | None,
        class_weight: dict[int, float] | None = None,
    ) -> None:
        options = options or InputOptions()
        mesh, ahead = strategy.mesh, options.experimental_per_replica_buffer_size
        self._strategy = strategy
        self._replicas = replicas = len(mesh.local_replicas)
        pipelines = [(strategy.worker_count, strategy.worker_index)]
        if options.experimental_replication_mode is InputReplicationMode.PER_REPLICA:
            if mesh.multi_process:
                raise InputError(
                    f"InputReplicationMode.PER_REPLICA was used with {strategy.worker_count} workers.",
                    "It is made for the replicas of one worker.",
                    "Leave the option out: the function is called once on each worker.",
                )
            pipelines = [(replicas, replica) for replica in range(replicas)]
        self._streams = [
            _Stream(dataset_fn(InputContext(count, index, mesh.size)), strategy, ahead * replicas, class_weight)
            for count, index in pipelines
        ]
        self._resumed_at: State | None = None
        self.element_spec = self._streams[0].element_spec
        strategy.check_agreement("datasets from function", kinds(self.element_spec))
        self.cardinality = _common_cardinality(strategy, self._streams, replicas)
        self.num_batches = self.cardinality if self.cardinality >= 0 else None

    def begin(self, state: State | None = None) -> Steps:
        """Begin a pass, at a position or at the start. All workers begin together."""
        if state is None:
            state, self._resumed_at = self._resumed_at, None
        states = [None] * len(self._streams) if state is None else _states(state, len(self._streams))
        readers = [stream.open(at) for stream, at in zip(self._streams, states, strict=True)]
        rows = OneBatchForEach(readers, self._replicas)
        return OwnSteps(rows, self._strategy, no_rows(self.first()), asks=True)

    def first(self) -> Tree:
        return self._streams[0].first()

    def position(self, reading: HasState | None) -> State:
        if reading is not None:
            return reading.get_state()
        return self._resumed_at or {"streams": [stream.position() for stream in self._streams]}

    def resume(self, state: State) -> None:
        self._resumed_at = state

    def close(self) -> None:
        """End what the streams have started: threads, processes."""
        for stream in self._streams:
            stream.close()


class FunctionAdapter(ShareAdapter):
    """Keras's view of the datasets that the workers make by themselves.

    Args:
        source: This worker's.
        strategy: Where its batches go.
        steps_per_epoch: Steps in an epoch.
    """

    source: FunctionSource

    def __init__(self, source: FunctionSource, strategy: StrategyLike, steps_per_epoch: int) -> None:
        super().__init__(source, strategy, steps_per_epoch=steps_per_epoch)

    def new_pass(self, taken: int) -> ShareIterator:
        return ShareIterator(self.source, self.strategy, self.source.begin, taken)


class _Stream:
    """One dataset of an input function: batches for this worker alone, whole."""

    def __init__(
        self, dataset: Any, strategy: StrategyLike, read_ahead: int, class_weight: dict[int, float] | None
    ) -> None:
        self._read_ahead = read_ahead
        self._class_weight = class_weight
        # All workers take the chief's seeds where they can: then `shuffle(...).shard(...)` gives disjoint parts,
        # which TensorFlow leaves to chance, and the chief's stored position fits all.
        seeds = strategy.from_all("seeds", dataset.random_seeds() if isinstance(dataset, Dataset) else [])
        if isinstance(dataset, Dataset):
            alike = all(len(other) == len(seeds[0]) for other in seeds)
            self._source: Dataset | WholeBatches = dataset.with_random_seeds(seeds[0]) if alike else dataset
            self._readers = dataset.reader_pool()
            self.cardinality = int(dataset.cardinality())
        else:
            self._source = whole_batches(dataset, strategy, whole, worker_count=1)
            self.cardinality = cardinality_of(self._source)
        self.element_spec = self._source.element_spec

    def open(self, state: State | None) -> Reader:
        """Begin a pass."""
        if isinstance(self._source, WholeBatches):
            return self._source.open(state=state)
        if state is not None:
            self._source = resumed(self._source, state)
        batches = self._source.batches(whole, prefetch=self._read_ahead, readers=self._readers)
        if state is not None:
            batches.set_state(state)
        return DatasetReader(batches, self._adapted)

    def first(self) -> Tree:
        """Return arrays like those of a batch, with one row where their number is not known."""
        return self._adapted(example_of(self.element_spec))

    def position(self) -> State:
        """Return where the next pass begins, as plain JSON."""
        if isinstance(self._source, WholeBatches):
            return self._source.position(None)
        return self._source.next_pass()

    def close(self) -> None:
        if isinstance(self._source, WholeBatches):
            self._source.close()
        elif self._readers is not None:
            self._readers.close()

    def _adapted(self, data: Tree) -> Tree:
        return data if self._class_weight is None else with_class_weight(data, self._class_weight)


def _states(state: State, count: int) -> list[State]:
    streams = state.get("streams") if isinstance(state, dict) else None
    if not isinstance(streams, list) or len(streams) != count:
        raise InputError(
            f"The state of a distributed dataset is {state!r}; this worker reads {count} stream(s).",
            "Where to go on is not known; examples would be repeated or lost.",
            "Give set_state what get_state returned, for a dataset that was distributed in the same way.",
        )
    return streams


def _common_cardinality(strategy: StrategyLike, streams: list[_Stream], replicas: int) -> int:
    """Return the number of steps: until the last stream of all workers ends."""
    own = [stream.cardinality for stream in streams]
    counts = [count for worker in strategy.from_all("number of batches", own) for count in worker]
    if UNKNOWN_CARDINALITY in counts:
        return UNKNOWN_CARDINALITY
    each = replicas // len(streams)
    return INFINITE_CARDINALITY if INFINITE_CARDINALITY in counts else max(-(-count // each) for count in counts)
