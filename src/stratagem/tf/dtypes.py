"""`tf.float32` and its kind: dtypes that are strings, which Keras, JAX and NumPy all take."""

from __future__ import annotations

import builtins
from typing import Any, Final

import ml_dtypes
import numpy as np

from stratagem.core.errors import explain
from stratagem.tf.namespace import explaining


class DType(str):
    """A dtype (`tf.dtypes.DType`): its name, and the attributes that TensorFlow's programs use.

    Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/dtypes/DType

    Example:
        >>> DType("float32").as_numpy_dtype, DType("int64").is_integer, DType("float32") == np.dtype("float32")
        (<class 'numpy.float32'>, True, True)
    """

    __slots__ = ()

    def __eq__(self, other: object) -> builtins.bool:
        # Text of datasets is bytes in arrays of objects, and NumPy knows no dtype of the name "string".
        if isinstance(other, np.dtype) and str(self) == "string":
            return other.kind in "OSU"
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> builtins.bool:
        return not self == other

    __hash__ = str.__hash__

    @property
    def name(self) -> str:
        """Its name."""
        return str(self)

    @property
    def as_numpy_dtype(self) -> Any:
        """NumPy's type of the elements; bytes for text."""
        return np.object_ if self == "string" else np.dtype(_NUMPY.get(str(self), str(self))).type

    @property
    def is_integer(self) -> builtins.bool:
        """Whether it is an integer dtype."""
        return self != "string" and np.issubdtype(self.as_numpy_dtype, np.integer)

    @property
    def is_floating(self) -> builtins.bool:
        """Whether it is a floating-point dtype, including `bfloat16`."""
        return str(self) in _NUMPY or (self != "string" and np.issubdtype(self.as_numpy_dtype, np.floating))

    @property
    def is_complex(self) -> builtins.bool:
        """Whether it is a complex dtype."""
        return str(self) in ("complex64", "complex128")

    @property
    def is_bool(self) -> builtins.bool:
        """Whether it is the boolean dtype."""
        return str(self) == "bool"

    @property
    def is_unsigned(self) -> builtins.bool:
        """Whether it is an unsigned integer dtype."""
        return self.is_integer and str(self).startswith("u")

    @property
    def is_numpy_compatible(self) -> builtins.bool:
        """Always True."""
        return True

    @property
    def base_dtype(self) -> DType:
        """Itself: there are no reference dtypes."""
        return self

    @property
    def real_dtype(self) -> DType:
        """The dtype of the real part."""
        return DType({"complex64": "float32", "complex128": "float64"}.get(str(self), str(self)))

    @property
    def size(self) -> int:
        """Bytes that one number takes; 1 for text."""
        return 1 if self == "string" else np.dtype(self.as_numpy_dtype).itemsize

    @property
    def min(self) -> Any:
        """The least number."""
        return self._bounds().min

    @property
    def max(self) -> Any:
        """The greatest number."""
        return self._bounds().max

    @property
    def limits(self) -> tuple[Any, Any]:
        """The range of pixel values: 0 and 1 for floating-point images."""
        return (0, 1) if self.is_floating else (0, True if self.is_bool else self.max)

    def _bounds(self) -> Any:
        if self.is_integer:
            return np.iinfo(self.as_numpy_dtype)
        if not self.is_floating:
            raise TypeError(
                explain(
                    f"tf.{self} was asked for its least or greatest value.",
                    "Only integer and floating-point dtypes have these values; TensorFlow refuses it too.",
                    "Check dtype.is_integer or dtype.is_floating first.",
                )
            )
        return ml_dtypes.finfo(self.as_numpy_dtype)

    @property
    def is_quantized(self) -> builtins.bool:
        """Always False: there are no quantized dtypes."""
        return False

    def is_compatible_with(self, other: Any) -> builtins.bool:
        """Whether a value of the other dtype can be used as this one."""
        return self == as_dtype(other)

    def __repr__(self) -> str:
        return f"tf.{self}"


_NUMPY: Final = {
    name: getattr(ml_dtypes, name) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4")
}
"""Dtypes that NumPy has no name for."""

_NAMES: Final = {"half": "float16", "double": "float64", "float": "float32", "int": "int32", "str": "string"}
"""Other ways to write a dtype, Python's types among them."""

bfloat16: Final = DType("bfloat16")
bool: Final = DType("bool")
complex64: Final = DType("complex64")
complex128: Final = DType("complex128")
double: Final = DType("float64")
float16: Final = DType("float16")
float32: Final = DType("float32")
float64: Final = DType("float64")
half: Final = DType("float16")
int8: Final = DType("int8")
int16: Final = DType("int16")
int32: Final = DType("int32")
int64: Final = DType("int64")
string: Final = DType("string")
uint8: Final = DType("uint8")
uint16: Final = DType("uint16")
uint32: Final = DType("uint32")
uint64: Final = DType("uint64")


def as_dtype(type_value: Any) -> DType:
    """Return the dtype that a value names (`tf.as_dtype`).

    Args:
        type_value: A `DType`, a NumPy or JAX dtype, a name, or a type of Python.

    Raises:
        TypeError: The value names no dtype.

    Example:
        >>> as_dtype(np.float32), as_dtype("int64"), as_dtype(float)
        (tf.float32, tf.int64, tf.float32)
    """
    if isinstance(type_value, DType):
        return type_value
    if isinstance(type_value, str):
        name = _NAMES.get(type_value, type_value)
    elif isinstance(type_value, type) and type_value in (float, int, str, bytes):  # np.dtype("int64") == int, too
        name = {float: "float32", int: "int32"}.get(type_value, "string")
    else:
        name = _of_numpy(type_value)
    if name not in _KNOWN:
        raise TypeError(
            explain(
                f"{type_value!r} is not a dtype.", "Write tf.float32, tf.int32, tf.string or another name of tf.dtypes."
            )
        )
    return DType(name)


def _of_numpy(type_value: Any) -> str:
    try:
        dtype = np.dtype(type_value)
    except TypeError:
        return ""
    return "string" if dtype.kind in "OSU" else dtype.name


_KNOWN: Final = frozenset({str(value) for value in globals().values() if isinstance(value, DType)} | set(_NUMPY))

__getattr__ = explaining(__name__)
