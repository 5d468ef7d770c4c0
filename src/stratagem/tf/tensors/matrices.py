"""Linear algebra (`tf.linalg`), on JAX.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/linalg
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stratagem.tf.tensors.operation import operation, tensor


def _matrix(value: Any) -> jax.Array:
    return jnp.asarray(tensor(value))


def _adjoint(matrix: jax.Array) -> jax.Array:
    return jnp.conj(jnp.swapaxes(matrix, -1, -2))


@operation
def matrix_transpose(a: Any, name: str = "matrix_transpose", conjugate: bool = False) -> Any:
    """Return matrices with rows for columns (`tf.linalg.matrix_transpose`)."""
    return _adjoint(_matrix(a)) if conjugate else jnp.swapaxes(_matrix(a), -1, -2)


@operation
def adjoint(matrix: Any, name: str | None = None) -> Any:
    """Return matrices transposed and conjugated (`tf.linalg.adjoint`)."""
    return _adjoint(_matrix(matrix))


@operation
def matvec(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    adjoint_a: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    name: str | None = None,
) -> Any:
    """Return matrices times vectors (`tf.linalg.matvec`)."""
    matrix = _adjoint(_matrix(a)) if adjoint_a else _matrix(a)
    matrix = jnp.swapaxes(matrix, -1, -2) if transpose_a else matrix
    return jnp.einsum("...ij,...j->...i", matrix, _matrix(b))


@operation
def inv(input: Any, adjoint: bool = False, name: str | None = None) -> Any:
    """Return inverse matrices (`tf.linalg.inv`)."""
    return jnp.linalg.inv(_adjoint(_matrix(input)) if adjoint else _matrix(input))


@operation
def pinv(a: Any, rcond: Any = None, validate_args: bool = False, name: str | None = None) -> Any:
    """Return the pseudo-inverses of matrices (`tf.linalg.pinv`)."""
    return jnp.linalg.pinv(_matrix(a), rtol=rcond)


@operation
def det(input: Any, name: str | None = None) -> Any:
    """Return the determinants of matrices (`tf.linalg.det`)."""
    return jnp.linalg.det(_matrix(input))


@operation
def slogdet(input: Any, name: str | None = None) -> Any:
    """Return (the signs, the logarithms) of determinants (`tf.linalg.slogdet`)."""
    return tuple(jnp.linalg.slogdet(_matrix(input)))


@operation
def logdet(matrix: Any, name: str | None = None) -> Any:
    """Return the logarithms of the determinants of positive definite matrices (`tf.linalg.logdet`)."""
    return jnp.linalg.slogdet(_matrix(matrix))[1]


@operation
def trace(x: Any, name: str | None = None) -> Any:
    """Return the sums along the diagonals (`tf.linalg.trace`)."""
    return jnp.trace(_matrix(x), axis1=-2, axis2=-1)


@operation
def cholesky(input: Any, name: str | None = None) -> Any:
    """Return lower triangular matrices whose squares these are (`tf.linalg.cholesky`)."""
    return jnp.linalg.cholesky(_matrix(input))


@operation
def cholesky_solve(chol: Any, rhs: Any, name: str | None = None) -> Any:
    """Return X with A X = rhs, of A's Cholesky factor (`tf.linalg.cholesky_solve`)."""
    return jax.scipy.linalg.cho_solve((_matrix(chol), True), _matrix(rhs))


@operation
def solve(matrix: Any, rhs: Any, adjoint: bool = False, name: str | None = None) -> Any:
    """Return X with A X = rhs (`tf.linalg.solve`)."""
    return jnp.linalg.solve(_adjoint(_matrix(matrix)) if adjoint else _matrix(matrix), _matrix(rhs))


@operation
def triangular_solve(matrix: Any, rhs: Any, lower: bool = True, adjoint: bool = False, name: str | None = None) -> Any:
    """Return X with A X = rhs, of a triangular A (`tf.linalg.triangular_solve`)."""
    a = _matrix(matrix)
    b = jnp.broadcast_to(_matrix(rhs), (*a.shape[:-2], *_matrix(rhs).shape[-2:]))
    return jax.lax.linalg.triangular_solve(a, b, left_side=True, lower=lower, transpose_a=adjoint, conjugate_a=adjoint)


