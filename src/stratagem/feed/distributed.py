"""Datasets for custom loops: every element is one per-replica batch for each replica.

Source of the semantics: https://www.tensorflow.org/tutorials/distribute/input
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax

from stratagem.core.advancing import AdvancedByPython
from stratagem.core.errors import InputError, UnsupportedError, UsageError, explain
from stratagem.core.types import InputOptions, InputReplicationMode
from stratagem.data.batches import RowsOf, State
from stratagem.data.dataset import Cardinality, Dataset
from stratagem.data.optional_element import OptionalElement
from stratagem.data.plan import plan_of
from stratagem.data.specs import TensorSpec
from stratagem.feed import compat
from stratagem.feed.dataset_source import DatasetSource
from stratagem.feed.kinds.choose import input_of
from stratagem.feed.source import Source
from stratagem.feed.whole_batches import WholeBatches
from stratagem.mesh.blocks import per_replica
from stratagem.mesh.mesh import Tree
from stratagem.program.tracing import leave_tracing
from stratagem.replica.context import StrategyLike, inside_step

_numbers = itertools.count()
_lasting: dict[int, weakref.ref[DistributedDataset]] = {}
"""Datasets that workers who come and go can read, by their number in the order in which a program makes them."""


class TransformationError(UsageError, AttributeError):
    """A distributed dataset cannot be transformed. An AttributeError, so that `hasattr` answers no."""


class DistributedDataset(AdvancedByPython):
    """A dataset shared by the replicas of a strategy (`tf.distribute.DistributedDataset`).

    Made by `strategy.experimental_distribute_dataset` and `strategy.distribute_datasets_from_function`. You can iterate
    over it any number of times; each pass starts from the beginning. Pass its elements to `strategy.run`. An element
    has the structure of the dataset, with a `PerReplica` in place of each array; with one replica it has the arrays
    themselves. If a batch does not divide, the first replicas have one row more, and `PerReplica.values` contains
    exactly the rows of each replica.

    All workers must iterate together. The dataset has no transformations such as `map`.

    Args:
        strategy: The strategy whose replicas get the elements.
        source: The source of the elements.
        one_each: Whether each replica gets one element of an unbatched dataset.
        make_source: Makes the source anew for other workers; None where it can be read only by those that made it.

    Example:
        >>> import stratagem
        >>> strategy = stratagem.OneDeviceStrategy("cpu:0")
        >>> dataset = stratagem.data.Dataset.range(5).batch(2)
        >>> [batch.tolist() for batch in strategy.experimental_distribute_dataset(dataset)]
        [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        strategy: StrategyLike,
        source: Source,
        *,
        one_each: bool = False,
        make_source: Callable[[], Source] | None = None,
    ) -> None:
        self.mesh = strategy.mesh
        self._strategy = strategy
        self._source = source
        self._make_source = make_source
        self._made_for = strategy.layout
        self.one_each = one_each
        on_replica = functools.partial(_on_replica, one_each=one_each)
        self._element_spec = jax.tree.map(on_replica, source.element_spec, is_leaf=_is_spec)
        self._cardinality = source.cardinality

    def __iter__(self) -> DistributedIterator:
        _refuse_on_a_replica()
        leave_tracing()  # a loop over data would be unrolled
        return DistributedIterator(self._strategy, self)

    @property
    def source(self) -> Source:
        """The source of the elements; made anew after workers have come or gone.

        Raises:
            UnsupportedError: It cannot be.
        """
        workers = self._strategy.layout
        if workers != self._made_for:
            if self._make_source is None:
                raise UnsupportedError(
                    "The number of workers has changed, and a distributed dataset was made from a function, a "
                    "generator or data of another library.",
                    "What the workers have read of it is not known.",
                    "Give strategy.experimental_distribute_dataset a stratagem.data.Dataset.",
                )
            position = self._source.position()
            self._source.close()
            self._source, self._made_for = self._make_source(), workers
            self._source.resume(position)
            self._cardinality = self._source.cardinality
        return self._source

    @property
    def fits_other_workers(self) -> bool:
        """Whether other workers can continue to read it from the same place."""
        return self._make_source is not None

    @property
    def element_spec(self) -> Tree:
        """Structure of `TensorSpec` for one replica's batch, with an unknown number of rows.

        TensorFlow has a `PerReplicaSpec` with one spec for each replica; here one spec stands for all.
        """
        return self._element_spec

    def cardinality(self) -> Cardinality:
        """Return the number of elements, -1 (`INFINITE_CARDINALITY`) or -2 (`UNKNOWN_CARDINALITY`)."""
        return Cardinality(self._cardinality)

    def __len__(self) -> int:
        if self._cardinality < 0:
            raise TypeError(
                explain(
                    f"The distributed dataset has {'no end' if self._cardinality == -1 else 'an unknown length'}.",
                    "Use cardinality(), which returns -1 for no end and -2 for unknown, and count the steps yourself.",
                )
            )
        return self._cardinality

    def __bool__(self) -> bool:
        return True

    def reduce(self, initial_state: Any, reduce_func: Callable[[Any, Tree], Any]) -> Any:
        """Combine the elements of one pass by `state = reduce_func(state, element)`.

        Args:
            initial_state: The first state.
            reduce_func: Returns the next state.
        """
        return functools.reduce(reduce_func, self, initial_state)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and hasattr(Dataset, name):
            raise TransformationError(
                f"{name}() was called on a distributed dataset.",
                "Its elements lie on the devices of all replicas already.",
                f"Call {name}() on the dataset first: strategy.experimental_distribute_dataset(dataset.{name}(...)).",
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class DistributedIterator(AdvancedByPython):
    """One pass over a distributed dataset (`tf.distribute.DistributedIterator`).

    Example:
        >>> import stratagem
        >>> strategy = stratagem.OneDeviceStrategy("cpu:0")
        >>> dataset = stratagem.data.Dataset.range(3).batch(2)
        >>> iterator = iter(strategy.experimental_distribute_dataset(dataset))
        >>> next(iterator).tolist(), iterator.get_next().tolist(), next(iterator, None)
        ([0, 1], [2], None)
    """

    def __init__(self, strategy: StrategyLike, dataset: DistributedDataset) -> None:
        self._strategy = strategy
        self._dataset = dataset
        self._reader = dataset.source.open()

    def __iter__(self) -> DistributedIterator:
        return self

    def __next__(self) -> Tree:
        _refuse_on_a_replica()
        leave_tracing()  # its element would be a constant of the program
        shares, local = next(self._reader)
        if self._dataset.one_each and 0 in shares:  # there is no part of an element; TensorFlow ends the pass too
            self._reader.close()
            raise StopIteration
        from_all = self._strategy.from_all
        return per_replica(self._strategy.mesh, shares, local, from_all=from_all, one_each=self._dataset.one_each)

    def get_next(self) -> Tree:
        """Return the next element.

        Raises:
            OutOfRangeError: The data has ended. `next(iterator)` raises StopIteration instead, as in TensorFlow. So no
                StopIteration can silently end a generator that calls this.
        """
        return self.get_next_as_optional().get_value()

    def get_next_as_optional(self) -> OptionalElement:
        """Return the next element, or an empty optional at the end.

        Example:
            >>> import stratagem
            >>> strategy = stratagem.OneDeviceStrategy("cpu:0")
            >>> dataset = stratagem.data.Dataset.range(2).batch(2)
            >>> iterator = iter(strategy.experimental_distribute_dataset(dataset))
            >>> iterator.get_next_as_optional().get_value().tolist()
            [0, 1]
            >>> iterator.get_next_as_optional().has_value()
            False
        """
        return OptionalElement(*itertools.islice(self, 1), element_spec=self.element_spec)

    @property
    def element_spec(self) -> Tree:
        """Structure of `TensorSpec` for one replica's batch, with an unknown number of rows."""
        return self._dataset.element_spec

    @property
    def fits_other_workers(self) -> bool:
        """Whether other workers can continue to read it from the same place."""
        return self._dataset.fits_other_workers

    def get_state(self) -> State:
        """Return the position after the last element, as plain JSON, the same on every worker.

        Elements that were read ahead do not count. If all workers share the dataset, the state is a position in the
        global dataset, and you can restore it with another number of workers or replicas.
        """
        return self._reader.get_state()

    def set_state(self, state: State) -> None:
        """Go to a position. All workers must call it. Later passes over the dataset continue from that pass.

        Args:
            state: The result of `get_state`, in this or an earlier run of the program.

        Raises:
            InputError: The state is not one of such a dataset.
            UsageError: The input can only be read from its beginning, such as a generator, and was read before. Create
                it anew; the elements before the position are read again.
        """
        reader = self._dataset.source.open(state)
        self._reader.close()
        self._reader = reader

    def close(self) -> None:
        """End the pass, and the thread that reads ahead. Deleting the iterator does the same."""
        self._reader.close()


def _refuse_on_a_replica() -> None:
    if inside_step():
        raise UsageError(
            "A distributed dataset was read inside a function that strategy.run is running.",
            "An element has a part for each replica, and a replica gets its own as an argument.",
            "Write strategy.run(replica_fn, args=(next(iterator),)).",
        )


def _is_spec(leaf: object) -> bool:
    return isinstance(leaf, TensorSpec)


def one_by_one(dataset: Any) -> tuple[Any, bool]:
    """Return a dataset whose elements have rows, and whether each is one element of a dataset that was not batched.

    An element that holds a scalar cannot be shared out by rows, so it goes to one replica as it is, as in TensorFlow.

    Args:
        dataset: Any input.
    """
    if not isinstance(dataset, Dataset):
        return dataset, False
    specs = jax.tree.leaves(dataset.element_spec, is_leaf=_is_spec)
    one_each = any(isinstance(spec, TensorSpec) and spec.shape == () for spec in specs)
    return dataset.batch(1) if one_each else dataset, one_each


def _on_replica(spec: TensorSpec, *, one_each: bool) -> TensorSpec:
    """Return what is left of a batch's spec on a replica: any number of rows, or none, in a dtype that JAX has."""
    shape = None if spec.shape is None else spec.shape[1:] if one_each else (None, *spec.shape[1:])
    dtype = spec.dtype if spec.dtype.hasobject else jax.dtypes.canonicalize_dtype(spec.dtype)
    return dataclasses.replace(spec, shape=shape, dtype=dtype)


def shared_dataset(strategy: StrategyLike, dataset: Any, options: InputOptions | None) -> DistributedDataset:
    """Share a global dataset among the replicas (`Strategy.experimental_distribute_dataset`)."""
    options = options or InputOptions()
    if options.experimental_replication_mode is InputReplicationMode.PER_REPLICA:
        raise InputError(
            "experimental_distribute_dataset was given InputReplicationMode.PER_REPLICA.",
            "There is one dataset here, and nothing to call once for each replica.",
            "Use strategy.distribute_datasets_from_function, or leave the option out.",
        )
    one_each = False
    if strategy.num_replicas_in_sync == 1:
        dataset, one_each = one_by_one(dataset)
    make_source: Callable[[], Source] | None = None
    source: Source
    if isinstance(dataset, Dataset):
        read_ahead = options.experimental_per_replica_buffer_size
        source = DatasetSource(dataset, strategy, read_ahead=read_ahead)
        make_source = functools.partial(DatasetSource, dataset, strategy, read_ahead=read_ahead, is_agreed=True)
        count, plan = int(dataset.cardinality()), plan_of(dataset)
    else:
        source = whole_batches(dataset, strategy, strategy.worker_count)
        count, plan = source.cardinality, {}
    strategy.check_agreement("distributed dataset", {**kinds(source.element_spec), "batches": count, **plan})
    shared = DistributedDataset(strategy, source, one_each=one_each, make_source=make_source)
    if strategy.mesh.world is not None and make_source is not None:
        _lasting[next(_numbers)] = weakref.ref(shared)
    return shared


def next_passes() -> dict[int, State]:
    """Return where the next pass of each dataset begins that other workers can read too, by its number."""
    found = {number: reference() for number, reference in _lasting.items()}
    for number in [number for number, dataset in found.items() if dataset is None]:
        del _lasting[number]
    return {number: dataset.source.position() for number, dataset in found.items() if dataset is not None}


def begin_passes(places: Mapping[int, State]) -> None:
    """Let the next passes of datasets begin at these places.

    A worker that comes later has made fewer passes than the others, in an order of its own where a shuffle has no seed.

    Args:
        places: What `next_passes` returned, here or on another worker. Datasets that are not here are left out: a loop
            makes them that has not begun here.
    """
    for number, place in places.items():
        dataset = _lasting[number]() if number in _lasting else None
        if dataset is not None:
            dataset.source.resume(place)


def kinds(spec: Tree) -> dict[str, str | int]:
    """Return what the workers' batches must have in common: a line for each array."""
    leaves = jax.tree.leaves(spec, is_leaf=_is_spec)
    return {f"component {i}": f"{leaf.dtype}{list(leaf.shape or ())[1:]}" for i, leaf in enumerate(leaves)}


def whole_batches(
    dataset: Any, strategy: StrategyLike, worker_count: int, rows_of: RowsOf | None = None
) -> WholeBatches:
    """Return how an input that is no `Dataset` is read.

    Args:
        dataset: The input.
        strategy: Whose workers read it.
        worker_count: How many workers read the same.
        rows_of: Which rows of a batch this worker needs, where these are not its share of a global batch.
    """
    if isinstance(dataset, DistributedDataset):
        raise InputError(
            "The dataset is distributed already.",
            "Its batches lie on the devices, and would be shared a second time.",
            "Give the dataset itself, or iterate over the distributed one.",
        )
    arrays = isinstance(dataset, dict | list | tuple | str)
    if arrays or (not isinstance(dataset, Iterator) and compat.is_array_input(dataset, None, None)):
        raise InputError(
            f"A dataset was expected, and {type(dataset).__name__} was given.",
            "Write stratagem.data.Dataset.from_tensor_slices(arrays).batch(GLOBAL_BATCH_SIZE).",
        )
    batches = input_of(dataset, strategy.from_chief, worker_count)
    return WholeBatches(batches, strategy, rows_of=rows_of, pass_is_epoch=True)
