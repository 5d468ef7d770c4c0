"""`stratagem.data.Dataset` as a source: every worker reads only its rows of each global batch."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from stratagem.core.errors import UnsupportedError
from stratagem.core.log import announce_once
from stratagem.data.batches import Batch, RowsOf, State, whole
from stratagem.data.dataset import Dataset
from stratagem.data.nodes import UNKNOWN_CARDINALITY
from stratagem.data.options import AutoShardPolicy
from stratagem.data.resized import Sizes, continued, rows_of_batches, with_batch_sizes
from stratagem.data.sharding.autoshard import choose_policy
from stratagem.data.structure import Composite, is_composite
from stratagem.feed.batch import Adapt, as_it_is, count_rows, example_of, no_rows
from stratagem.feed.source import READ_AHEAD, Batches, Reader, Source, read_pieces, read_together, split_of_pieces
from stratagem.mesh.mesh import Tree
from stratagem.replica.context import StrategyLike


class DatasetSource(Source):
    """A batched dataset, shared by the workers of a strategy.

    Args:
        dataset: The dataset.
        strategy: Whose workers share it.
        adapt: What is done to the arrays of each batch.
        in_order: Whether the rows within a batch must keep their order, as for `predict`.
        together: How many batches are used at once.
        read_ahead: Batches to read in the background.
        is_agreed: Whether the workers have agreed on its order before, so that they need not meet.
    """

    reads_ahead = True

    def __init__(
        self,
        dataset: Dataset,
        strategy: StrategyLike,
        adapt: Adapt = as_it_is,
        *,
        in_order: bool = False,
        together: int = 1,
        read_ahead: int = READ_AHEAD,
        is_agreed: bool = False,
    ) -> None:
        workers, worker = strategy.layout
        world = strategy.mesh.world
        keeps_rows = world is not None and world.keeps_rows_of_workers
        # Files cannot be divided so that batches of another size have equally many rows of each.
        choice = choose_policy(dataset.options(), dataset, workers, in_order=in_order or keeps_rows)
        self._given_size = self._present_size = rows_of_batches(dataset)
        if world is not None and keeps_rows:
            self._present_size = world.membership.bounds.rows_of_batch(
                _checked_size(self._given_size, choice.policy), workers
            )
        if workers > 1 and worker == 0:
            announce_once(f"data: {choice.reason}")
        self._given, self._strategy, self._adapt = dataset, strategy, adapt
        self._together, self._read_ahead = together, read_ahead
        self._resumed_at: State | None = None
        self._first: Tree = None
        dataset = _agreed.get(dataset, dataset) if is_agreed else _agreed_order(dataset, strategy)
        self._whole = dataset.with_shard_hint(1, 0)  # a worker's part of it may be empty
        self.dataset = dataset
        if choice.policy is AutoShardPolicy.HINT:
            self.dataset = dataset.with_shard_hint(workers, worker)
        elif choice.policy is AutoShardPolicy.FILE:
            self.dataset = dataset.with_files_of(workers, worker, divide_batches=choice.even)
        self._divided = self.dataset is not dataset
        self._processes = dataset.reader_pool()  # for all passes: a process starts in a third of a second or more
        self._own = workers > 1 and choice.policy is not AutoShardPolicy.DATA
        # A batch of a worker's own stream lasts for several steps, unless the batches were divided already.
        self._pieces = 1 if choice.policy is AutoShardPolicy.FILE and choice.even else workers
        self._rows_of: RowsOf = whole if self._own else strategy.mesh.local_rows
        self._ends_apart = self._divided and not choice.even
        self._sizes: Sizes = ()
        self._count_batches()
        if self._own and self._pieces > 1:
            self.num_batches = _steps_of_pieces(self.dataset, int(self.dataset.cardinality()), strategy)
        self.begin_pass()

    def open(self, state: State | None = None) -> Reader:
        if state is not None:
            self.dataset = resumed(self.dataset, state)
        else:
            state = self._resumed_at
        self._resumed_at = None
        self._take_sizes(state)
        dataset, number = with_batch_sizes(self.dataset, self._sizes), self.dataset.next_pass()["iteration"]
        # A thread for what is only a gather costs more than it saves: 0.15 ms a step on one core.
        ahead = 0 if dataset.in_memory else self._read_ahead
        batches: Batches = dataset.batches(
            self._rows_of, prefetch=ahead, iteration=number, readers=self._processes, together=self._together
        )
        if state is not None:
            batches.set_state(state)
        if self._sizes:
            _at_pass(self.dataset, number + 1)
            batches = _BatchesOfSizes(batches, self._sizes)
        if not self._own:
            return read_together(batches, self._strategy, self._adapt, asks=self.may_end)
        empty, parts = no_rows(self.first()), self._pieces
        first = _row_count(self.dataset) if state is not None and parts > 1 and state["batches"] else 0
        return read_pieces(
            batches, self._strategy, self._adapt, empty, asks=self.may_end, parts=parts, state=state, first=first
        )

    def begin_pass(self) -> None:
        self._take_sizes(self._resumed_at)

    def _take_sizes(self, state: State | None) -> None:
        """Note the sizes of the batches of a pass, and how many there are.

        Args:
            state: Where the pass goes on; None where it begins.
        """
        sizes: Sizes = () if state is None else tuple((first, rows) for first, rows in state.get("sizes", ()))
        if self._given_size is not None and self._present_size is not None:
            batches = 0 if state is None else int(state["batches"])
            sizes = continued(sizes, batches, self._present_size, self._given_size)
        if sizes != self._sizes:
            self._sizes = sizes
            self._count_batches()

    def _count_batches(self) -> None:
        cardinality = int(with_batch_sizes(self.dataset, self._sizes).cardinality())
        self.may_end = cardinality == UNKNOWN_CARDINALITY or self._ends_apart
        self.num_batches = cardinality if cardinality >= 0 else None

    def first(self) -> Tree:
        if self._first is None:
            self._first = self._adapt(self._blank())
        return self._first

    def _blank(self) -> Tree:
        """Return zeros of the shapes of the first batch; read it only where nothing else tells them."""
        specs = jax.tree.leaves(self.element_spec, is_leaf=lambda leaf: hasattr(leaf, "shape"))
        known = all(spec.shape is not None and None not in spec.shape[1:] for spec in specs)
        batch = None
        if not known or self.dataset.in_memory:
            batch = next(self._whole.take(1).batches((lambda rows: slice(0)) if known else whole), None)
        if batch is not None and not known:
            element = jax.tree.map(_zeros_like, batch.data, is_leaf=is_composite)
        else:
            # As many rows as there will be: a layer may keep a state for each.
            element = example_of(self.element_spec, 1 if batch is None else batch.rows)
        count_rows(element)
        return element

    @property
    def element_spec(self) -> Tree:
        return self._whole.element_spec

    def close(self) -> None:
        """End the reader processes. There will be no further pass."""
        if self._processes is not None:
            self._processes.close()

    def position(self) -> State:
        if self._resumed_at is not None:
            return self._resumed_at
        state = self.dataset.next_pass()
        return {**state, "part": [0, self._pieces]} if self._own and self._pieces > 1 else state

    def resume(self, state: State) -> None:
        self.dataset = resumed(self.dataset, state)
        self._resumed_at = state
        self._take_sizes(state)
        if not self._divided:  # a second `fit` on the same dataset goes on to the orders that come next
            _agreed[self._given] = self.dataset

    def advice(self) -> str:
        return self.dataset.faster()


class _BatchesOfSizes(Iterator[Batch]):
    """A pass whose position says the sizes of its batches.

    Args:
        batches: The pass.
        sizes: The sizes.
    """

    def __init__(self, batches: Batches, sizes: Sizes) -> None:
        self._batches = batches
        self._sizes = sizes
        self.close = batches.close

    def __next__(self) -> Batch:
        return next(self._batches)

    def get_state(self) -> State:
        return {**self._batches.get_state(), "sizes": [[*each] for each in self._sizes]}


def _checked_size(rows: int | None, policy: AutoShardPolicy) -> int:
    """Return the size of batches that can have another one for another number of workers; refuse others."""
    if policy is not AutoShardPolicy.DATA:
        raise UnsupportedError(
            f'ElasticOptions(batch="per_worker") was used with AutoShardPolicy.{policy.name}.',
            "Each worker reads a stream of its own, whose place fits no other number of workers.",
            'Use AutoShardPolicy.DATA or AUTO, or batch="global".',
        )
    if rows is None:
        raise UnsupportedError(
            'ElasticOptions(batch="per_worker") was used with a dataset that does not say how many rows its batches '
            "have.",
            "A batch gets more or fewer rows when the number of workers changes.",
            "End the dataset with batch(n), if need be after unbatch(), and let only steps such as map, prefetch, "
            'repeat and take follow; or use batch="global".',
        )
    return rows


def _zeros_like(leaf: Any) -> Any:
    return leaf if isinstance(leaf, Composite) else np.zeros_like(leaf)


def resumed(dataset: Dataset, state: State) -> Dataset:
    """Return the dataset with the order of a state: its next pass is the one that the state stands in.

    Args:
        dataset: The dataset that the state was taken from, or one made alike.
        state: What `get_state` of a reader returned.

    Raises:
        InputError: It is no state of such a dataset.
    """
    dataset.batches().set_state(state)  # checks it
    return _at_pass(dataset.with_random_seeds(list(state["seeds"])), int(state["iteration"]))


def _steps_of_pieces(dataset: Dataset, cardinality: int, strategy: StrategyLike) -> int | None:
    """Return for how many steps the workers' own streams last, None where only reading can tell."""
    first = last = 0
    if cardinality > 0:
        first, last = _row_count(dataset), _row_count(dataset.skip(cardinality - 1))
    told = strategy.from_all("batches of a stream", [cardinality, first, last])
    longest = max(count for count, _, _ in told)
    if min(count for count, _, _ in told) < 0:
        return None
    if longest == 0:
        return 0
    # Steps without rows, behind the pieces of a last batch, are passed over.
    splits = [split_of_pieces(last, first, len(told)) for count, first, last in told if count == longest]
    return (longest - 1) * len(told) + max(sum(map(bool, split.shares)) for split in splits)


