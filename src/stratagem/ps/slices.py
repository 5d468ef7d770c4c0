"""Changes of some slices of a remote variable: `scatter_add`, `scatter_update` and their like.

What workers change must not undo one another's work. `scatter_add` and `scatter_sub` are additions, of which none is
lost. The others replace rows of the first axis: those that they name, and no others. If two workers change one
row at a moment, the last one's stays, as in TensorFlow without locks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax.numpy as jnp
import numpy as np

from stratagem.program.remote_values import RowChange

ADDING: Final = frozenset(f"scatter_{kind}{by}" for kind in ("", "nd_") for by in ("add", "sub"))
"""Methods of `tf.Variable` that add."""


def summands(change: Callable[..., Any], shape: tuple[int, ...], dtype: str, indices: Any, updates: Any) -> Any:
    """Return what a method of `ADDING` adds to a variable, an array of its shape.

    Args:
        change: Function of an array, indices and updates that adds them.
        shape: Shape of the variable.
        dtype: Its dtype.
        indices: Where the slices stand.
        updates: What is added to them.
    """
    return change(jnp.zeros(shape, dtype), indices, updates)


def rows_named(method: str, rows: int, indices: Any) -> Any:
    """Return which rows a method changes: a boolean for each.

    Args:
        method: Its name.
        rows: How many rows the variable has.
        indices: Where the slices stand; of methods with `nd`, one index of several axes in each row.
    """
    named = jnp.asarray(indices)
    first = named[..., 0] if "_nd_" in method else named
    return jnp.zeros(rows, bool).at[first.reshape(-1)].set(True)


def of_rows(value: Any, named: Any) -> Any:
    """Return the change of those rows of a value that are named; the value itself where all are."""
    chosen = np.asarray(named)
    if chosen.all():
        return value
    ids = np.flatnonzero(chosen)
    return RowChange(ids, np.asarray(value)[ids])
