"""Creation of tensors (`tf.constant`, `tf.zeros`, `tf.range`, `tf.one_hot`) and facts about them (`tf.shape`).

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf
"""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

from stratagem.core.errors import InputError, explain
from stratagem.program.computed_range import ComputedRange, KnownRange
from stratagem.program.tracing import current_tracing, is_traced, own_array
from stratagem.tf import derivatives
from stratagem.tf.dtypes import as_dtype
from stratagem.tf.tensors.marks import Array, Sizes, Tensor
from stratagem.tf.tensors.operation import held, hosted, integers, is_text, operation, tensor, xp
from stratagem.tf.tensors.shapes import TensorShape


def constant(value: Any, dtype: Any = None, shape: Any = None, name: str | None = "Const") -> Any:
    """Return a tensor of a value (`tf.constant`).

    Args:
        value: A number, text, an array, or nested lists of them.
        dtype: The dtype; None for that of the value, which is int32 or float32 for Python numbers.
        shape: The shape; a single value fills it.
        name: No effect.

    Raises:
        TypeError: Numbers with a fraction would become integers.

    Example:
        >>> constant([1, 2, 3]).numpy()
        array([1, 2, 3], dtype=int32)
        >>> constant(0.5, shape=(2,)).numpy()
        array([0.5, 0.5], dtype=float32)
    """
    made = own_array(tensor(value, dtype)) if isinstance(value, keras.Variable) else tensor(value, dtype)
    _refuse_fractions(value, made)
    if shape is None:
        return made
    numpy = np if isinstance(made, np.ndarray) else jnp
    wanted = integers(shape)
    return numpy.full(wanted, made) if made.size == 1 else numpy.reshape(made, wanted)


def _refuse_fractions(value: Any, made: Any) -> None:
    """Refuse numbers of Python that are no whole ones, where whole ones are asked for.

    Raises:
        TypeError: There is one.
    """
    of_python = isinstance(value, int | float | list | tuple) and np.issubdtype(made.dtype, np.integer)
    if of_python and any(isinstance(leaf, float) for leaf in jax.tree.leaves(value)):
        raise TypeError(
            explain(
                f"{value!r} cannot become a tensor of {made.dtype}.",
                "Fractions would be cut off; TensorFlow refuses it too.",
                "Write tf.cast(value, dtype), or whole numbers.",
            )
        )


def convert_to_tensor(value: Any, dtype: Any = None, dtype_hint: Any = None, name: str | None = None) -> Any:
    """Return a tensor of a value (`tf.convert_to_tensor`); a value that is a tensor must already have `dtype`.

    Raises:
        InputError: The value is a tensor of another dtype.
    """
    if dtype is not None and isinstance(value, jax.Array) and value.dtype != held(dtype):
        raise InputError(
            f"convert_to_tensor was given a tensor of {value.dtype} and dtype {as_dtype(dtype)!r}.",
            "TensorFlow does not change the dtype of a tensor here.",
            "Write tf.cast(value, dtype).",
        )
    made = tensor(value, dtype)
    return own_tensor(made) if isinstance(value, keras.Variable) else made


def own_tensor(value: Any) -> Any:
    """Return a tensor with the same values that no other is.

    A tape can differentiate by it, and not by the other. The value of a variable is gone when `fit` has changed that.
    """
    has_derivative = isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jnp.inexact)
    return jnp.copy(value) if has_derivative else own_array(value)


@operation
def identity(input: Tensor, name: str | None = None) -> Any:
    """Return a tensor with the same values (`tf.identity`); in a `model_fn` hooks find it by its name."""
    calls = sys.modules.get("stratagem.estimator.running_call")  # not loaded for who uses no Estimator
    value = own_tensor(input)
    return value if calls is None else calls.identity(value, name)


@operation
def cast(x: Tensor, dtype: Any) -> Any:
    """Return a tensor of another dtype (`tf.cast`); fractions and imaginary parts are cut off.

    Args:
        x: A tensor, or a value that becomes one.
        dtype: The dtype; JAX holds int64 as int32 and float64 as float32.

    Example:
        >>> cast([1.8, 2.2], "int32").numpy()
        array([1, 2], dtype=int32)
    """
    kind = held(dtype)
    if np.iscomplexobj(x) and not np.issubdtype(kind, np.complexfloating) and kind != np.bool_:
        x = x.real  # NumPy and JAX warn of what is lost
    return x.astype(kind)


@operation
def saturate_cast(value: Tensor, dtype: Any) -> Any:
    """Return a tensor of another dtype, with values limited to its bounds (`tf.saturate_cast`)."""
    kind = as_dtype(held(dtype))
    return xp(value).clip(value, kind.min, kind.max).astype(held(dtype))