def _row_count(dataset: Dataset) -> int:
    """Return the number of rows of a dataset's first batch."""
    batch = next(dataset.take(1).batches(lambda rows: slice(0)), None)
    return 0 if batch is None else batch.rows


_agreed: weakref.WeakKeyDictionary[Dataset, Dataset] = weakref.WeakKeyDictionary()
"""By the dataset that a program gave: the same one in the order that all workers follow."""


def _agreed_order(dataset: Dataset, strategy: StrategyLike) -> Dataset:
    """Return the dataset with the chief's seeds, so that all workers see one order.

    The same dataset gives the same object again, so that a second `fit` goes on to new orders. Where workers may
    change, they meet each time: for a new worker it is the first, and it goes on to the order that is next for the
    others.
    """
    is_known = dataset in _agreed
    if not strategy.mesh.multi_process:
        return _agreed.get(dataset, dataset)
    if strategy.mesh.world is not None:
        own = _agreed.get(dataset, dataset).next_pass()
        following = max(strategy.from_all("order of a dataset", own), key=lambda state: state["iteration"])
        if not is_known or own != following:
            _agreed[dataset] = _at_pass(dataset.with_random_seeds(list(following["seeds"])), following["iteration"])
    elif not is_known:
        seeds = strategy.from_chief("dataset seeds", dataset.random_seeds())
        _agreed[dataset] = dataset.with_random_seeds(seeds)
    return _agreed[dataset]


def _at_pass(dataset: Dataset, iteration: int) -> Dataset:
    """Return a dataset whose next pass is the one with this number."""
    if iteration:
        dataset.batches(iteration=iteration - 1)
    return dataset
