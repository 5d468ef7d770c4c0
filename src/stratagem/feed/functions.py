"""Datasets that each worker makes by itself, of a function that is told which worker it is."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from stratagem.core.errors import InputError
from stratagem.core.types import InputContext, InputOptions, InputReplicationMode
from stratagem.data.batches import State, whole
from stratagem.data.dataset import Dataset
from stratagem.data.nodes import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from stratagem.feed.adapter import check_alone
from stratagem.feed.batch import example_of, no_rows, weighing
from stratagem.feed.dataset_source import resumed
from stratagem.feed.distributed import DistributedDataset, kinds, one_by_one, whole_batches
from stratagem.feed.source import Batches, Reader, Source, read_streams
from stratagem.feed.whole_batches import WholeBatches
from stratagem.mesh.mesh import Tree
from stratagem.replica.context import StrategyLike


def _check_placing(options: InputOptions) -> None:
    """Refuse what TensorFlow refuses: a dataset on a device whose elements are shared out or moved by the host."""
    if not options.experimental_place_dataset_on_device:
        return
    per_replica = options.experimental_replication_mode is InputReplicationMode.PER_REPLICA
    if not per_replica or options.experimental_fetch_to_device:
        raise InputError(
            f"experimental_place_dataset_on_device=True was given with "
            f"{options.experimental_replication_mode.name} and experimental_fetch_to_device="
            f"{options.experimental_fetch_to_device}.",
            "TensorFlow places a dataset on a device only with PER_REPLICA and without fetching to the device.",
            "Leave it out: elements lie on the devices in any case.",
        )


def datasets_from_function(
    strategy: StrategyLike, dataset_fn: Callable[[InputContext], Any], options: InputOptions | None
) -> DistributedDataset:
    """Read each worker's own dataset (`Strategy.distribute_datasets_from_function`)."""
    _check_function("distribute_datasets_from_function", dataset_fn)
    made: list[bool] = []

    def with_rows(context: InputContext) -> Any:
        dataset, one_each = one_by_one(dataset_fn(context))
        made.append(one_each)
        return dataset

    source = FunctionSource(strategy, with_rows, options)
    return DistributedDataset(strategy, source, one_each=made[0])


class FunctionSource(Source):
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
        _check_placing(options)
        mesh, ahead = strategy.mesh, options.experimental_per_replica_buffer_size
        replicas = len(mesh.local_replicas)
        pipelines = [(strategy.worker_count, strategy.worker_index)]
        if options.experimental_replication_mode is InputReplicationMode.PER_REPLICA:
            if mesh.multi_process:
                raise InputError(
                    f"InputReplicationMode.PER_REPLICA was used with {strategy.worker_count} workers.",
                    "This mode is for the replicas of one worker.",
                    "Leave the option out: the function is called once on each worker.",
                )
            pipelines = [(replicas, replica) for replica in range(replicas)]
        self._strategy, self._adapt = strategy, weighing(class_weight)
        self._streams = [
            _stream(dataset_fn(InputContext(count, index, mesh.size)), strategy, ahead * replicas)
            for count, index in pipelines
        ]
        self._resumed_at: State | None = None
        strategy.check_agreement("datasets from function", kinds(self.element_spec))
        cardinality = _common_cardinality(strategy, [stream.cardinality for stream in self._streams], replicas)
        self.num_batches = cardinality if cardinality >= 0 else None
        self.may_end = cardinality == UNKNOWN_CARDINALITY

    @property
    def element_spec(self) -> Tree:
        return self._streams[0].element_spec

    def open(self, state: State | None = None) -> Reader:
        state = self._resumed_at if state is None else state
        states = [None] * len(self._streams) if state is None else _states(state, len(self._streams))
        self._resumed_at = None
        streams = [stream.batches(at) for stream, at in zip(self._streams, states, strict=True)]
        return read_streams(streams, self._strategy, self._adapt, no_rows(self.first()))

    def first(self) -> Tree:
        return self._adapt(self._streams[0].first())

    def position(self) -> State:
        return self._resumed_at or {"streams": [stream.position() for stream in self._streams]}

    def resume(self, state: State) -> None:
        self._resumed_at = state

    def close(self) -> None:
        """End what the streams have started: threads, processes."""
        for stream in self._streams:
            stream.close()


