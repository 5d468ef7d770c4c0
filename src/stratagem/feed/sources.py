"""Where batches come from: every worker reads its share of each global batch.

A source can be read again and again; a reader is one pass over it. `feed.adapter` hands readers to
Keras, `feed.distributed` to custom loops.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import jax
import numpy as np
import optree

from stratagem.core.errors import InputError
from stratagem.core.log import announce_once
from stratagem.data.batches import Batch, DatasetIterator, RowsOf, State, whole
from stratagem.data.dataset import Dataset
from stratagem.data.nodes import UNKNOWN_CARDINALITY
from stratagem.data.options import AutoShardPolicy
from stratagem.data.sharding.autoshard import choose_policy
from stratagem.data.specs import TensorSpec
from stratagem.feed import compat
from stratagem.feed.batch import count_rows
from stratagem.mesh.mesh import Tree
from stratagem.mesh.split import Split
from stratagem.replica.context import StrategyLike

READ_AHEAD = 2
"""Batches read in the background while a step runs: one in use, one ready."""


class LocalRows(NamedTuple):
    """What this worker reads at a time.

    Args:
        rows: Rows of the global batch, or of a piece of the worker's own stream.
        data: Structure of arrays with this worker's rows.
    """

    rows: int
    data: Tree


class HasState(Protocol):
    """A pass that knows where it stands."""

    def get_state(self) -> State:
        """Return the position after the last batch handed out, as plain JSON."""
        ...


class Reader(HasState, Protocol):
    """One pass over a source: an iterator over batches."""

    def __iter__(self) -> Iterator[LocalRows]: ...

    def __next__(self) -> LocalRows: ...

    def check_alike(self, strategy: StrategyLike) -> None:
        """Compare the last batch with those of the other workers, where each reads whole ones. All call it together.

        Raises:
            PeerError: They differ.
        """
        ...

    def close(self) -> None:
        """End the pass, and its thread if it reads ahead."""
        ...


class Resumable(Protocol):
    """Batches, as the loop of `fit` needs to know them: what one is like, and where reading goes on."""

    @property
    def num_batches(self) -> int | None:
        """Batches in an epoch, None if unknown or endless."""
        ...

    @property
    def element_spec(self) -> Tree:
        """Structure of `TensorSpec` of a global batch."""
        ...

    def first(self) -> Tree:
        """Return arrays like those of the first global batch, without using it up."""
        ...

    def position(self, reading: HasState | None) -> State:
        """Return where reading goes on, as plain JSON: in the pass that is under way, or with None at the next pass."""
        ...

    def resume(self, state: State) -> None:
        """Let the next pass begin where `position` said, in this or an earlier run of the program."""
        ...

    def close(self) -> None:
        """End what the source has started: threads, processes."""
        ...


class Source(Resumable, Protocol):
    """Batches as a worker reads them."""

    @property
    def may_end(self) -> bool:
        """Whether the workers must ask each other before each batch if the data goes on."""
        ...

    @property
    def own(self) -> bool:
        """Whether each worker reads a stream of its own; otherwise all workers share each batch."""
        ...

    def open(self, *, read_ahead: int = READ_AHEAD, state: State | None = None) -> Reader:
        """Begin an epoch.

        Args:
            read_ahead: Batches to read in the background, where the source can.
            state: A position of an earlier reader to go on from; later epochs follow that one.
        """
        ...


class DatasetSource:
    """A `stratagem.data.Dataset`: reads only this worker's rows.

    Args:
        dataset: A batched dataset.
        strategy: Whose workers share it.
        class_weight: Weight of each class, turned into sample weights; or None.
        structure: How the arrays of a batch nest, where the dataset holds them in a flat tuple; or None.
        in_order: Whether the rows within a batch must keep their order, as for `predict`.
        together: How many batches are used at once.
    """

    def __init__(
        self,
        dataset: Dataset,
        strategy: StrategyLike,
        class_weight: dict[int, float] | None = None,
        structure: optree.PyTreeSpec | None = None,
        *,
        in_order: bool = False,
        together: int = 1,
    ) -> None:
        workers, worker = strategy.worker_count, strategy.worker_index
        choice = choose_policy(dataset.options(), dataset, workers, in_order=in_order)
        if workers > 1 and strategy.is_chief:
            announce_once(f"data: {choice.reason}")
        self._given = dataset
        self._resumed_at: State | None = None
        dataset = _agreed_order(dataset, strategy)
        self._whole = dataset.with_shard_hint(1, 0)  # a worker's part of it may be empty
        self._first: Tree = None
        if choice.policy is AutoShardPolicy.HINT:
            self.dataset = dataset.with_shard_hint(workers, worker)
        elif choice.policy is AutoShardPolicy.FILE:
            self.dataset = dataset.with_files_of(workers, worker, divide_batches=choice.even)
        else:
            self.dataset = dataset
        self._divided = self.dataset is not dataset
        self._readers = dataset.reader_pool()  # for all passes: a process starts in a third of a second or more
        self.class_weight = class_weight
        self._together = together
        self._structure = structure
        self.own = workers > 1 and choice.policy is not AutoShardPolicy.DATA
        # A batch of a worker's own stream lasts for several steps, unless the batches were divided already.
        self._pieces = 1 if choice.policy is AutoShardPolicy.FILE and choice.even else workers
        self._rows_of: RowsOf = whole if self.own else strategy.mesh.local_rows
        cardinality = int(self.dataset.cardinality())
        self.may_end = cardinality == UNKNOWN_CARDINALITY or (self._divided and not choice.even)
        self.num_batches = cardinality if cardinality >= 0 else None
        if self.own and self._pieces > 1:
            self.num_batches = _steps_of_pieces(self.dataset, cardinality, strategy)

    def open(self, *, read_ahead: int = READ_AHEAD, state: State | None = None) -> Reader:
        if state is not None:
            self.dataset = resumed(self.dataset, state)
        else:
            state, self._resumed_at = self._resumed_at, None
        # A thread for what is only a gather costs more than it saves: 0.15 ms a step on one core.
        ahead = 0 if self.dataset.in_memory else read_ahead
        batches = self.dataset.batches(self._rows_of, prefetch=ahead, readers=self._readers, together=self._together)
        if state is not None:
            batches.set_state(state)
        if self.own:
            return PieceReader(batches, self._adapted, self._pieces, state)
        return DatasetReader(batches, self._adapted)

    def _adapted(self, data: Tree) -> Tree:
        if self._structure is not None:
            data = self._structure.unflatten(data)
        return data if self.class_weight is None else with_class_weight(data, self.class_weight)

    def first(self) -> Tree:
        if self._first is None:
            self._first = self._adapted(self._blank())
        return self._first

    def _blank(self) -> Tree:
        """Return zeros of the shapes of the first batch; read it only where nothing else tells them."""
        specs = jax.tree.leaves(self.element_spec, is_leaf=lambda leaf: hasattr(leaf, "shape"))
        known = all(spec.shape is not None and None not in spec.shape[1:] for spec in specs)
        batch = None
        if not known or self.dataset.in_memory:
            batch = next(self._whole.take(1).batches((lambda rows: slice(0)) if known else whole), None)
        if batch is not None and not known:
            element = jax.tree.map(np.zeros_like, batch.data)
        else:
            # As many rows as there will be: a layer may keep a state for each.
            rows = 1 if batch is None else batch.rows
            element = example_of(self.element_spec, rows)
        count_rows(element)
        return element

    @property
    def element_spec(self) -> Tree:
        return self._whole.element_spec

    def close(self) -> None:
        """End the reader processes. There will be no further pass."""
        if self._readers is not None:
            self._readers.close()

    def position(self, reading: HasState | None) -> State:
        if reading is not None:
            return reading.get_state()
        if self._resumed_at is not None:
            return self._resumed_at
        state = self.dataset.next_pass()
        return {**state, "part": [0, self._pieces]} if self.own and self._pieces > 1 else state

    def resume(self, state: State) -> None:
        self.dataset = resumed(self.dataset, state)
        self._resumed_at = state
        if not self._divided:  # a second `fit` on the same dataset goes on to the orders that come next
            _agreed[self._given] = self.dataset


def example_of(element_spec: Tree, rows: int = 1) -> Tree:
    """Return zeros like an element of a structure of `TensorSpec`.

    Args:
        element_spec: The structure.
        rows: The first size where it is not known; other sizes that are not known are 1.
    """
    return jax.tree.map(lambda spec: _zeros(spec, rows), element_spec, is_leaf=lambda leaf: hasattr(leaf, "shape"))


def batch_spec_of(batch: Tree) -> Tree:
    """Return the structure of `TensorSpec` of batches like one, of any number of rows."""
    return jax.tree.map(lambda leaf: TensorSpec((None, *np.shape(leaf)[1:]), leaf.dtype), batch)


def _zeros(spec: TensorSpec, rows: int) -> np.ndarray:
    sizes = [rows, *[1] * len(spec.shape or ())]
    shape = [other if size is None else size for size, other in zip(spec.shape or (), sizes, strict=False)]
    return np.zeros(shape, spec.dtype)


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
    """A pass over a dataset that all workers share.

    Args:
        batches: This worker's rows of each batch.
        adapt: What is done to each batch.
    """

    def __init__(self, batches: DatasetIterator[Batch], adapt: Callable[[Tree], Tree] = lambda data: data) -> None:
        self._batches = batches
        self._adapt = adapt

    def __iter__(self) -> DatasetReader:
        return self

    def __next__(self) -> LocalRows:
        rows, data = next(self._batches)
        return LocalRows(rows, self._adapt(data))

    def get_state(self) -> State:
        return self._batches.get_state()

    def check_alike(self, strategy: StrategyLike) -> None:
        """Do nothing: a worker reads its own rows only."""

    def close(self) -> None:
        self._batches.close()


class PieceReader:
    """A pass over a worker's own stream, whose batches last for several steps, a piece at each.

    Pieces are counted whether they have rows or not, and behind the end of the stream too: the position is that of
    all workers, also of those whose streams are shorter.

    Args:
        batches: Whole batches of the stream.
        adapt: What is done to each piece.
        parts: Pieces of a batch.
        state: Where the batches stand, or None at their beginning.
    """

    def __init__(
        self, batches: DatasetIterator[Batch], adapt: Callable[[Tree], Tree], parts: int, state: State | None
    ) -> None:
        self._batches = batches
        self._adapt = adapt
        self._parts = parts
        self._count = 0 if state is None else int(state["batches"]) * parts + _checked_part(state, parts)
        self._current = None if state is None or self._count % parts == 0 else next(batches, None)

    def __iter__(self) -> PieceReader:
        return self

    def __next__(self) -> LocalRows:
        number = self._count % self._parts
        self._count += 1
        if number == 0:
            self._current = next(self._batches, None)
        if self._current is None:
            raise StopIteration
        split = Split(self._current.rows, self._parts)
        piece = slice(split.start(number), split.start(number + 1))
        return LocalRows(split.shares[number], self._adapt(jax.tree.map(lambda leaf: leaf[piece], self._current.data)))

    def get_state(self) -> State:
        batches, part = divmod(self._count, self._parts)
        state = {**self._batches.get_state(), "batches": batches}
        return {**state, "part": [part, self._parts]} if self._parts > 1 else state

    def check_alike(self, strategy: StrategyLike) -> None:
        """Do nothing: a worker's own stream is like no other."""

    def close(self) -> None:
        self._batches.close()