@operation
def bitcast(input: Array, type: Any) -> Any:
    """Return the same bits as another dtype (`tf.bitcast`)."""
    return jax.lax.bitcast_convert_type(input, held(type))


def _filled(shape: Any, value: Any, dtype: Any) -> Any:
    if as_dtype(dtype) == "string":
        return hosted(np.full(integers(shape), b"", object))
    return xp().full(integers(shape), value, held(dtype))


def zeros(shape: Any, dtype: Any = "float32", name: str | None = None, layout: Any = None) -> Any:
    """Return a tensor of zeros (`tf.zeros`).

    Example:
        >>> zeros([2, 1], "int32").tolist()
        [[0], [0]]
    """
    return hosted_or_not(_filled(shape, 0, dtype))


def ones(shape: Any, dtype: Any = "float32", name: str | None = None, layout: Any = None) -> Any:
    """Return a tensor of ones (`tf.ones`)."""
    return hosted_or_not(_filled(shape, 1, dtype))


def hosted_or_not(value: Any) -> Any:
    """Return NumPy's arrays as tensors of functions of datasets, and JAX's as they are."""
    return value if isinstance(value, jax.Array) else hosted(value)


@operation
def fill(dims: Sizes, value: Tensor, name: str | None = None, layout: Any = None) -> Any:
    """Return a tensor of one value (`tf.fill`).

    Example:
        >>> fill([2], 7).tolist()
        [7, 7]
    """
    return xp(value).full(dims, value, value.dtype)


@operation
def zeros_like(input: Tensor, dtype: Any = None, name: str | None = None, layout: Any = None) -> Any:
    """Return zeros of a tensor's shape and dtype, empty texts for text (`tf.zeros_like`)."""
    if is_text(input) and dtype is None:
        return hosted(np.full(np.shape(input), b"", object))
    return xp(input).zeros_like(input, dtype=input.dtype if dtype is None else held(dtype))


@operation
def ones_like(input: Tensor, dtype: Any = None, name: str | None = None, layout: Any = None) -> Any:
    """Return ones of a tensor's shape and dtype (`tf.ones_like`)."""
    return xp(input).ones_like(input, dtype=input.dtype if dtype is None else held(dtype))


def eye(
    num_rows: Any, num_columns: Any = None, batch_shape: Any = None, dtype: Any = "float32", name: str | None = None
) -> Any:
    """Return an identity matrix, or a batch of them (`tf.eye`)."""
    numpy = xp()
    matrix = numpy.eye(int(num_rows), None if num_columns is None else int(num_columns), dtype=held(dtype))
    return matrix if batch_shape is None else numpy.broadcast_to(matrix, (*integers(batch_shape), *matrix.shape))


def range(start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None, name: str = "range") -> Any:
    """Return numbers at equal distances (`tf.range`).

    In a compiled function a loop `for i in tf.range(n)` of up to 64 iterations is unrolled. A longer loop becomes a
    loop of the program if possible, and so does every loop whose `n` is computed. Otherwise the bounds must be known,
    like a shape.

    Args:
        start: The first number; or the limit, if it is the only argument.
        limit: The end, which is not included.
        delta: The distance between two numbers.
        dtype: The dtype; None for that of the numbers.
        name: No effect.

    Raises:
        InputError: The steps lead away from the limit.

    Example:
        >>> range(3).tolist(), range(3, 18, 3).tolist()
        ([0, 1, 2], [3, 6, 9, 12, 15])
    """
    if limit is None:
        start, limit = 0, start
    start, limit, delta = map(tensor, (start, limit, delta))
    if any(map(is_traced, (start, limit, delta))):
        return ComputedRange(start, limit, delta, dtype if dtype is None else held(dtype))
    numbers = [np.asarray(bound) for bound in (start, limit, delta)]
    if numbers[2] == 0 or (numbers[1] - numbers[0]) * np.sign(numbers[2]) < 0:
        raise InputError(
            f"tf.range was asked to go from {numbers[0]} to {numbers[1]} in steps of {numbers[2]}.",
            "Correct the bounds, or the sign of the step.",
        )
    floating = [
        number for number in numbers if number.dtype.kind == "f"
    ]  # of an int32 and a float32 NumPy makes float64
    kind = np.result_type(*(floating or numbers)) if dtype is None else np.dtype(as_dtype(dtype).as_numpy_dtype)
    made = np.arange(*(number.item() for number in numbers)).astype(kind)
    if current_tracing() is not None:  # of NumPy, so that `for i in tf.range(3)` gives numbers that are known
        return made.astype(held(kind)).view(KnownRange)
    return tensor(made)


