"""Some rows of a table, updated by a Keras optimizer where they live.

A gradient that comes as rows is zero elsewhere. What that means for the other rows is the optimizer's affair: SGD and
Adagrad leave them alone, Adam's momentum moves them on, LAMB even looks at all rows to update one. Nobody keeps a list
of optimizers: each is tried on a table of a few rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from stratagem.program.rules.row_changes import block_size
from stratagem.ps.updates import Updater

_TOUCHED: Final = ([0, 1], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [2, 3, 7], [4])
"""Rows with a gradient in each update of a trial: some while all slots are new, then all, then few."""

_RATE: Final = 1.0
"""The learning rate of a trial: so great that also a slight weight decay shows."""


class RowUpdater:
    """An optimizer for rows of variables.

    Args:
        updater_of: Returns the optimizer for variables of a number of rows.
        row: The shape of a row.
        dtype: Of the variables.

    Attributes:
        exact: Whether an update of the rows with a gradient is the update of the whole.
        separate: Whether what becomes of a row depends on no other row.
    """

    def __init__(self, updater_of: Callable[[int], Updater], row: Sequence[int], dtype: Any) -> None:
        self._updater_of = updater_of
        self._row = tuple(row)
        self._dtype = np.dtype(dtype)
        self._count = len(_TOUCHED[1])
        slots = [np.asarray(slot) for slot in updater_of(self._count).new_slots()]
        self._by_row = [slot.shape[:1] == (self._count,) for slot in slots]
        self._new_slots = slots
        self.exact, self.separate = self._tried()

    def _tried(self) -> tuple[bool, bool]:
        random = np.random.default_rng(0)
        updater, slots = self._updater_of(self._count), self._new_slots
        value = random.normal(size=(self._count, *self._row)).astype(self._dtype)
        exact = separate = True
        for iterations, touched in enumerate(_TOUCHED):
            rest = [row for row in range(self._count) if row not in touched]
            gradient = random.normal(size=value.shape).astype(self._dtype)
            gradient[rest] = 0
            before = [value, *slots]
            # The same with other values in the rows that are not touched.
            exchanged = [array.copy() if by_row else array for array, by_row in zip(before, self._rows, strict=True)]
            exchanged[0][rest] = 0.5 * value[rest] + 1.0
            alone = self._after(updater, exchanged, gradient, iterations)
            after = self._after(updater, before, gradient, iterations)
            for old, new, new_alone, by_row in zip(before, after, alone, self._rows, strict=True):
                own = touched if by_row else ...
                separate &= np.allclose(_floats(new[own]), _floats(new_alone[own]), rtol=1e-5)
                exact &= not by_row or np.array_equal(old[rest], new[rest])
            value, *slots = after
        return exact and separate, separate

    @property
    def _rows(self) -> list[bool]:
        """Of the value and each slot, whether it has a row for each of the table's."""
        return [True, *self._by_row]

    def _after(
        self, updater: Updater, arrays: Sequence[np.ndarray], gradient: np.ndarray, iterations: int
    ) -> list[np.ndarray]:
        value, slots = updater(arrays[0], gradient, arrays[1:], iterations, _RATE)
        return [np.asarray(array) for array in (value, *slots)]

    def new_slots(self, count: int) -> list[np.ndarray]:
        """Return the slots of a table that was never updated.

        Args:
            count: Its rows.
        """
        return [
            np.repeat(slot[:1], count, axis=0) if by_row else slot
            for slot, by_row in zip(self._new_slots, self._by_row, strict=True)
        ]

    def __call__(
        self, value: Any, slots: Sequence[Any], ids: np.ndarray, gradient: np.ndarray, iterations: int, rate: float
    ) -> tuple[np.ndarray, list[Any]]:
        """Update rows, in place where the arrays can be written to; return value and slots.

        Args:
            value: The table's value.
            slots: Of the table.
            ids: Which rows, each once.
            gradient: For each of them.
            iterations: Updates before this one.
            rate: The learning rate.
        """
        arrays = [
            _writable(array) if by_row else array for array, by_row in zip([value, *slots], self._rows, strict=True)
        ]
        size = block_size(len(ids))
        taken = [
            _filled_up(array[ids], size) if by_row else array for array, by_row in zip(arrays, self._rows, strict=True)
        ]
        new_value, new_slots = self._updater_of(size)(taken[0], _filled_up(gradient, size), taken[1:], iterations, rate)
        for place, (new, by_row) in enumerate(zip([new_value, *new_slots], self._rows, strict=True)):
            if by_row:
                arrays[place][ids] = np.asarray(new)[: len(ids)]
            else:
                arrays[place] = new
        return arrays[0], arrays[1:]


def spread(ids: np.ndarray, rows: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Return an array that is zero but for some rows."""
    whole = np.zeros(tuple(shape), rows.dtype)
    whole[ids] = rows
    return whole


def _floats(array: np.ndarray) -> np.ndarray:
    return array.astype("float32")


def _filled_up(rows: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([rows, np.zeros((size - len(rows), *rows.shape[1:]), rows.dtype)])


def _writable(array: Any) -> np.ndarray:
    own = np.asarray(array)
    return own if own.flags.writeable else own.copy()
