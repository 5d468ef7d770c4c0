"""Structures of tensors and plain values, as JSON and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.dtypes import canonicalize_dtype

from stratagem.core.errors import InputError
from stratagem.data.specs import TensorSpec
from stratagem.loop.seen import PLAIN


def described(value: Any) -> Any:
    """Return a structure of `TensorSpec`s and plain values as JSON.

    Raises:
        InputError: The structure contains something else.

    Example:
        >>> described([TensorSpec((None, 2), "float32", "x"), {"training": False}])
        {'list': [{'tensor': [[None, 2], 'float32', 'x']}, {'dict': {'training': {'plain': False}}}]}
    """
    if isinstance(value, TensorSpec):
        return {"tensor": [value.shape and list(value.shape), value.dtype.name, value.name]}
    if isinstance(value, PLAIN):
        return {"plain": value}
    if type(value) in (list, tuple):
        return {type(value).__name__: [described(part) for part in value]}
    if type(value) is dict and all(isinstance(key, str) for key in value):
        return {"dict": {key: described(part) for key, part in value.items()}}
    raise InputError(
        f"A function takes or returns a {type(value).__name__}.",
        "A file cannot hold it.",
        "Let the function take and return tensors, lists, tuples and dictionaries with strings as keys.",
    )


def structure_of(description: Any) -> Any:
    """Return the structure that JSON describes."""
    ((kind, content),) = description.items()
    if kind == "tensor":
        shape, dtype, name = content
        return TensorSpec(None if shape is None else tuple(shape), dtype, name)
    if kind == "dict":
        return {key: structure_of(part) for key, part in content.items()}
    if kind == "plain":
        return content
    return (list if kind == "list" else tuple)(structure_of(part) for part in content)


def tensors_of(spec: Any, value: Any) -> list[Any] | None:
    """Return the tensors of a value in JAX's order, if it is what a structure describes; None if it is not.

    Args:
        spec: A structure of `TensorSpec`s and plain values. A number of Python fits a tensor of a dtype that holds it.
        value: The value.
    """
    if isinstance(spec, TensorSpec):
        tensor = _tensor_of(spec, value)
        return None if tensor is None else [tensor]
    if isinstance(spec, Mapping):
        if not isinstance(value, Mapping) or spec.keys() != value.keys():
            return None
        pairs = [(spec[key], value[key]) for key in sorted(spec)]
    elif isinstance(spec, list | tuple):
        if not isinstance(value, list | tuple) or len(spec) != len(value):
            return None
        pairs = list(zip(spec, value, strict=True))
    else:
        return [] if type(spec) is type(value) and spec == value else None
    found = [tensors_of(*pair) for pair in pairs]
    return [tensor for part in found if part for tensor in part] if all(part is not None for part in found) else None


def _tensor_of(spec: TensorSpec, value: Any) -> Any:
    dtype = canonicalize_dtype(spec.dtype)
    if type(value) in (bool, int, float):
        value = np.asarray(value)
        value = value.astype(dtype) if np.can_cast(value.dtype, dtype, "same_kind") else value
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        return None
    array = value if isinstance(value, jax.Array) else np.asarray(value)
    if array.dtype.hasobject or canonicalize_dtype(array.dtype) != dtype or not spec.admits(array.shape):
        return None
    return array
