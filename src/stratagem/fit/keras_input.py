"""Input that is no `stratagem.data.Dataset`: whatever else Keras accepts, read whole by every worker."""

from __future__ import annotations

import itertools
import random
from collections.abc import Generator, Iterator
from typing import Any

import jax
import keras
import numpy as np

from stratagem.core.errors import InputError, UsageError, explain
from stratagem.core.log import logger
from stratagem.data.batches import RowsOf, State
from stratagem.data.specs import TensorSpec
from stratagem.fit import compat
from stratagem.fit.batch import as_numpy, count_rows
from stratagem.fit.sources import READ_AHEAD, HasState, LocalRows, Reader
from stratagem.replica.context import StrategyLike
from stratagem.replica.mesh import Tree


class WholeBatches:
    """Any input that Keras accepts: every worker reads whole batches and keeps its rows.

    All workers must read the same batches in the same order. Batches are read when they are asked
    for: what Keras, torch and tf.data read ahead, they read ahead by themselves, and what is read
    ahead of a generator would be lost between two epochs.

    Args:
        adapter: Keras's own adapter of the input.
        rows_of: Which rows of a batch this worker needs.
        indexed: The input, if its batches have numbers.
    """

    def __init__(self, adapter: Any, rows_of: RowsOf, indexed: IndexedBatches | None = None) -> None:
        self.adapter = adapter
        self.num_batches: int | None = adapter.num_batches
        self.may_end = adapter.num_batches is None
        self.own = False
        self._rows_of = rows_of
        self._indexed = indexed
        self._peeked: tuple[Tree, Iterator[Tree]] | None = None
        self._reader = _WholeReader(rows for rows in ())
        self._read: list[int] = []  # batches read in each pass
        self._resumed_at = 0

    def open(self, *, read_ahead: int = READ_AHEAD, state: State | None = None) -> Reader:
        if state is not None:
            raise _no_state()
        self._reader.close()
        self._reader = _WholeReader(self._pass())
        return self._reader

    def position(self, reading: HasState | None) -> State:
        if reading is not None:
            place = {"passes": self._read[:-1], "batches": self._read[-1]}
        else:
            place = {"passes": list(self._read), "batches": self._resumed_at}
        return place if self._indexed is None else {**place, "seed": self._indexed.seed}

    def resume(self, state: State) -> None:
        """Go to a position: by number where batches have one, else by reading again all that came before."""
        passes, batches = list(state["passes"]), int(state["batches"])
        if self._indexed is not None:
            self._indexed.resume(state["seed"], len(passes), batches)
            self._read = passes
        else:
            if passes or batches:
                logger.info("Reading %d batches of the input again, to go on from there", sum(passes) + batches)
            for count in passes:
                again = self._pass()
                for _ in range(count):
                    next(again, None)
                again.close()
        self._resumed_at = batches

    def _pass(self) -> Generator[LocalRows, None, None]:
        self.adapter.on_epoch_begin()
        try:
            peeked, self._peeked = self._peeked, None
            first, rest = ((), self._begin()) if peeked is None else ((peeked[0],), peeked[1])
            self._read.append(self._resumed_at)
            self._resumed_at = 0
            for batch in itertools.chain(first, rest):
                self._read[-1] += 1
                yield self._own(batch)
        finally:  # a PyDataset refuses to begin an epoch before the last one ended
            self.adapter.on_epoch_end()

    def _begin(self) -> Iterator[Tree]:
        """Begin a pass of the input itself, behind what was read before the program was restarted."""
        batches = map(as_numpy, compat.numpy_batches(self.adapter))
        for _ in range(0 if self._indexed is not None else self._resumed_at):
            if next(batches, None) is None:
                raise InputError(
                    explain(
                        f"The input ended before batch {self._resumed_at}, where training was interrupted.",
                        "It is not the input that was trained on, and training cannot go on from there.",
                        "Give `fit` the same input as before, a generator anew from its beginning.",
                    )
                )
        return batches

    def _own(self, batch: Tree) -> LocalRows:
        rows = count_rows(batch)
        part = self._rows_of(rows)
        return LocalRows(rows, jax.tree.map(lambda leaf: leaf[part], batch))

    def first(self) -> Tree:
        if self._peeked is None:
            batches = self._begin()
            try:
                self._peeked = (next(batches), batches)
            except StopIteration:
                raise InputError(
                    explain(
                        "The input yields no batch at all.",
                        "There is nothing to train on, and the model could not be built.",
                        "Check the generator or dataset; a generator that was used up must be made anew.",
                    )
                ) from None
        return self._peeked[0]

    @property
    def element_spec(self) -> Tree:
        return jax.tree.map(lambda leaf: TensorSpec((None, *np.shape(leaf)[1:]), leaf.dtype), self.first())


class _WholeReader:
    def __init__(self, batches: Generator[LocalRows, None, None]) -> None:
        self._batches = batches

    def __iter__(self) -> _WholeReader:
        return self

    def __next__(self) -> LocalRows:
        return next(self._batches)

    def get_state(self) -> State:
        raise _no_state()

    def close(self) -> None:
        self._batches.close()


def _no_state() -> UsageError:
    return UsageError(
        explain(
            "The position of an input that is no stratagem.data.Dataset was asked for.",
            "Where a generator, a PyDataset or a loader stands cannot be stored: a resumed run would repeat examples.",
            "Make a dataset of it, for example with stratagem.data.Dataset.from_generator(make_examples).",
        )
    )


class IndexedBatches(keras.utils.PyDataset):
    """A PyDataset in an order that depends on a seed and the number of the pass alone.

    Keras draws the order of a shuffled PyDataset from Python's `random` at each pass: workers would each have
    their own, and a restarted program another one.

    Args:
        dataset: The user's.
        shuffle: Whether the order of its batches is random.
        strategy: Whose workers read it.
    """

    def __init__(self, dataset: keras.utils.PyDataset, shuffle: bool, strategy: StrategyLike) -> None:
        super().__init__(dataset.workers, dataset.use_multiprocessing, dataset.max_queue_size)
        # Python's generator follows keras.utils.set_random_seed, as Keras's own shuffle does.
        self.seed: int | None = strategy.from_chief("order of a PyDataset", random.getrandbits(31) if shuffle else None)
        self._dataset = dataset
        self._pass = 0
        self._first = 0
        self._order = self._order_of_pass()

    @property
    def num_batches(self) -> int | None:  # pyright: ignore[reportIncompatibleMethodOverride]  None is for no end
        count = self._dataset.num_batches
        return None if count is None else count - self._first

    def __getitem__(self, index: int) -> Any:
        index += self._first
        return self._dataset[index if self._order is None else int(self._order[index])]

    def on_epoch_begin(self) -> None:
        self._dataset.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self._dataset.on_epoch_end()
        self._pass, self._first = self._pass + 1, 0
        self._order = self._order_of_pass()

    def resume(self, seed: int | None, passes: int, first: int) -> None:
        """Let the next pass be that of a number, from a batch on. The dataset hears of the passes before."""
        self.seed, self._pass = seed, 0
        for _ in range(passes):
            self.on_epoch_begin()
            self.on_epoch_end()
        self._first, self._order = first, self._order_of_pass()

    def _order_of_pass(self) -> np.ndarray | None:
        count = self._dataset.num_batches
        if self.seed is None or count is None:
            return None
        bits = np.random.Philox(np.random.SeedSequence(self.seed, spawn_key=(self._pass,)))
        return np.argsort(bits.random_raw(count), kind="stable")
