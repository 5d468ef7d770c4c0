"""`input_signature` of `stratagem.function`: the shapes and dtypes of arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import keras
import numpy as np
from jax.dtypes import canonicalize_dtype

from stratagem.core.errors import InputError
from stratagem.mesh.values import DistributedValues


class InputSignature:
    """Shapes and dtypes that the arguments of a function must have.

    Args:
        fn: The function.
        specs: For each argument, something with `shape` and `dtype`, or a structure of such.
    """

    def __init__(self, fn: Callable[..., Any], specs: Sequence[Any]) -> None:
        self._fn = fn
        self.specs = list(specs)

    def fitted(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return arguments in their order, as tensors of the dtypes.

        Raises:
            InputError: There are more or fewer of them, or one has another structure, shape or dtype.
        """
        given = arguments_in_order(self._fn, args, kwargs)
        bound = given[: len(given) - len(self.specs)]  # a method's object
        given = given[len(bound) :]
        if len(given) != len(self.specs) or len(bound) > 1:
            raise self._refusal(f"{len(given) + len(bound)} arguments", f"{len(self.specs)}")
        return [*bound, *(self._of_spec(spec, value) for spec, value in zip(self.specs, given, strict=True))]

    def _of_spec(self, spec: Any, value: Any) -> Any:
        if isinstance(value, DistributedValues):  # of a distributed dataset, whose spec says the same
            return value
        if hasattr(spec, "shape") and hasattr(spec, "dtype"):
            return self._leaf(spec, value)
        if isinstance(spec, Mapping) and isinstance(value, Mapping) and spec.keys() == value.keys():
            return {name: self._of_spec(spec[name], value[name]) for name in spec}
        if isinstance(spec, list | tuple) and isinstance(value, list | tuple) and len(spec) == len(value):
            return type(spec)([self._of_spec(one, other) for one, other in zip(spec, value, strict=True)])
        raise self._refusal(f"{value!r}", f"{spec!r}")

    def _leaf(self, spec: Any, value: Any) -> Any:
        dtype = np.dtype(getattr(spec.dtype, "as_numpy_dtype", spec.dtype))
        if dtype.hasobject:  # text
            return value
        if isinstance(value, keras.Variable):
            value = value.value
        if isinstance(value, Mapping):
            raise self._refusal(f"{value!r}", f"{spec!r}")
        if not isinstance(value, jax.Array):
            value = np.asarray(value).astype(canonicalize_dtype(dtype))
        shape = value.shape if spec.shape is None else tuple(spec.shape)
        fits = len(shape) == value.ndim and all(
            size in (None, own) for size, own in zip(shape, value.shape, strict=True)
        )
        if not fits or canonicalize_dtype(dtype) != value.dtype:
            raise self._refusal(
                f"a tensor of shape {value.shape} and dtype {value.dtype}", f"shape {spec.shape} and dtype {dtype}"
            )
        return value

    def _refusal(self, found: str, wanted: str) -> InputError:
        name = getattr(self._fn, "__name__", "The function")
        return InputError(
            f"{name} was given {found}; its input_signature says {wanted}.",
            "Give arguments that match it (keras.ops.cast changes a dtype), correct input_signature, or leave it out.",
        )


def arguments_in_order(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the arguments of a call, those given by name in their places."""
    if not kwargs:
        return list(args)
    return list(inspect.signature(fn).bind(*args, **kwargs).args)
