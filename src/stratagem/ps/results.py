"""Results of functions, as messages carry them: arrays, and JSON that says how they are nested.

The chief never unpickles what a worker computed: numbers, texts and arrays in tuples, lists and dicts are enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import keras
import numpy as np

from stratagem.core.errors import InputError
from stratagem.mesh.values import PerReplica


def taken_apart(value: Any) -> tuple[Any, list[np.ndarray]]:
    """Return a value as what JSON can hold, and its arrays.

    Raises:
        InputError: Something in it is neither number, text, array, nor a tuple, list or dict of such.

    Example:
        >>> taken_apart({"loss": np.float32(2.0), "names": ("a", None)})
        ({'dict': {'loss': {'array': 0}, 'names': {'tuple': ['a', None]}}}, [array(2., dtype=float32)])
    """
    arrays: list[np.ndarray] = []
    return _apart(value, arrays), arrays


def _apart(value: Any, arrays: list[np.ndarray]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, keras.Variable):
        value = value.value
    if isinstance(value, jax.Array | np.ndarray | np.generic) and value.dtype != object:
        arrays.append(np.asarray(value))
        return {"array": len(arrays) - 1}
    if isinstance(value, tuple | list):
        return {"tuple" if isinstance(value, tuple) else "list": [_apart(item, arrays) for item in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _apart(item, arrays) for key, item in value.items()}}
    kind = "values of replicas" if isinstance(value, PerReplica) else f"a {type(value).__qualname__}"
    raise InputError(
        f"A scheduled function returned {kind}.",
        "A function can return only numbers, text and arrays to the chief, in tuples, lists and dicts with text keys.",
        "Return the parts that the chief needs, as arrays.",
    )


def put_together(nest: Any, arrays: Sequence[np.ndarray]) -> Any:
    """Return the value that was taken apart.

    Raises:
        InputError: It is not what `taken_apart` makes.

    Example:
        >>> put_together({"tuple": [{"array": 0}, 1.5]}, [np.arange(2)])
        (array([0, 1]), 1.5)
    """
    match nest:
        case None | bool() | int() | float() | str():
            return nest
        case {"array": int(place)} if 0 <= place < len(arrays):
            return arrays[place]
        case {"tuple": list(items)}:
            return tuple(put_together(item, arrays) for item in items)
        case {"list": list(items)}:
            return [put_together(item, arrays) for item in items]
        case {"dict": dict(items)}:
            return {key: put_together(item, arrays) for key, item in items.items()}
    raise InputError(f"A worker answered with {nest!r}, which is not a result.")