@operation
def linspace(start: Any, stop: Any, num: Any, name: str | None = None, axis: int = 0) -> Any:
    """Return numbers at equal distances, including both ends (`tf.linspace`)."""
    start, stop = (derivatives.constant(x) if isinstance(x, jax.Array) else x for x in (tensor(start), tensor(stop)))
    kind = start.dtype if jnp.issubdtype(start.dtype, jnp.inexact) else np.dtype(np.float32)
    return xp(start, stop).linspace(start, stop, int(num), axis=axis).astype(kind)


@operation
def one_hot(
    indices: Tensor, depth: Any, on_value: Any = None, off_value: Any = None, axis: Any = None, dtype: Any = None
) -> Any:
    """Return for each index a row of zeros with a 1 at that index (`tf.one_hot`).

    Args:
        indices: Whole numbers; those outside 0 to `depth` - 1 give no 1.
        depth: The number of elements of a row.
        on_value: The value instead of 1.
        off_value: The value instead of 0.
        axis: The place of the new axis; None for the last.
        dtype: The dtype; None for float32, or that of the values.

    Example:
        >>> one_hot([0, 2, -1], 3).tolist()
        [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """
    axis = -1 if axis is None else int(axis)
    given = [value for value in (on_value, off_value) if value is not None]
    kind = held(dtype) if dtype is not None else tensor(given[0]).dtype if given else np.dtype(np.float32)
    numpy = xp(indices)
    hot = numpy.expand_dims(indices, axis) == numpy.arange(int(depth)).reshape(
        [-1 if a == axis % (indices.ndim + 1) else 1 for a in np.arange(indices.ndim + 1)]
    )
    on, off = (
        derivatives.constant(x) if isinstance(x, jax.Array) else x
        for x in (1 if on_value is None else on_value, 0 if off_value is None else off_value)
    )
    return numpy.where(hot, numpy.asarray(on, kind), numpy.asarray(off, kind))


def shape(input: Any, out_type: Any = "int32", name: str | None = None) -> Any:
    """Return the shape of a tensor as a NumPy array, which can be used as a shape again (`tf.shape`).

    For a symbolic tensor of Keras it is a tuple with None for unknown sizes. In a layer that Keras calls to find its
    output shape, it is a tuple with symbols in place of None.

    Example:
        >>> shape(zeros([2, 3])).numpy().tolist()
        [2, 3]
    """
    if isinstance(input, keras.KerasTensor):
        return keras.ops.shape(input)
    sizes = _shaped(input).shape
    if not all(isinstance(size, int) for size in sizes):
        return sizes
    return hosted(np.asarray(sizes, as_dtype(out_type).as_numpy_dtype))


def size(input: Any, out_type: Any = "int32", name: str | None = None) -> Any:
    """Return how many elements a tensor has (`tf.size`), as `shape` does."""
    return hosted(np.asarray(_shaped(input).size, as_dtype(out_type).as_numpy_dtype))


def rank(input: Any, name: str | None = None) -> Any:
    """Return how many axes a tensor has (`tf.rank`), as `shape` does."""
    return hosted(np.asarray(len(input.shape if hasattr(input, "shape") else _shaped(input).shape), np.int32))


def _shaped(value: Any) -> Any:
    if isinstance(value, bytes | str) or is_text(value):
        return np.asarray(value, object)
    return value if hasattr(value, "shape") and hasattr(value, "size") else tensor(value)


def ensure_shape(x: Any, shape: Any, name: str | None = None) -> Any:
    """Return a tensor whose shape has been checked (`tf.ensure_shape`).

    Args:
        x: The tensor.
        shape: The expected shape, with None for any size.
        name: No effect.

    Raises:
        InputError: The tensor has another shape.
    """
    x = tensor(x)
    wanted = TensorShape(shape)
    if not wanted.is_compatible_with(x.shape):
        raise InputError(
            f"The tensor's shape is {tuple(x.shape)}, not {wanted}.",
            "Correct the shape given to tf.ensure_shape, or what made the tensor.",
        )
    return x


def make_ndarray(tensor: Any) -> np.ndarray:
    """Return a tensor as NumPy (`tf.make_ndarray`)."""
    return np.asarray(tensor)


def get_static_value(tensor: Any, partial: bool = False) -> Any:
    """Return a tensor's value if it is known, else None (`tf.get_static_value`)."""
    return None if is_traced(tensor) or isinstance(tensor, keras.KerasTensor) else np.asarray(tensor)


guarantee_const = identity


def identity_n(input: Any, name: str | None = None) -> list[Any]:
    """Return tensors with the same values (`tf.identity_n`)."""
    return [own_tensor(tensor(each)) for each in input]


def shape_n(input: Any, out_type: Any = "int32", name: str | None = None) -> list[Any]:
    """Return the shapes of several tensors (`tf.shape_n`), as `shape` does."""
    return [shape(each, out_type) for each in input]