class _OwnDataset:
    """A `stratagem.data.Dataset` of this worker alone.

    Args:
        dataset: The dataset, with the order that it has on this worker.
        read_ahead: Batches to read in the background.
    """

    def __init__(self, dataset: Dataset, read_ahead: int) -> None:
        self._dataset = dataset
        self._read_ahead = read_ahead
        self._processes = dataset.reader_pool()
        self.cardinality = int(dataset.cardinality())
        self.element_spec = dataset.element_spec

    def batches(self, state: State | None) -> Batches:
        """Begin a pass, at a position or at the start."""
        if state is not None:
            self._dataset = resumed(self._dataset, state)
        batches = self._dataset.batches(whole, prefetch=self._read_ahead, readers=self._processes)
        if state is not None:
            batches.set_state(state)
        return batches

    def first(self) -> Tree:
        """Return arrays like those of a batch, with one row where their number is not known."""
        return example_of(self.element_spec)

    def position(self) -> State:
        """Return where the next pass begins, as plain JSON."""
        return self._dataset.next_pass()

    def close(self) -> None:
        """End the reader processes."""
        if self._processes is not None:
            self._processes.close()


def _stream(dataset: Any, strategy: StrategyLike, read_ahead: int) -> _OwnDataset | WholeBatches:
    """Return what reads one dataset of an input function: batches for this worker alone, whole."""
    # All workers take the chief's seeds where they can: then `shuffle(...).shard(...)` gives disjoint parts,
    # which TensorFlow leaves to chance, and the chief's stored position fits all.
    seeds = strategy.from_all("seeds", dataset.random_seeds() if isinstance(dataset, Dataset) else [])
    if not isinstance(dataset, Dataset):
        return whole_batches(dataset, strategy, worker_count=1, rows_of=whole)
    alike = all(len(other) == len(seeds[0]) for other in seeds)
    return _OwnDataset(dataset.with_random_seeds(seeds[0]) if alike else dataset, read_ahead)


def _states(state: State, count: int) -> list[State]:
    streams = state.get("streams") if isinstance(state, dict) else None
    if not isinstance(streams, list) or len(streams) != count:
        raise InputError(
            f"The state of a distributed dataset is {state!r}; this worker reads {count} stream(s).",
            "Give set_state what get_state returned, for a dataset that was distributed in the same way.",
        )
    return streams


