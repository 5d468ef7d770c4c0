"""Choice of the next element among several datasets: as another dataset says, or at random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stratagem.core.errors import InputError
from stratagem.data.blocks import Block, ColumnsBlock, join
from stratagem.data.nodes import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Key,
    Node,
    Seeded,
    Stream,
    pull_exactly,
)
from stratagem.data.specs import TensorSpec
from stratagem.data.structure import Tree

_MOST_IN_VAIN = 1 << 20
"""Choices in a row of datasets that have ended, after which no other is expected."""


class RandomNumbers(Seeded):
    """Numbers 0 ... n - 1 for ever, each with its probability.

    Args:
        weights: How likely each number is, up to a factor; above 0.
        seed: See `Seeded`.
        redraw: Whether each iteration and repetition has numbers of its own.
    """

    def __init__(self, weights: Sequence[float], seed: int | None, redraw: bool) -> None:
        super().__init__([], seed)
        self._ends = np.cumsum(weights) / np.sum(weights)
        self._redraw = redraw

    def stream(self, key: Key) -> Stream:
        return _RandomStream(self.bits(key if self._redraw else ()), self._ends)

    def cardinality(self) -> int:
        return INFINITE_CARDINALITY

    def _make_spec(self) -> Tree:
        return TensorSpec((), np.int64)


class _RandomStream(Stream):
    def __init__(self, bits: np.random.Philox, ends: np.ndarray) -> None:
        self._bits = bits
        self._ends = ends

    def pull(self, rows: int) -> Block | None:
        drawn = (np.atleast_1d(self._bits.random_raw(rows)) >> np.uint64(11)) * 2.0**-53
        return ColumnsBlock(np.searchsorted(self._ends[:-1], drawn, side="right").astype(np.int64))


class Choose(Node):
    """The next element of the dataset that each choice names.

    Args:
        choices: int64 numbers.
        datasets: What they choose from.
        stop_on_empty: Whether all ends where a dataset is chosen that has ended. Otherwise such choices are left out.
    """

    def __init__(self, choices: Node, datasets: Sequence[Node], stop_on_empty: bool) -> None:
        super().__init__([choices, *datasets])
        self._stop_on_empty = stop_on_empty

    def stream(self, key: Key) -> Stream:
        choices, *datasets = [node.stream(key) for node in self.inputs]
        return _ChooseStream(choices, datasets, self._stop_on_empty)

    def cardinality(self) -> int:
        choices, *lengths = [node.cardinality() for node in self.inputs]
        if all(length == INFINITE_CARDINALITY for length in lengths):
            return choices
        if self._stop_on_empty or choices != INFINITE_CARDINALITY or UNKNOWN_CARDINALITY in lengths:
            return UNKNOWN_CARDINALITY
        return INFINITE_CARDINALITY if INFINITE_CARDINALITY in lengths else sum(lengths)

    def _make_spec(self) -> Tree:
        return self.inputs[1].spec


class _ChooseStream(Stream):
    def __init__(self, choices: Stream, datasets: Sequence[Stream], stop_on_empty: bool) -> None:
        self._choices = choices
        self._datasets = datasets
        self._stop_on_empty = stop_on_empty
        self._live = set(range(len(datasets)))
        self._ended = False

    def pull(self, rows: int) -> Block | None:
        in_vain = 0
        while not self._ended and in_vain < _MOST_IN_VAIN:
            chosen = self._choices.pull(rows)
            self._ended = chosen is None
            block = chosen and self._follow(self._numbers(chosen))
            self._ended = self._ended or not self._live
            if block:
                return block
            in_vain += rows
        if self._ended:
            return None
        raise InputError(
            f"{in_vain} choices in a row named datasets that have ended; number {min(self._live)} has not.",
            "The dataset would go on for ever without another element.",
            "Write stop_on_empty_dataset=True, or choose each of the datasets now and then.",
        )

    def _numbers(self, chosen: Block) -> np.ndarray:
        numbers = np.asarray(chosen.gather())
        count = len(self._datasets)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or not ((numbers >= 0) & (numbers < count)).all():
            raise InputError(
                f"choice_dataset has {numbers.tolist()[:9]}, of dtype {numbers.dtype}; there are {count} datasets.",
                f"Give it int64 numbers from 0 to {count - 1}.",
            )
        return numbers

    def _follow(self, numbers: np.ndarray) -> Block | None:
        """Return an element for each number, or fewer where a dataset has ended."""
        blocks, places = [], []
        for number in np.unique(numbers).tolist():
            wanted = np.flatnonzero(numbers == number)
            block = pull_exactly(self._datasets[number], len(wanted)) if number in self._live else None
            found = 0 if block is None else len(block)
            if found < len(wanted):
                self._live.discard(number)
                if self._stop_on_empty:
                    self._ended = True
                    numbers = numbers[: wanted[found]]
            if block:
                blocks.append(block)
                places.append(wanted[:found])
        if not blocks:
            return None
        place = np.concatenate(places)
        order = np.argsort(place)
        return join(blocks).select(order[place[order] < len(numbers)]) if (place < len(numbers)).any() else None
