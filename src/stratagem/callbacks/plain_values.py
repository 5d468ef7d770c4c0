"""Plain values of a program as JSON and arrays, and back as they were."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from stratagem.checkpoint import storage

Arrays = dict[str, np.ndarray]


class NotPlainError(Exception):
    """A value is none of those that `encode` knows. The message says what it is."""


def encode(value: Any, name: str, arrays: Arrays) -> Any:
    """Return a value as JSON; its arrays go to `arrays`.

    Known are None, bool, int, float, str, bytes, lists, tuples, sets and dictionaries of these, and
    arrays and numbers of NumPy and JAX. Subclasses are not: they could not be made again.

    Args:
        value: The value. The result shares no memory with it.
        name: What its arrays are called, with a number behind it.
        arrays: Where they are put.

    Raises:
        NotPlainError: A part of the value is something else.

    Example:
        >>> encode((1, [None, 2.5]), "state", {})
        {'tuple': [1, [None, 2.5]]}
    """
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [encode(entry, name, arrays) for entry in value]
    if kind in (tuple, set):
        return {kind.__name__: [encode(entry, name, arrays) for entry in value]}
    if kind is dict:
        return {"dict": [[encode(k, name, arrays), encode(v, name, arrays)] for k, v in value.items()]}
    if kind is bytes:
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        array = np.array(value)
        if storage.can_hold(array.dtype):
            key = f"{name}/{len(arrays)}"
            arrays[key] = array
            return {"number" if isinstance(value, np.generic) else "array": key}
    raise NotPlainError(f"{str(value)[:80]!r} of type {kind.__name__}")


def decode(said: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Return the value that `encode` was given.

    Args:
        said: What it returned.
        arrays: The arrays it put away.

    Example:
        >>> decode(encode({3: (1, {2})}, "state", {}), {})
        {3: (1, {2})}
    """
    if isinstance(said, list):
        return [decode(entry, arrays) for entry in said]
    if not isinstance(said, dict):
        return said
    ((kind, content),) = said.items()
    return _DECODERS[kind](content, arrays)


_DECODERS: dict[str, Callable[[Any, Mapping[str, np.ndarray]], Any]] = {
    "tuple": lambda content, arrays: tuple(decode(content, arrays)),
    "set": lambda content, arrays: set(decode(content, arrays)),
    "dict": lambda content, arrays: {decode(k, arrays): decode(v, arrays) for k, v in content},
    "bytes": lambda content, _: base64.b64decode(content),
    "array": lambda content, arrays: arrays[content].copy(),
    "number": lambda content, arrays: arrays[content][()],
}


def same(one: Any, other: Any) -> bool:
    """Whether two plain values are equal; a NaN equals a NaN.

    Example:
        >>> same([1.0, np.zeros(2)], [1.0, np.zeros(2)]), same([1], (1,))
        (True, False)
    """
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray | np.generic | jax.Array):
        return np.array_equal(one, other, equal_nan=np.asarray(one).dtype.kind == "f")
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return one == other or (isinstance(one, float) and math.isnan(one) and math.isnan(other))
