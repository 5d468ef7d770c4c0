"""Methods of `tf.Tensor` that `stratagem.tf` adds to JAX's arrays and Keras's variables (`core.patches`).

The only private name: the class of JAX's arrays, `jaxlib._jax.ArrayImpl`. Not reached through an array, which would
start JAX's devices: a strategy of several workers must come before that. Checked on JAX 0.10.2.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType, MethodType
from typing import Any, Final

import jax
import keras
import numpy as np
from jax._src.array import ArrayImpl
from jax.core import Tracer

from stratagem.core import patches
from stratagem.core.eager import EagerArray, EagerText
from stratagem.core.errors import explain
from stratagem.core.patches import Extent
from stratagem.program.tracing import is_traced, own_array
from stratagem.strategy import first_values
from stratagem.tf import derivatives
from stratagem.tf.eager.variables import (
    Reference,
    TensorVariable,
    backing_device_of,
    device_of_traced,
    get_shape,
    numpy_of,
    set_shape,
)
from stratagem.tf.tensors import ragged, sparse
from stratagem.tf.tensors.operation import beside_tensor

_OF_SHAPES: Final = {"get_shape": get_shape, "set_shape": set_shape}
_OF_TENSORS: Final = {**_OF_SHAPES, "experimental_ref": Reference, "numpy": numpy_of, "ref": Reference}


def _answering_to(
    methods: dict[str, Callable[..., Any]],
    original: Callable[..., Any] | None,
    properties: Mapping[str, Callable[[Any], Any]] = MappingProxyType({}),
) -> Callable[..., Any]:
    """Wrap `__getattr__`, which Python calls for names that an object does not have."""

    def __getattr__(self: Any, name: str) -> Any:
        if name in methods:
            return MethodType(methods[name], self)
        if name in properties:
            return properties[name](self)
        if original is not None:
            return original(self, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    return __getattr__


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
                        f"Index {int(part)} was used on axis {axis}, which has {size} elements.",
                        "There is no such element; TensorFlow refuses it too.",
                        "Correct the index.",
                    )
                )
        axis += getattr(part, "ndim", 1) if getattr(part, "dtype", None) == np.bool_ else 1


def _checked_index(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap what computes `x[idx]` of all arrays; with options, `x.at[idx].get(...)`, which says what is outside."""

    @functools.wraps(original)
    def take(array: Any, idx: Any, *args: Any, **options: Any) -> Any:
        idx = tuple(map(_value_of, idx)) if isinstance(idx, tuple) else _value_of(idx)
        if not (args or options or isinstance(idx, slice)):
            _refuse_positions_outside(array.shape, idx)
        taken = original(array, idx, *args, **options)
        return own_array(taken) if taken is array else taken  # x[:], which may be the array of a variable

    return take


def _value_of(index: Any) -> Any:
    """Return the value of a variable that is a part of an index; JAX does not ask it."""
    return index.value if isinstance(index, keras.Variable) else index


def _abs(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def apply(x: Any) -> Any:
        return (derivatives.absolute if patches.holds_here(Extent.DERIVATIVES) else original)(x)

    return apply


_OPERANDS: Final = (ArrayImpl, Tracer, np.ndarray, np.generic, int, float, complex)


def _by_rule(operator: Callable[[Any, Any], Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an operator of two tensors; what is no tensor is left to JAX."""

    @functools.wraps(original)
    def apply(x: Any, y: Any) -> Any:
        y = y.value if isinstance(y, keras.Variable) else y
        by_rule = isinstance(y, _OPERANDS) and patches.holds_here(Extent.DERIVATIVES)
        return (operator if by_rule else original)(x, y)

    return apply


def _beside_large_numbers(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an operator of a tensor and something else, which may be a whole number of more than 32 bits."""

    @functools.wraps(original)
    def apply(x: Any, y: Any) -> Any:
        return original(x, beside_tensor(y, x) if type(y) is int else y)

    return apply


_ARITHMETIC: Final = (
    *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__"),
    *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"),
)

_derivatives: Final[Any] = jax.make_user_context("of JAX")
"""JAX keeps what it traces under the one apart from what it traces under the other."""


def _rpow(x: Any, y: Any) -> Any:
    return derivatives.power(y, x)


def install() -> None:
    """Give arrays and variables what `core.patches` lists, and operations those of ragged and sparse tensors.

    A second call does nothing.
    """
    ragged.install()
    sparse.install()
    first_values.install()
    for own in (EagerArray, EagerText):
        kind: Any = own
        kind.get_shape, kind.set_shape = get_shape, set_shape
    EagerArray.stands_for_tensors = True
    operators: dict[str, patches.Wrap] = {
        "__abs__": _abs,
        "__pow__": functools.partial(_by_rule, derivatives.power),
        "__rpow__": functools.partial(_by_rule, _rpow),
    }
    patches.install(
        __name__,
        {
            "ArrayImpl.__getattr__": functools.partial(
                _answering_to, _OF_TENSORS, properties={"backing_device": backing_device_of}
            ),
            "Tracer.__getattr__": functools.partial(
                _answering_to, _OF_TENSORS, properties={"device": device_of_traced}
            ),
            "KerasTensor.__getattr__": functools.partial(_answering_to, _OF_SHAPES),
            "Variable.__bases__": TensorVariable,
            "rewriting_take": _checked_index,
            **{f"{owner}.{name}": wrap for owner in ("ArrayImpl", "Tracer") for name, wrap in operators.items()},
            **{f"{owner}.{name}": _beside_large_numbers for owner in ("ArrayImpl", "Tracer") for name in _ARITHMETIC},
        },
        around=(Extent.DERIVATIVES, functools.partial(_derivatives, "of TensorFlow")),
    )


install()