@operation
def lstsq(matrix: Any, rhs: Any, l2_regularizer: float = 0.0, fast: bool = True, name: str | None = None) -> Any:
    """Return the X for which A X comes nearest to rhs (`tf.linalg.lstsq`)."""
    a, b = _matrix(matrix), _matrix(rhs)
    if l2_regularizer:
        gram = _adjoint(a) @ a + l2_regularizer * jnp.eye(a.shape[-1], dtype=a.dtype)
        return jnp.linalg.solve(gram, _adjoint(a) @ b)
    return jnp.linalg.pinv(a) @ b


@operation
def svd(tensor: Any, full_matrices: bool = False, compute_uv: bool = True, name: str | None = None) -> Any:
    """Return (s, u, v) with tensor = u diag(s) v* (`tf.linalg.svd`); s alone without `compute_uv`."""
    if not compute_uv:
        return jnp.linalg.svd(_matrix(tensor), compute_uv=False)
    u, s, vh = jnp.linalg.svd(_matrix(tensor), full_matrices=full_matrices)
    return s, u, _adjoint(vh)


@operation
def qr(input: Any, full_matrices: bool = False, name: str | None = None) -> Any:
    """Return (q, r): an orthogonal and a triangular factor (`tf.linalg.qr`)."""
    return tuple(jnp.linalg.qr(_matrix(input), mode="complete" if full_matrices else "reduced"))


@operation
def eigh(tensor: Any, name: str | None = None) -> Any:
    """Return (eigenvalues, eigenvectors) of symmetric matrices (`tf.linalg.eigh`)."""
    return tuple(jnp.linalg.eigh(_matrix(tensor)))


@operation
def eigvalsh(tensor: Any, name: str | None = None) -> Any:
    """Return the eigenvalues of symmetric matrices (`tf.linalg.eigvalsh`)."""
    return jnp.linalg.eigvalsh(_matrix(tensor))


@operation
def expm(input: Any, name: str | None = None) -> Any:
    """Return the exponentials of matrices (`tf.linalg.expm`)."""
    return jax.scipy.linalg.expm(_matrix(input))


@operation
def diag(diagonal: Any, name: str = "diag", k: int = 0) -> Any:
    """Return matrices with these diagonals (`tf.linalg.diag`).

    Example:
        >>> diag([1, 2]).tolist()
        [[1, 0], [0, 2]]
    """
    x = _matrix(diagonal)
    rows = np.arange(x.shape[-1])
    size = x.shape[-1] + abs(k)
    start = jnp.zeros((*x.shape[:-1], size, size), x.dtype)
    return start.at[..., rows + max(-k, 0), rows + max(k, 0)].set(x)


@operation
def diag_part(input: Any, name: str = "diag_part", k: int = 0) -> Any:
    """Return the diagonals of matrices (`tf.linalg.diag_part`)."""
    return jnp.diagonal(_matrix(input), k, -2, -1)


@operation
def set_diag(input: Any, diagonal: Any, name: str = "set_diag", k: int = 0) -> Any:
    """Return matrices with other diagonals (`tf.linalg.set_diag`)."""
    x, new = _matrix(input), _matrix(diagonal)
    rows = np.arange(new.shape[-1])
    return x.at[..., rows + max(-k, 0), rows + max(k, 0)].set(new)


@operation
def band_part(input: Any, num_lower: Any, num_upper: Any, name: str | None = None) -> Any:
    """Return matrices with zeros outside a band about the diagonal (`tf.linalg.band_part`).

    Args:
        input: Shape (..., rows, columns).
        num_lower: How many diagonals below the main one stay; negative for all.
        num_upper: How many above it.
        name: No effect.

    Example:
        >>> band_part([[1, 1], [1, 1]], -1, 0).tolist()
        [[1, 0], [1, 1]]
    """
    x = _matrix(input)
    below = np.arange(x.shape[-2])[:, None] - np.arange(x.shape[-1])
    keeps = ((num_lower < 0) | (below <= num_lower)) & ((num_upper < 0) | (-below <= num_upper))
    return jnp.where(keeps, x, jnp.zeros_like(x))


@operation
def normalize(tensor: Any, ord: Any = "euclidean", axis: Any = None, name: str | None = None) -> Any:
    """Return (a tensor over its norm, the norm) (`tf.linalg.normalize`)."""
    x = _matrix(tensor)
    length = jnp.linalg.norm(x, None if ord == "euclidean" else ord, axis=axis, keepdims=True)
    return x / length, length
