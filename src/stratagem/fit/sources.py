"""Where batches come from: every worker reads its share of each global batch.

A source can be read again and again; a reader is one pass over it. `fit.adapter` hands readers to
Keras, `strategy.input` to custom loops.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import jax
import numpy as np

from stratagem.core.errors import InputError, PeerError, explain
from stratagem.core.log import announce_once
from stratagem.data.autoshard import choose_policy
from stratagem.data.batches import Batch, BatchIterator, RowsOf, State, whole
from stratagem.data.dataset import Dataset
from stratagem.data.nodes import UNKNOWN_CARDINALITY
from stratagem.data.options import AutoShardPolicy
from stratagem.fit import compat
from stratagem.fit.batch import count_rows
from stratagem.replica.context import StrategyLike
from stratagem.replica.mesh import Tree

READ_AHEAD = 2
"""Batches read in the background while a step runs: one in use, one ready."""


class LocalRows(NamedTuple):
    """This worker's rows of one global batch."""

    rows: int
    data: Tree


class Reader(Protocol):
    """One pass over a source: an iterator over batches."""

    def __iter__(self) -> Iterator[LocalRows]: ...

    def __next__(self) -> LocalRows: ...

    def get_state(self) -> State:
        """Return the position after the last batch handed out, as plain JSON."""
        ...

    def close(self) -> None:
        """End the pass, and its thread if it reads ahead."""
        ...


class Source(Protocol):
    """Batches as a worker reads them."""

    num_batches: int | None
    """Batches in an epoch, None if unknown or endless."""

    may_end: bool
    """Whether the workers must ask each other before each batch if the data goes on."""

    def open(self, *, read_ahead: int = READ_AHEAD, state: State | None = None) -> Reader:
        """Begin an epoch.

        Args:
            read_ahead: Batches to read in the background, where the source can.
            state: A position of an earlier reader to go on from; later epochs follow that one.
        """
        ...

    def first(self) -> Tree:
        """Return arrays like those of the first global batch, without using it up."""
        ...

    def position(self, reader: Reader | None) -> State:
        """Return where reading goes on, as plain JSON: in the pass of a reader, or with None at the next pass."""
        ...

    def resume(self, state: State) -> None:
        """Let the next pass begin where `position` said, in this or an earlier run of the program."""
        ...

    @property
    def element_spec(self) -> Tree:
        """Structure of `TensorSpec` of a global batch."""
        ...


class DatasetSource:
    """A `stratagem.data.Dataset`: reads only this worker's rows.

    Args:
        dataset: A batched dataset.
        strategy: Whose workers share it.
        class_weight: Weight of each class, turned into sample weights; or None.
    """

    def __init__(self, dataset: Dataset, strategy: StrategyLike, class_weight: dict[int, float] | None = None) -> None:
        policy, reason = choose_policy(dataset.options(), dataset, strategy.worker_count)
        self._given = dataset
        self._hinted = policy is AutoShardPolicy.HINT
        self._resumed_at: State | None = None
        dataset = _agreed_order(dataset, strategy)
        if policy is AutoShardPolicy.HINT:
            dataset = dataset.with_shard_hint(strategy.worker_count, strategy.worker_index)
        self.dataset = dataset
        self.class_weight = class_weight
        # Under OFF and HINT each worker reads a stream of its own, a part of a batch at each step.
        own_stream = policy in (AutoShardPolicy.OFF, AutoShardPolicy.HINT)
        self.parts = strategy.worker_count if own_stream else 1
        self._rows_of: RowsOf = whole if self.parts > 1 else strategy.mesh.local_rows
        if strategy.worker_count > 1 and strategy.is_chief:
            announce_once(f"data: {reason}")
        cardinality = int(dataset.cardinality())
        if policy is AutoShardPolicy.HINT:  # shards of a dataset may differ by a batch; all end with the shortest
            cardinality = min(strategy.from_all("number of batches", cardinality))
        self.num_batches = cardinality * self.parts if cardinality >= 0 else None
        self.may_end = cardinality == UNKNOWN_CARDINALITY or policy is AutoShardPolicy.HINT

    def open(self, *, read_ahead: int = READ_AHEAD, state: State | None = None) -> Reader:
        if state is not None:
            self.dataset = resumed(self.dataset, state)
        else:
            state, self._resumed_at = self._resumed_at, None
        # A thread for what is only a gather costs more than it saves: 0.15 ms a step on one core.
        ahead = read_ahead if self.dataset.runs_python else 0
        return DatasetReader(self.dataset, self._rows_of, ahead, state, self._weighted, self.parts)

    def _weighted(self, data: Tree) -> Tree:
        if self.class_weight is None:
            return data
        return _with_class_weight(data, self.class_weight)

    def first(self) -> Tree:
        element = jax.tree.map(
            lambda spec: np.zeros([1 if size is None else size for size in spec.shape], spec.dtype),
            self.dataset.element_spec,
            is_leaf=lambda leaf: hasattr(leaf, "shape"),
        )
        count_rows(element)
        return self._weighted(element)

    @property
    def element_spec(self) -> Tree:
        return self.dataset.element_spec

    def position(self, reader: Reader | None) -> State:
        if reader is not None:
            return reader.get_state()
        if self._resumed_at is not None:
            return self._resumed_at
        state = self.dataset.next_pass()
        return {**state, "part": [0, self.parts]} if self.parts > 1 else state

    def resume(self, state: State) -> None:
        self.dataset = resumed(self.dataset, state)
        self._resumed_at = state
        if not self._hinted:  # a second `fit` on the same dataset goes on to the orders that come next
            _agreed[self._given] = self.dataset