def _common_cardinality(strategy: StrategyLike, own: list[int], replicas: int) -> int:
    """Return the number of steps: until the last stream of all workers ends."""
    counts = [count for worker in strategy.from_all("number of batches", own) for count in worker]
    if UNKNOWN_CARDINALITY in counts:
        return UNKNOWN_CARDINALITY
    each = replicas // len(own)
    return INFINITE_CARDINALITY if INFINITE_CARDINALITY in counts else max(-(-count // each) for count in counts)


# A function as the input of `fit` ------------------------------------------------------------------


class DatasetCreator:
    """Makes the dataset of each worker on that worker (`tf.keras.utils.experimental.DatasetCreator`).

    `fit` and `evaluate` accept it in place of a dataset, under every strategy. They then need the number of steps. Each
    worker reads only its own dataset; under `ParameterServerStrategy` no batch passes through the chief. The dataset is
    used as it is: the function batches it by the batch size of one replica, shards it and shuffles it. Source of the
    semantics: https://github.com/keras-team/tf-keras/blob/master/tf_keras/utils/dataset_creator.py

    Args:
        dataset_fn: Function of an `InputContext` that returns a `stratagem.data.Dataset`, or another input of `fit`
            except arrays.
        input_options: Options for reading.

    Raises:
        InputError: `dataset_fn` is not a function of one argument, or `input_options` is not an `InputOptions`.

    Example:
        >>> import numpy as np
        >>> import stratagem
        >>> from stratagem import keras
        >>> def dataset_fn(context):
        ...     x = np.arange(8.0).reshape(8, 1)
        ...     dataset = stratagem.data.Dataset.from_tensor_slices((x, 2 * x)).shuffle(8).repeat()
        ...     dataset = dataset.shard(context.num_input_pipelines, context.input_pipeline_id)
        ...     return dataset.batch(context.get_per_replica_batch_size(4))
        >>> strategy = stratagem.OneDeviceStrategy("cpu:0")
        >>> with strategy.scope():
        ...     model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        ...     model.compile(keras.optimizers.SGD(0.01), "mse")
        >>> creator = stratagem.experimental.DatasetCreator(dataset_fn)
        >>> history = model.fit(creator, epochs=2, steps_per_epoch=5, verbose=0).history
        >>> history["loss"][1] < history["loss"][0]
        True
    """

    def __init__(self, dataset_fn: Callable[[InputContext], Any], input_options: InputOptions | None = None) -> None:
        _check_function("DatasetCreator", dataset_fn)
        if input_options is not None and not isinstance(input_options, InputOptions):
            raise InputError(
                f"DatasetCreator was given input_options={input_options!r}.",
                "Give a stratagem.InputOptions, or leave it out.",
            )
        self.dataset_fn = dataset_fn
        self.input_options = input_options

    def __call__(self, context: InputContext) -> Any:
        """Return the dataset of one worker."""
        return self.dataset_fn(context)


def creator_among(arguments: dict[str, Any]) -> DatasetCreator | None:
    """Return the creator that `fit` or a sibling was given as `x`, if it was one or a plain function.

    Args:
        arguments: x, y, sample_weight, steps_per_epoch, as Keras hands them to its own choice of adapter.

    Raises:
        InputError: The number of steps is not said; or targets were given beside it.
    """
    x = arguments["x"]
    if not isinstance(x, DatasetCreator):
        if not inspect.isroutine(x) and not isinstance(x, functools.partial):
            return None
        x = DatasetCreator(x)
    check_alone(x, arguments.get("y"), arguments.get("sample_weight"))
    if arguments.get("steps_per_epoch") is None:
        raise InputError(
            # As tf.keras says it, for programs that look for it.
            "When using a `tf.keras.utils.experimental.DatasetCreator`, `steps_per_epoch`, `validation_steps`, "
            "`steps`, or `pss_evaluation_shards` argument must be provided in `Model.fit`, `Model.evaluate`, or "
            "`Model.predict`.",
            "Each worker has a dataset of its own, so nobody knows where an epoch ends.",
            "Write steps_per_epoch=... in fit, validation_steps=... for its validation_data, steps=... in evaluate "
            "and predict, also where a function was given; pss_evaluation_shards of compile has no effect here.",
        )
    return x


def _check_function(caller: str, dataset_fn: Any) -> None:
    if callable(dataset_fn) and _takes_one(dataset_fn):
        return
    generator = inspect.isgeneratorfunction(dataset_fn)
    raise InputError(
        f"{caller} was given {dataset_fn!r}, which is not a function of one argument.",
        "Each worker calls the function with an InputContext, which holds the number of the worker.",
        "Write def dataset_fn(context): ... and return a dataset in it."
        + (f" A generator function is called: fit({dataset_fn.__name__}())." if generator else ""),
    )


def _takes_one(dataset_fn: Callable[..., Any]) -> bool:
    try:
        inspect.signature(dataset_fn).bind(None)
    except TypeError:
        return False
    except ValueError:  # of a function that tells no signature
        return True
    return True
