"""Methods of `tf.Tensor` that `stratagem.tf` adds to JAX's arrays and Keras's variables (`core.patches`).

The only private name: the class of JAX's arrays, `jaxlib._jax.ArrayImpl`. Not reached through an array, which would
start JAX's devices: a strategy of several workers must come before that. Checked on JAX 0.10.2.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, Final

import keras
import numpy as np
from jax._src.array import ArrayImpl
from jax.core import Tracer

from stratagem.core import patches
from stratagem.core.eager import EagerArray, EagerText
from stratagem.core.errors import UsageError, explain
from stratagem.program.tracing import is_traced
from stratagem.tf import derivatives
from stratagem.tf.tensors.creation import ensure_shape, own_tensor
from stratagem.tf.tensors.shapes import TensorShape


def _numpy(array: Any) -> Any:
    """Return the values as a NumPy array (`tf.Tensor.numpy`)."""
    return np.asarray(array)[()]


def _numpy_of_traced(tracer: Any) -> Any:
    """Return the values if they are known, as under a tape; else explain that there are none yet."""
    if not is_traced(tracer):
        return _numpy(tracer)
    raise UsageError(
        f".numpy() was called on a tensor of shape {tracer.shape} in strategy.run or a compiled function.",
        "The function is being compiled: its tensors have no values yet.",
        "Return the tensor and call .numpy() outside, or print it with tf.print(tensor).",
    )


def _get_shape(array: Any) -> TensorShape:
    """Return the shape (`tf.Tensor.get_shape`)."""
    return TensorShape(array.shape)


def _set_shape(array: Any, shape: Any) -> None:
    """Check the shape (`tf.Tensor.set_shape`), which is always known."""
    ensure_shape(array, shape)


def _read_value(variable: Any) -> Any:
    """Return the value as a tensor of its own (`tf.Variable.read_value`)."""
    return own_tensor(variable.value)


_POSITIONS: Final = (int, np.integer, ArrayImpl, np.ndarray)
"""Classes of positions in an index; slices, None, Ellipsis and masks may stand beside them."""


def _refuse_positions_outside(shape: tuple[int, ...], key: Any) -> None:
    """Refuse an index that points outside: JAX would take the element that is nearest.

    Positions that a compiled function computes are not known here; JAX brings those within.

    Raises:
        IndexError: A position is outside.
    """
    parts = key if isinstance(key, tuple) else (key,)
    axis = 0
    for place, part in enumerate(parts):
        if part is None:
            continue
        if part is Ellipsis:
            rest = sum(1 for each in parts[place + 1 :] if each is not None)
            axis = max(len(shape) - rest, axis)
            continue
        if type(part) is not bool and isinstance(part, _POSITIONS) and axis < len(shape) and np.ndim(part) == 0:
            size = shape[axis]
            kind = getattr(part, "dtype", np.dtype(np.int64))
            known = isinstance(size, int) and np.issubdtype(kind, np.integer) and not is_traced(part)
            if known and not -size <= int(part) < size:
                raise IndexError(
                    explain(
                        f"Index {int(part)} was asked of axis {axis}, which has {size} elements.",
                        "There is no such element; TensorFlow refuses it too.",
                        "Correct the index.",
                    )
                )
        axis += getattr(part, "ndim", 1) if getattr(part, "dtype", None) == np.bool_ else 1


def _checked_getitem(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def getitem(array: Any, key: Any) -> Any:
        if not isinstance(key, slice):
            _refuse_positions_outside(array.shape, key)
        return original(array, key)

    return getitem


def _rows(variable: Any) -> Iterator[Any]:
    """Return its rows, one after the other (`for row in tf.Variable(...)`).

    Python would count indices up until one is refused, and JAX refuses none: it takes the last row again.

    Raises:
        TypeError: It is a scalar.
    """
    return iter(variable.value)


def _abs(x: Any) -> Any:
    return derivatives.absolute(x)


_OPERANDS: Final = (ArrayImpl, Tracer, np.ndarray, np.generic, int, float, complex)


def _by_rule(operator: Callable[[Any, Any], Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an operator of two tensors; what is no tensor is left to JAX."""

    @functools.wraps(original)
    def apply(x: Any, y: Any) -> Any:
        y = y.value if isinstance(y, keras.Variable) else y
        return operator(x, y) if isinstance(y, _OPERANDS) else original(x, y)

    return apply


def _rpow(x: Any, y: Any) -> Any:
    return derivatives.power(y, x)


def install() -> None:
    """Give arrays and variables what `core.patches` lists. A second call does nothing."""
    for own in (EagerArray, EagerText):
        kind: Any = own
        kind.get_shape, kind.set_shape = _get_shape, _set_shape
    shapes = {"get_shape": _get_shape, "set_shape": _set_shape}
    of_arrays = {**shapes, "__abs__": _abs}
    operators: dict[str, patches.Wrap] = {
        "__getitem__": _checked_getitem,
        "__pow__": functools.partial(_by_rule, derivatives.power),
        "__rpow__": functools.partial(_by_rule, _rpow),
    }
    of_variables = {
        **shapes,
        "numpy": _numpy,
        "read_value": _read_value,
        "initialized_value": _read_value,
        "__iter__": _rows,
        "__pow__": lambda variable, other: variable.value**other,
        "__rpow__": lambda variable, other: other**variable.value,
    }
    patches.install(
        __name__,
        {
            **patches.attributes("ArrayImpl", {**of_arrays, "numpy": _numpy}),
            **patches.attributes("Tracer", {**of_arrays, "numpy": _numpy_of_traced}),
            **{f"{owner}.{name}": wrap for owner in ("ArrayImpl", "Tracer") for name, wrap in operators.items()},
            **patches.attributes("KerasTensor", shapes),
            **patches.attributes("Variable", of_variables),
        },
    )


install()
