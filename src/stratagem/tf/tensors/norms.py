"""Norms of vectors and matrices, and clipping by norm: `tf.norm`, `tf.clip_by_global_norm`.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stratagem.core.errors import InputError
from stratagem.tf.tensors.marks import Sizes, Tensor
from stratagem.tf.tensors.operation import axes, operation, tensor, xp


@operation
def norm(tensor: Any, ord: Any = "euclidean", axis: Any = None, keepdims: bool = False) -> Any:
    """Return the norm of vectors or matrices (`tf.norm`).

    Args:
        tensor: The tensor.
        ord: "euclidean" (of a matrix: Frobenius), a positive number, or infinity.
        axis: The axis of vectors, or the two axes of matrices; None for all elements as one vector.
        keepdims: Whether the axes stay, with size 1.

    Example:
        >>> float(norm([3.0, 4.0])), float(norm([3.0, -4.0], ord=1))
        (5.0, 7.0)
    """
    x = _tensor(tensor)
    numpy, along = xp(x), axes(axis)
    of_matrices = isinstance(along, tuple)
    known = ("euclidean", "fro", 1, 2, np.inf) if of_matrices else ("euclidean", 1, 2, np.inf)
    positive = not of_matrices and isinstance(ord, int | float | np.number) and ord > 0
    if (ord not in known and not positive) or (of_matrices and len(set(along)) != 2):
        raise InputError(
            f"norm was asked for ord={ord!r} along axis {axis}.",
            f"Write one of {', '.join(map(repr, known))}{'' if of_matrices else ', or a positive number'}.",
        )
    if of_matrices and ord == 2:
        length = numpy.max(numpy.linalg.svd(numpy.moveaxis(x, along, (-2, -1)), compute_uv=False), axis=-1)
        return numpy.expand_dims(length, tuple(each % x.ndim for each in along)) if keepdims else length
    if ord in ("euclidean", "fro", 2):
        squares = (x * numpy.conj(x)).real if np.issubdtype(x.dtype, np.complexfloating) else x * x
        length = numpy.sqrt(numpy.sum(squares, axis=along, keepdims=True))
    elif not of_matrices:
        sizes = numpy.abs(x)
        if ord == 1:
            length = numpy.sum(sizes, axis=along, keepdims=True)
        elif ord == np.inf:
            length = numpy.max(sizes, axis=along, keepdims=True)
        else:
            length = numpy.power(numpy.sum(numpy.power(sizes, ord), axis=along, keepdims=True), 1.0 / ord)
    else:
        rows, columns = along if ord == 1 else along[::-1]
        length = numpy.max(numpy.sum(numpy.abs(x), axis=rows, keepdims=True), axis=columns, keepdims=True)
    length = length.astype(np.abs(np.zeros((), x.dtype)).dtype)
    return length if keepdims else numpy.squeeze(length, along)


_tensor = tensor


@operation
def clip_by_norm(t: Tensor, clip_norm: Any, axes: Sizes | None = None) -> Any:
    """Return a tensor scaled down to a greatest norm (`tf.clip_by_norm`).

    Args:
        t: The tensor.
        clip_norm: The greatest norm.
        axes: The axes of the norm; None for all.

    Example:
        >>> clip_by_norm([3.0, 4.0], 1.0).tolist()
        [0.6000000238418579, 0.800000011920929]
    """
    numpy = xp(t)
    most = numpy.maximum(clip_norm, 0)
    squares = numpy.sum(t * t, axis=axes, keepdims=True)
    some = squares > 0
    length = numpy.where(some, numpy.sqrt(numpy.where(some, squares, numpy.ones_like(squares))), squares)
    return (t * most / numpy.maximum(length, most)).astype(t.dtype)


def global_norm(t_list: Any, name: str | None = None) -> Any:
    """Return the norm of several tensors together; None among them is ignored (`tf.linalg.global_norm`)."""
    parts = [tensor(t) for t in t_list if t is not None]
    return xp(*parts).sqrt(2 * sum(xp(part).sum(xp(part).square(part)) / 2 for part in parts))


def clip_by_global_norm(
    t_list: Any, clip_norm: Any, use_norm: Any = None, name: str | None = None
) -> tuple[list[Any], Any]:
    """Scale several tensors down by one factor to a greatest common norm (`tf.clip_by_global_norm`).

    Args:
        t_list: Tensors; None among them stays None.
        clip_norm: The greatest norm.
        use_norm: The norm of the tensors, if it is known already.
        name: No effect.

    Returns:
        The scaled tensors, and the norm before. If the norm is not finite, the tensors are NaN.

    Example:
        >>> clipped, norm = clip_by_global_norm([tensor([3.0]), None, tensor([4.0])], 1.0)
        >>> float(norm), [None if part is None else round(float(part[0]), 6) for part in clipped]
        (5.0, [0.6, None, 0.8])
    """
    total = global_norm(t_list) if use_norm is None else tensor(use_norm)
    numpy = xp(total)
    factor = clip_norm * numpy.minimum(1.0 / total, 1.0 / clip_norm) + (total - total)
    return [None if t is None else tensor(t) * factor.astype(tensor(t).dtype) for t in t_list], total
