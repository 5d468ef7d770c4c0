"""Some rows of a table, updated by a Keras optimizer where they live.

A gradient that comes as rows is zero elsewhere. What happens to the other rows depends on the optimizer: SGD and
Adagrad leave them alone, Adam's momentum moves them on, LAMB looks at all rows to update one. There is no list of
optimizers: each is tried on a table of a few rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from stratagem.program.rules.row_changes import block_size
from stratagem.ps.server.updates import Updater

_TOUCHED: Final = ([0, 1], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [2, 3, 7], [4])
"""Rows with a gradient in each update of a trial: some while all slots are new, then all, then few."""

_TRIED_ROWS: Final = 11
"""How many rows the table of a trial has."""

_RATE: Final = 1.0
"""The learning rate of a trial: so great that even a slight weight decay shows."""


class RowUpdater:
    """An optimizer for rows of variables.

    Args:
        updater_of: Returns the optimizer for variables of a number of rows.
        row: The shape of a row.
        dtype: The dtype of the variables.

    Attributes:
        exact: Whether an update of the rows with a gradient is the update of the whole.
        separate: Whether what becomes of a row depends on no other row.
    """

    def __init__(self, updater_of: Callable[[int], Updater], row: Sequence[int], dtype: Any) -> None:
        self._updater_of = updater_of
        self._new_slots = [np.asarray(slot) for slot in updater_of(_TRIED_ROWS).new_slots()]
        self._by_row = [True, *(slot.shape[:1] == (_TRIED_ROWS,) for slot in self._new_slots)]
        """Whether the value, and each slot, has a row for each row of the table."""
        self.exact, self.separate = self._tried((_TRIED_ROWS, *row), np.dtype(dtype))

    def _tried(self, shape: tuple[int, ...], dtype: np.dtype) -> tuple[bool, bool]:
        random = np.random.default_rng(0)
        updater, arrays = self._updater_of(_TRIED_ROWS), [random.normal(size=shape).astype(dtype), *self._new_slots]

        exact = separate = True
        for iterations, touched in enumerate(_TOUCHED):
            rest = [row for row in range(_TRIED_ROWS) if row not in touched]
            gradient = random.normal(size=shape).astype(dtype)
            gradient[rest] = 0
            # The same with other values in the rows that are not touched.
            exchanged = [arrays[0].copy(), *arrays[1:]]
            exchanged[0][rest] = 0.5 * arrays[0][rest] + 1.0
            alone = _after(updater, exchanged, gradient, iterations)
            after = _after(updater, arrays, gradient, iterations)
            for old, new, new_alone, by_row in zip(arrays, after, alone, self._by_row, strict=True):
                own = touched if by_row else ...
                separate &= np.allclose(_floats(new[own]), _floats(new_alone[own]), rtol=1e-5)
                exact &= not by_row or np.array_equal(old[rest], new[rest])
            arrays = after
        return exact and separate, separate

    def new_slots(self, count: int) -> list[np.ndarray]:
        """Return the slots of a table that was never updated.

        Args:
            count: How many rows it has.
        """
        return [
            np.repeat(slot[:1], count, axis=0) if by_row else slot
            for slot, by_row in zip(self._new_slots, self._by_row[1:], strict=True)
        ]

    def __call__(
        self, value: Any, slots: Sequence[Any], ids: np.ndarray, gradient: np.ndarray, iterations: int, rate: float
    ) -> tuple[np.ndarray, list[Any]]:
        """Update rows, in place where the arrays can be written to; return value and slots.

        Args:
            value: The table's value.
            slots: The table's slots.
            ids: Numbers of the rows, each once.
            gradient: The gradient of each of them.
            iterations: Updates before this one.
            rate: The learning rate.
        """
        by_row, size = self._by_row, block_size(len(ids))
        arrays = [_writable(array) if own else array for array, own in zip([value, *slots], by_row, strict=True)]
        taken = [_filled_up(array[ids], size) if own else array for array, own in zip(arrays, by_row, strict=True)]
        new_value, new_slots = self._updater_of(size)(taken[0], _filled_up(gradient, size), taken[1:], iterations, rate)
        for place, (new, own) in enumerate(zip([new_value, *new_slots], by_row, strict=True)):
            if own:
                arrays[place][ids] = np.asarray(new)[: len(ids)]
            else:
                arrays[place] = new
        return arrays[0], arrays[1:]


def spread(ids: np.ndarray, rows: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Return an array that is zero but for some rows."""
    whole = np.zeros(tuple(shape), rows.dtype)
    whole[ids] = rows
    return whole


def _after(updater: Updater, arrays: Sequence[Any], gradient: np.ndarray, iterations: int) -> list[np.ndarray]:
    value, slots = updater(arrays[0], gradient, arrays[1:], iterations, _RATE)
    return [np.asarray(array) for array in (value, *slots)]


def _floats(array: np.ndarray) -> np.ndarray:
    return array.astype("float32")


def _filled_up(rows: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([rows, np.zeros((size - len(rows), *rows.shape[1:]), rows.dtype)])


def _writable(array: Any) -> np.ndarray:
    own = np.asarray(array)
    return own if own.flags.writeable else own.copy()