def resumed(dataset: Dataset, state: State) -> Dataset:
    """Return the dataset with the order of a state: its next pass is the one that the state stands in.

    Args:
        dataset: The dataset that the state was taken from, or one made alike.
        state: What `get_state` of a reader returned.

    Raises:
        InputError: It is no state of such a dataset.
    """
    dataset.batches().set_state(state)  # checks it
    dataset = dataset.with_random_seeds(list(state["seeds"]))
    iteration = int(state["iteration"])
    if iteration:
        dataset.batches(iteration=iteration - 1)
    return dataset


class DatasetReader:
    """A pass over a dataset.

    Args:
        dataset: A batched dataset.
        rows_of: Which rows of a batch this worker needs.
        read_ahead: Batches to read in the background.
        state: Where to begin, or None.
        adapt: What is done to each batch.
        parts: For how many steps a batch lasts, a part of its rows at each.
    """

    def __init__(
        self,
        dataset: Dataset,
        rows_of: RowsOf,
        read_ahead: int,
        state: State | None = None,
        adapt: Callable[[Tree], Tree] = lambda data: data,
        parts: int = 1,
    ) -> None:
        self._batches: BatchIterator = dataset.batches(rows_of, prefetch=read_ahead)
        self._adapt = adapt
        self._parts = parts
        self._part = 0
        self._current: Batch | None = None
        if state is not None:
            self._batches.set_state(state)
            self._part = _checked_part(state, parts)

    def __iter__(self) -> DatasetReader:
        return self

    def __next__(self) -> LocalRows:
        if self._current is None:
            self._current = next(self._batches)
        rows, data = self._current
        if self._parts > 1:
            piece = slice(rows * self._part // self._parts, rows * (self._part + 1) // self._parts)
            data = jax.tree.map(lambda leaf: leaf[piece], data)
            rows = (piece.stop - piece.start) * self._parts
        self._part = (self._part + 1) % self._parts
        if self._part == 0:
            self._current = None
        return LocalRows(rows, self._adapt(data))

    def get_state(self) -> State:
        state = self._batches.get_state()
        if self._parts > 1:
            state["batches"] -= 0 if self._current is None else 1
            state["part"] = [self._part, self._parts]
        return state

    def close(self) -> None:
        self._batches.close()


def _checked_part(state: State, parts: int) -> int:
    part, of = state.get("part", (0, 1))
    if of != parts:
        raise InputError(
            explain(
                f"The state was taken where a batch lasts for {of} step(s); here it lasts for {parts}.",
                "Under AutoShardPolicy.OFF and HINT each worker reads a stream of its own, as many as there were.",
                "Resume on the same number of workers, or use AutoShardPolicy.DATA, whose state fits any number.",
            )
        )
    return part


class AgreedReader:
    """The batches of a reader that have rows, ended on all workers when the data of one ends.

    Args:
        source: The batches.
        strategy: Whose workers read them.
        read_ahead: Batches to read in the background.
        state: Where to begin, or None.
    """

    def __init__(
        self, source: Source, strategy: StrategyLike, *, read_ahead: int = READ_AHEAD, state: State | None = None
    ) -> None:
        self.reader = source.open(read_ahead=read_ahead, state=state)
        self._strategy = strategy
        self._asks = source.may_end and strategy.worker_count > 1

    def __iter__(self) -> AgreedReader:
        return self

    def get_state(self) -> State:
        return self.reader.get_state()

    def close(self) -> None:
        self.reader.close()

    def __next__(self) -> LocalRows:
        while True:
            batch = next(self.reader, None)
            if self._asks:
                self._ask(batch)
            if batch is None:
                raise StopIteration
            if batch.rows:
                return batch

    def _ask(self, batch: LocalRows | None) -> None:
        """End on all workers when the data of one ends: the others would wait in a collective for ever.

        Only where the number of batches is not known beforehand; costs about 1 ms for each batch.
        """
        rows = self._strategy.from_all("rows of the next batch", 0 if batch is None else batch.rows)
        if 0 in rows:
            if set(rows) != {0}:
                ended = ", ".join(f"worker {i}" for i, count in enumerate(rows) if count == 0)
                warnings.warn(f"The data of {ended} ended first; all workers end here.", stacklevel=2)
            raise StopIteration
        if len(set(rows)) > 1:
            raise PeerError(
                explain(
                    f"The workers read batches of different sizes: {rows} rows on workers 0 to {len(rows) - 1}.",
                    "Each worker takes its part of one global batch, so all must read the same batches.",
                    "Give every worker the same dataset or generator, with the same seed.",
                )
            )


def _with_class_weight(data: Tree, class_weight: dict[int, float]) -> Tree:
    x, y, sample_weight = compat.unpack(data)
    weights = np.asarray(compat.class_weight_to_sample_weights(y, class_weight))
    return x, y, weights if sample_weight is None else weights * np.asarray(sample_weight)


_agreed: weakref.WeakKeyDictionary[Dataset, Dataset] = weakref.WeakKeyDictionary()


def _agreed_order(dataset: Dataset, strategy: StrategyLike) -> Dataset:
    """Return the dataset with the chief's seeds, so that all workers see one order.

    The same dataset gives the same object again, so that a second `fit` goes on to new orders.
    """
    if dataset not in _agreed:
        if not strategy.mesh.multi_process:
            return dataset
        seeds = strategy.from_chief("dataset seeds", dataset.random_seeds())
        _agreed[dataset] = dataset.with_random_seeds(seeds)
    return _agreed[dataset]
