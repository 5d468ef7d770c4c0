"""Matrices taken apart (`tf.linalg.lu`), their rank, and those of three diagonals.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/linalg
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stratagem.tf.tensors.marks import Array
from stratagem.tf.tensors.operation import held, operation, refusal, tensor


@operation
def lu(input: Array, output_idx_type: Any = "int32") -> tuple[Any, Any]:
    """Return the lower and upper triangular factors in one matrix, and the order of the rows (`tf.linalg.lu`).

    Raises:
        InputError: A matrix is not square.
    """
    if input.ndim < 2 or input.shape[-1] != input.shape[-2]:
        raise refusal(f"lu was given shape {input.shape}.", "Give square matrices.")
    factors, _, order = jax.lax.linalg.lu(input)
    return factors, order.astype(held(output_idx_type))


def _triangles(lower_upper: Any) -> tuple[Any, Any]:
    both = jnp.asarray(tensor(lower_upper))
    return jnp.tril(both, -1) + jnp.eye(both.shape[-1], dtype=both.dtype), jnp.triu(both)


@operation
def lu_reconstruct(lower_upper: Any, perm: Array, validate_args: bool = False) -> Any:
    """Return the matrices that `lu` factorized (`tf.linalg.lu_reconstruct`)."""
    lower, upper = _triangles(lower_upper)
    back = jnp.argsort(perm, axis=-1)
    return jnp.take_along_axis(lower @ upper, back[..., None], axis=-2)


@operation
def lu_solve(lower_upper: Any, perm: Array, rhs: Array, validate_args: bool = False) -> Any:
    """Return X with A X = rhs, for an A that `lu` factorized (`tf.linalg.lu_solve`)."""
    lower, upper = _triangles(lower_upper)
    batch = np.broadcast_shapes(perm.shape[:-1], rhs.shape[:-2])
    rhs = jnp.broadcast_to(rhs, (*batch, *rhs.shape[-2:]))
    rhs = jnp.take_along_axis(rhs, jnp.broadcast_to(perm, (*batch, perm.shape[-1]))[..., None], axis=-2)
    lower, upper = (jnp.broadcast_to(part, (*batch, *part.shape[-2:])) for part in (lower, upper))
    first = jax.lax.linalg.triangular_solve(lower, rhs, left_side=True, lower=True, unit_diagonal=True)
    return jax.lax.linalg.triangular_solve(upper, first, left_side=True, lower=False)


@operation
def lu_matrix_inverse(lower_upper: Array, perm: Any, validate_args: bool = False) -> Any:
    """Return the inverses of matrices that `lu` factorized (`tf.linalg.lu_matrix_inverse`)."""
    return lu_solve(lower_upper, perm, jnp.eye(lower_upper.shape[-1], dtype=lower_upper.dtype))


@operation
def matrix_rank(a: Array, tol: Any = None, validate_args: bool = False) -> Any:
    """Return the ranks of matrices (`tf.linalg.matrix_rank`).

    Args:
        a: The matrices.
        tol: Singular values up to this bound count as 0; None for a bound from the precision of the dtype.
        validate_args: No effect.
    """
    found = jnp.linalg.svd(a, compute_uv=False)
    least = found[..., :1] * max(a.shape[-2:]) * jnp.finfo(a.dtype).eps if tol is None else jnp.asarray(tol)[..., None]
    return jnp.sum(found > least, axis=-1).astype(np.int32)


def _three(diagonals: Any, diagonals_format: str) -> tuple[Any, Any, Any]:
    """Return the diagonals above the main one, it, and below it, each as long as the matrix."""
    if diagonals_format == "sequence":
        above, main, below = (jnp.asarray(tensor(each)) for each in diagonals)
        size = main.shape[-1]
        around = [(0, 0)] * (main.ndim - 1)
        above = jnp.pad(above, [*around, (0, 1)]) if above.shape[-1] < size else above
        below = jnp.pad(below, [*around, (1, 0)]) if below.shape[-1] < size else below
    elif diagonals_format == "matrix":
        x = jnp.asarray(tensor(diagonals))
        return _three([jnp.diagonal(x, k, -2, -1) for k in (1, 0, -1)], "sequence")
    elif diagonals_format == "compact":
        above, main, below = jnp.moveaxis(jnp.asarray(tensor(diagonals)), -2, 0)
    else:
        raise refusal(f"diagonals_format is {diagonals_format!r}.", 'Write "compact", "sequence" or "matrix".')
    last, first = jnp.arange(main.shape[-1]) == main.shape[-1] - 1, jnp.arange(main.shape[-1]) == 0
    return jnp.where(last, 0, above), main, jnp.where(first, 0, below)


@operation
def tridiagonal_matmul(diagonals: Any, rhs: Array, diagonals_format: str = "compact") -> Any:
    """Return the product of tridiagonal matrices and other matrices (`tf.linalg.tridiagonal_matmul`).

    Args:
        diagonals: The diagonal above the main one, the main one, and the one below, in the form of `diagonals_format`.
        rhs: A tensor of shape (..., rows, columns).
        diagonals_format: "compact" (..., 3, rows), "sequence" of three, or "matrix".
    """
    above, main, below = _three(diagonals, diagonals_format)
    later = jnp.concatenate([rhs[..., 1:, :], jnp.zeros_like(rhs[..., :1, :])], -2)
    earlier = jnp.concatenate([jnp.zeros_like(rhs[..., :1, :]), rhs[..., :-1, :]], -2)
    return above[..., None] * later + main[..., None] * rhs + below[..., None] * earlier


@operation
def tridiagonal_solve(
    diagonals: Any,
    rhs: Array,
    diagonals_format: str = "compact",
    transpose_rhs: bool = False,
    conjugate_rhs: bool = False,
    name: str | None = None,
    partial_pivoting: bool = True,
    perturb_singular: bool = False,
) -> Any:
    """Return X with A X = rhs, for a tridiagonal A (`tf.linalg.tridiagonal_solve`).

    Args:
        diagonals: As for `tridiagonal_matmul`.
        rhs: A tensor of shape (..., rows) or (..., rows, columns).
        diagonals_format: As for `tridiagonal_matmul`.
        transpose_rhs: Whether to transpose `rhs` first.
        conjugate_rhs: Whether to conjugate `rhs` first.
        name: No effect.
        partial_pivoting: No effect.
        perturb_singular: No effect.
    """
    above, main, below = _three(diagonals, diagonals_format)
    rhs = jnp.conj(rhs) if conjugate_rhs else rhs
    rhs = jnp.swapaxes(rhs, -1, -2) if transpose_rhs else rhs
    column = rhs.ndim == main.ndim
    found = jax.lax.linalg.tridiagonal_solve(below, main, above, rhs[..., None] if column else rhs)
    return found[..., 0] if column else found
