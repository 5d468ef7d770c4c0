"""Products of matrices and sums of products: `tf.matmul`, `tf.tensordot`, `tf.einsum`.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stratagem.core.errors import InputError
from stratagem.tf.tensors.marks import Operand, Tensor
from stratagem.tf.tensors.operation import held, operation, tensor, xp


@operation
def matmul(
    a: Operand,
    b: Operand,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    output_type: Any = None,
) -> Any:
    """Return the product of matrices; leading axes are batch axes (`tf.linalg.matmul`).

    Args:
        a: A tensor of shape (..., n, m).
        b: A tensor of shape (..., m, p).
        transpose_a: Whether to transpose `a` first.
        transpose_b: Whether to transpose `b` first.
        adjoint_a: Whether to transpose and conjugate `a` first.
        adjoint_b: Whether to transpose and conjugate `b` first.
        a_is_sparse: No effect.
        b_is_sparse: No effect.
        output_type: The dtype of the product; None for that of the matrices.

    Raises:
        InputError: One of the tensors is not a matrix.

    Example:
        >>> matmul([[1, 2]], [[3, 4]], transpose_b=True).tolist()
        [[11]]
    """
    numpy = xp(a, b)
    if a.ndim < 2 or b.ndim < 2 or (transpose_a and adjoint_a) or (transpose_b and adjoint_b):
        raise InputError(
            f"matmul was given tensors of shapes {tuple(a.shape)} and {tuple(b.shape)}"
            f"{', and both transpose and adjoint of one' if a.ndim > 1 and b.ndim > 1 else ''}.",
            "It multiplies matrices, and transposes each at most once.",
            "Write tf.linalg.matvec for vectors, or one of transpose and adjoint.",
        )
    a = numpy.conj(a) if adjoint_a else a
    b = numpy.conj(b) if adjoint_b else b
    a = numpy.swapaxes(a, -1, -2) if transpose_a or adjoint_a else a
    b = numpy.swapaxes(b, -1, -2) if transpose_b or adjoint_b else b
    product = numpy.matmul(a, b)
    return product if output_type is None else product.astype(held(output_type))


@operation
def tensordot(a: Tensor, b: Tensor, axes: Any) -> Any:
    """Return the sums of products along axes (`tf.tensordot`)."""
    along = int(axes) if np.ndim(axes) == 0 else [np.atleast_1d(np.asarray(axis)).tolist() for axis in axes]
    return xp(a, b).tensordot(a, b, axes=along)


@operation
def einsum(equation: str, *inputs: Any, **kwargs: Any) -> Any:
    """Return sums of products in Einstein's notation (`tf.einsum`)."""
    parts = [tensor(part) for part in inputs]
    return xp(*parts).einsum(equation, *parts)


@operation
def cross(a: Tensor, b: Tensor) -> Any:
    """Return the cross products of vectors of three numbers (`tf.linalg.cross`)."""
    if a.shape != b.shape or not a.ndim or a.shape[-1] != 3:
        raise InputError(
            f"cross was given tensors of shapes {tuple(a.shape)} and {tuple(b.shape)}.",
            "It takes vectors of three numbers, and as many of one as of the other.",
            "Correct the shapes.",
        )
    return xp(a, b).cross(a, b)
