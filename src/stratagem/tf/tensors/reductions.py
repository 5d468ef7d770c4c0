"""Functions along axes: `tf.reduce_mean`, `tf.argmax`, `tf.cumsum`, `tf.norm`, `tf.clip_by_global_norm`.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/math
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from stratagem.tf.tensors.operation import axes, held, integers, operands, operation, tensor, xp

_REDUCE: Final = {"all": "all", "any": "any", "max": "max", "min": "min", "prod": "prod", "sum": "sum"}


def _reduce(name: str, theirs: str) -> Callable[..., Any]:
    def function(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Any:
        x = tensor(input_tensor)
        result = getattr(xp(x), theirs)(x, axis=axes(axis), keepdims=bool(keepdims))
        return result if theirs in ("all", "any") else result.astype(x.dtype)  # of int8 too, as TensorFlow

    function.__name__ = function.__qualname__ = f"reduce_{name}"
    function.__doc__ = f"""Return the {name} of a tensor's elements (`tf.math.reduce_{name}`).

    Args:
        input_tensor: The tensor.
        axis: An axis, or several; None for all.
        keepdims: Whether the axes stay, with size 1.
        name: No effect.
    """
    return operation(function)


globals().update({f"reduce_{_name}": _reduce(_name, _theirs) for _name, _theirs in _REDUCE.items()})


@operation
def reduce_mean(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Any:
    """Return the mean of a tensor's elements (`tf.math.reduce_mean`): of whole numbers a whole number, as there.

    Args:
        input_tensor: The tensor.
        axis: An axis, or several; None for all.
        keepdims: Whether the axes stay, with size 1.
        name: No effect.

    Example:
        >>> float(reduce_mean([1.0, 2.0, 6.0])), int(reduce_mean([1, 2]))
        (3.0, 1)
    """
    x = tensor(input_tensor)
    return xp(x).mean(x, axis=axes(axis), keepdims=bool(keepdims)).astype(x.dtype)


@operation
def reduce_variance(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Any:
    """Return the variance, over all the elements and not one less (`tf.math.reduce_variance`)."""
    x = tensor(input_tensor)
    return xp(x).var(x, axis=axes(axis), keepdims=bool(keepdims))


@operation
def reduce_std(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Any:
    """Return the standard deviation (`tf.math.reduce_std`)."""
    x = tensor(input_tensor)
    return xp(x).std(x, axis=axes(axis), keepdims=bool(keepdims))


@operation
def reduce_logsumexp(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Any:
    """Return log(sum(exp(x))), without overflow (`tf.math.reduce_logsumexp`)."""
    return jax.nn.logsumexp(jnp.asarray(tensor(input_tensor)), axis=axes(axis), keepdims=bool(keepdims))


@operation
def reduce_euclidean_norm(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Any:
    """Return the root of the sum of squares (`tf.math.reduce_euclidean_norm`)."""
    x = tensor(input_tensor)
    numpy = xp(x)
    return numpy.sqrt(numpy.sum(numpy.square(x), axis=axes(axis), keepdims=bool(keepdims))).astype(x.dtype)


@operation
def count_nonzero(
    input: Any, axis: Any = None, keepdims: bool = False, dtype: Any = "int64", name: str | None = None
) -> Any:
    """Return how many elements are not 0 (`tf.math.count_nonzero`)."""
    x = tensor(input)
    return xp(x).sum(x != 0, axis=axes(axis), keepdims=bool(keepdims)).astype(held(dtype))


@operation
def zero_fraction(value: Any, name: str | None = None) -> Any:
    """Return the part of the elements that are 0 (`tf.math.zero_fraction`)."""
    x = tensor(value)
    return xp(x).mean(x == 0).astype(np.float32)


@operation
def argmax(input: Any, axis: Any = None, output_type: Any = "int64", name: str | None = None) -> Any:
    """Return where along an axis the greatest element stands, the first of equal ones (`tf.math.argmax`).

    Args:
        input: The tensor.
        axis: The axis; None for the first.
        output_type: The dtype of the result; JAX holds int64 as int32.
        name: No effect.

    Example:
        >>> argmax([[1, 9], [7, 2]], axis=1).tolist()
        [1, 0]
    """
    x = tensor(input)
    return xp(x).argmax(x, axis=0 if axis is None else int(axis)).astype(held(output_type))


@operation
def argmin(input: Any, axis: Any = None, output_type: Any = "int64", name: str | None = None) -> Any:
    """Return where along an axis the least element stands, the first of equal ones (`tf.math.argmin`)."""
    x = tensor(input)
    return xp(x).argmin(x, axis=0 if axis is None else int(axis)).astype(held(output_type))


def _cumulative(x: Any, axis: Any, exclusive: bool, reverse: bool, along: Callable[..., Any], neutral: float) -> Any:
    axis, numpy = int(axis), xp(x)
    if reverse:
        x = numpy.flip(x, axis)
    if exclusive:
        first = numpy.full_like(numpy.take(x, np.array([0]), axis=axis), neutral)
        x = numpy.concatenate([first, numpy.take(x, np.arange(x.shape[axis] - 1), axis=axis)], axis)
    result = along(numpy, x, axis)
    return numpy.flip(result, axis) if reverse else result


@operation
def cumsum(x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None) -> Any:
    """Return the sums up to each element (`tf.math.cumsum`).

    Args:
        x: The tensor.
        axis: Along which axis.
        exclusive: Whether an element itself does not count.
        reverse: Whether to begin at the end.
        name: No effect.

    Example:
        >>> cumsum([1, 2, 3]).tolist(), cumsum([1, 2, 3], exclusive=True, reverse=True).tolist()
        ([1, 3, 6], [5, 3, 0])
    """
    x = tensor(x)
    return _cumulative(x, axis, exclusive, reverse, lambda numpy, a, i: numpy.cumsum(a, i, dtype=a.dtype), 0)


@operation
def cumprod(x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None) -> Any:
    """Return the products up to each element (`tf.math.cumprod`); the arguments are those of `cumsum`."""
    x = tensor(x)
    return _cumulative(x, axis, exclusive, reverse, lambda numpy, a, i: numpy.cumprod(a, i, dtype=a.dtype), 1)


@operation
def cumulative_logsumexp(
    x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Any:
    """Return log(sum(exp)) up to each element (`tf.math.cumulative_logsumexp`)."""
    x = jnp.asarray(tensor(x))
    return _cumulative(x, axis, exclusive, reverse, lambda _, a, i: jax.lax.cumlogsumexp(a, i % a.ndim), -np.inf)


@operation
def norm(tensor: Any, ord: Any = "euclidean", axis: Any = None, keepdims: bool = False, name: str | None = None) -> Any:
    """Return the norm of vectors or matrices (`tf.norm`).

    Args:
        tensor: The tensor.
        ord: "euclidean" (of a matrix: Frobenius), a positive number, or infinity.
        axis: The axis of vectors, or the two of matrices; None for all elements as one vector.
        keepdims: Whether the axes stay, with size 1.
        name: No effect.

    Example:
        >>> float(norm([3.0, 4.0])), float(norm([3.0, -4.0], ord=1))
        (5.0, 7.0)
    """
    x = _tensor(tensor)
    numpy, along = xp(x), axes(axis)
    if along is None:
        result = numpy.linalg.norm(x.reshape(-1), None if ord == "euclidean" else ord)
        return result.reshape((1,) * x.ndim) if keepdims else result
    return numpy.linalg.norm(x, None if ord == "euclidean" else ord, axis=along, keepdims=bool(keepdims))


_tensor = tensor


@operation
def clip_by_norm(t: Any, clip_norm: Any, axes: Any = None, name: str | None = None) -> Any:
    """Return a tensor scaled down so that its norm is at most this (`tf.clip_by_norm`).

    Args:
        t: The tensor.
        clip_norm: The greatest norm.
        axes: The axes that the norm is taken over; None for all.
        name: No effect.

    Example:
        >>> clip_by_norm([3.0, 4.0], 1.0).tolist()
        [0.6000000238418579, 0.800000011920929]
    """
    x = tensor(t)
    numpy = xp(x)
    squares = numpy.sum(numpy.square(x), axis=None if axes is None else integers(axes), keepdims=True)
    length = numpy.sqrt(numpy.where(squares > 0, squares, numpy.ones_like(squares)))
    return x * clip_norm / numpy.maximum(length, clip_norm)


def global_norm(t_list: Any, name: str | None = None) -> Any:
    """Return the norm of several tensors together; None among them counts as nothing (`tf.linalg.global_norm`)."""
    parts = [tensor(t) for t in t_list if t is not None]
    return xp(*parts).sqrt(sum(xp(part).sum(xp(part).square(part)) for part in parts))


def clip_by_global_norm(
    t_list: Any, clip_norm: Any, use_norm: Any = None, name: str | None = None
) -> tuple[list[Any], Any]:
    """Scale several tensors down by one factor, so that their norm together is at most this (`tf.clip_by_global_norm`).

    Args:
        t_list: Tensors; None among them stays None.
        clip_norm: The greatest norm.
        use_norm: Their norm, where it is known.
        name: No effect.

    Returns:
        (the scaled tensors, their norm before). If that is not finite, the tensors are NaN.

    Example:
        >>> clipped, norm = clip_by_global_norm([tensor([3.0]), None, tensor([4.0])], 1.0)
        >>> float(norm), [None if part is None else round(float(part[0]), 6) for part in clipped]
        (5.0, [0.6, None, 0.8])
    """
    total = global_norm(t_list) if use_norm is None else tensor(use_norm)
    numpy = xp(total)
    factor = clip_norm * numpy.minimum(1.0 / total, 1.0 / clip_norm)
    factor = numpy.where(numpy.isfinite(total), factor, numpy.nan)
    return [None if t is None else tensor(t) * factor.astype(tensor(t).dtype) for t in t_list], total


@operation
def bincount(
    arr: Any,
    weights: Any = None,
    minlength: Any = None,
    maxlength: Any = None,
    dtype: Any = "int32",
    name: str | None = None,
) -> Any:
    """Return how often each whole number from 0 occurs (`tf.math.bincount`).

    In a compiled function the length must be known: give `minlength` and `maxlength` the same number.
    """
    x = tensor(arr).reshape(-1)
    if maxlength is not None and minlength == maxlength:
        counts = jnp.bincount(x, None if weights is None else tensor(weights).reshape(-1), length=int(maxlength))
    else:
        numbers = np.asarray(x)
        kept = numbers if maxlength is None else numbers[numbers < maxlength]
        own = None if weights is None else np.asarray(weights).reshape(-1)
        own = own if own is None or maxlength is None else own[numbers < maxlength]
        counts = tensor(np.bincount(kept, own, minlength=0 if minlength is None else int(minlength)))
    return counts.astype(held("float32" if weights is not None else dtype))


@operation
def confusion_matrix(
    labels: Any,
    predictions: Any,
    num_classes: Any = None,
    weights: Any = None,
    dtype: Any = "int32",
    name: str | None = None,
) -> Any:
    """Return how often each class (row) was taken for each class (column) (`tf.math.confusion_matrix`).

    Args:
        labels: The true classes, whole numbers.
        predictions: The classes predicted.
        num_classes: How many there are; needed in a compiled function.
        weights: A weight for each prediction.
        dtype: The dtype of the counts.
        name: No effect.

    Example:
        >>> confusion_matrix([1, 2, 2], [1, 1, 2], num_classes=3).tolist()
        [[0, 0, 0], [0, 1, 0], [0, 1, 1]]
    """
    rows, columns = (jnp.asarray(tensor(x)).reshape(-1) for x in (labels, predictions))
    count = int(max(rows.max(), columns.max())) + 1 if num_classes is None else int(num_classes)
    one = jnp.ones(rows.shape) if weights is None else jnp.asarray(tensor(weights)).reshape(-1)
    return jnp.zeros((count, count)).at[rows, columns].add(one).astype(held(dtype))


@operation
def segment(data: Any, segment_ids: Any, kind: str, num_segments: Any = None) -> Any:
    """Return the "sum", "prod", "max", "min" or "mean" of the rows with each number."""
    rows, ids = jnp.asarray(tensor(data)), jnp.asarray(tensor(segment_ids))
    count = int(ids.max()) + 1 if num_segments is None else int(num_segments)
    if kind != "mean":
        return getattr(jax.ops, f"segment_{kind}")(rows, ids, count)
    sums = jax.ops.segment_sum(rows, ids, count)
    members = jax.ops.segment_sum(jnp.ones(ids.shape, rows.dtype), ids, count)
    return sums / jnp.maximum(members, 1).reshape(-1, *(1,) * (rows.ndim - 1))


def _sorted_segments(kind: str) -> Callable[..., Any]:
    def function(data: Any, segment_ids: Any, name: str | None = None) -> Any:
        return segment(data, segment_ids, kind)

    function.__doc__ = f"Return the {kind} of the rows with each number, which ascend (`tf.math.segment_{kind}`)."
    return function


def _segments(kind: str) -> Callable[..., Any]:
    def function(data: Any, segment_ids: Any, num_segments: Any, name: str | None = None) -> Any:
        return segment(data, segment_ids, kind, num_segments)

    function.__doc__ = f"Return the {kind} of the rows with each number (`tf.math.unsorted_segment_{kind}`)."
    return function


for _kind in ("sum", "prod", "max", "min", "mean"):
    globals()[f"segment_{_kind}"] = _sorted_segments(_kind)
    globals()[f"unsorted_segment_{_kind}"] = _segments(_kind)


@operation
def is_strictly_increasing(x: Any, name: str | None = None) -> Any:
    """Return whether each element is greater than the one before (`tf.math.is_strictly_increasing`)."""
    flat = tensor(x).reshape(-1)
    return xp(flat).all(flat[1:] > flat[:-1])


@operation
def is_non_decreasing(x: Any, name: str | None = None) -> Any:
    """Return whether no element is less than the one before (`tf.math.is_non_decreasing`)."""
    flat = tensor(x).reshape(-1)
    return xp(flat).all(flat[1:] >= flat[:-1])


@operation
def matmul(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    output_type: Any = None,
    name: str | None = None,
) -> Any:
    """Return the product of matrices; leading axes are of a batch (`tf.linalg.matmul`).

    Args:
        a: Shape (..., n, m).
        b: Shape (..., m, p).
        transpose_a: Whether `a` is to be transposed first.
        transpose_b: Whether `b` is.
        adjoint_a: The same, conjugated.
        adjoint_b: The same, conjugated.
        a_is_sparse: No effect.
        b_is_sparse: No effect.
        output_type: The dtype of the product; None for that of the matrices.
        name: No effect.

    Example:
        >>> matmul([[1, 2]], [[3, 4]], transpose_b=True).tolist()
        [[11]]
    """
    a, b = operands(a, b)
    numpy = xp(a, b)
    a = numpy.conj(a) if adjoint_a else a
    b = numpy.conj(b) if adjoint_b else b
    a = numpy.swapaxes(a, -1, -2) if transpose_a or adjoint_a else a
    b = numpy.swapaxes(b, -1, -2) if transpose_b or adjoint_b else b
    product = numpy.matmul(a, b)
    return product if output_type is None else product.astype(held(output_type))


@operation
def tensordot(a: Any, b: Any, axes: Any, name: str | None = None) -> Any:
    """Return the sums of products along axes (`tf.tensordot`)."""
    a, b = tensor(a), tensor(b)
    along = int(axes) if np.ndim(axes) == 0 else [np.atleast_1d(np.asarray(axis)).tolist() for axis in axes]
    return xp(a, b).tensordot(a, b, axes=along)


@operation
def einsum(equation: str, *inputs: Any, **kwargs: Any) -> Any:
    """Return sums of products in Einstein's notation (`tf.einsum`)."""
    parts = [tensor(part) for part in inputs]
    return xp(*parts).einsum(equation, *parts)


@operation
def cross(a: Any, b: Any, name: str | None = None) -> Any:
    """Return the cross products of vectors of three (`tf.linalg.cross`)."""
    a, b = tensor(a), tensor(b)
    return xp(a, b).cross(a, b)