def _checked_part(state: State, parts: int) -> int:
    part, of = state.get("part", (0, 1))
    if of != parts:
        raise InputError(
            f"The state was taken where a batch lasts for {of} step(s); here it lasts for {parts}.",
            "Under AutoShardPolicy.OFF, HINT and FILE each worker reads a stream of its own.",
            "Resume on the same number of workers, or use AutoShardPolicy.DATA, whose state fits any number.",
        )
    return part


def _steps_of_pieces(dataset: Dataset, cardinality: int, strategy: StrategyLike) -> int | None:
    """Return for how many steps the workers' own streams last, None where only reading can tell."""
    last = 0
    if cardinality > 0:
        batch = next(dataset.skip(cardinality - 1).batches(lambda rows: slice(0)), None)
        last = 0 if batch is None else batch.rows
    told = strategy.from_all("batches of a stream", [cardinality, last])
    longest = max(count for count, _ in told)
    if min(count for count, _ in told) < 0:
        return None
    # A last batch with fewer rows than it has pieces leaves steps without rows, which are passed over.
    full = longest == 0 or max(rows for count, rows in told if count == longest) >= len(told)
    return longest * len(told) if full else None


def with_class_weight(data: Tree, class_weight: dict[int, float]) -> Tree:
    """Return a batch with the weights of classes multiplied into its sample weights."""
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
