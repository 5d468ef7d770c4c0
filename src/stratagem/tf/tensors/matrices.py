"""Linear algebra (`tf.linalg`), on JAX.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/linalg
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stratagem.program.tracing import is_traced
from stratagem.tf.derivatives import constant
from stratagem.tf.tensors.marks import Array
from stratagem.tf.tensors.norms import norm
from stratagem.tf.tensors.operation import operation, refusal, tensor


def _matrix(value: Any) -> jax.Array:
    return jnp.asarray(tensor(value))


def _square(value: Any) -> jax.Array:
    x = _matrix(value)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise refusal(f"A matrix of shape {x.shape} was given.", "Give a square matrix.")
    return x


def _refuse_singular(result: Any, *given: Any) -> None:
    """Refuse a singular matrix outside compiled functions: its numbers are finite, those of the result are not."""
    if any(is_traced(x) for x in (result, *given)) or np.all(np.isfinite(np.asarray(result))):
        return
    if all(np.all(np.isfinite(np.asarray(x))) for x in given):
        raise refusal("The matrix has no inverse.", "Write tf.linalg.pinv, or tf.linalg.lstsq with l2_regularizer.")


def _of_lower(matrix: jax.Array) -> jax.Array:
    """Return the symmetric matrix that a lower triangle stands for."""
    lower = jnp.tril(matrix, -1)
    return jnp.tril(matrix) + _adjoint(lower)


def _adjoint(matrix: jax.Array) -> jax.Array:
    return jnp.conj(jnp.swapaxes(matrix, -1, -2))


@operation
def matrix_transpose(a: Array, name: str = "matrix_transpose", conjugate: bool = False) -> Any:
    """Return the transposes of matrices (`tf.linalg.matrix_transpose`)."""
    if a.ndim < 2:
        raise refusal(f"matrix_transpose was given shape {a.shape}.", "Give a matrix.")
    return _adjoint(a) if conjugate else jnp.swapaxes(a, -1, -2)


@operation
def adjoint(matrix: Array) -> Any:
    """Return the conjugate transposes of matrices (`tf.linalg.adjoint`)."""
    return _adjoint(matrix)


@operation
def matvec(
    a: Array,
    b: Array,
    transpose_a: bool = False,
    adjoint_a: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
) -> Any:
    """Return matrices times vectors (`tf.linalg.matvec`)."""
    matrix = _adjoint(a) if adjoint_a else a
    matrix = jnp.swapaxes(matrix, -1, -2) if transpose_a else matrix
    return jnp.einsum("...ij,...j->...i", matrix, b)


@operation
def inv(input: Any, adjoint: bool = False) -> Any:
    """Return inverse matrices (`tf.linalg.inv`).

    Raises:
        InputError: A matrix is not square or has no inverse; compiled functions do not check for an inverse.
    """
    x = _square(input)
    found = jnp.linalg.inv(_adjoint(x) if adjoint else x)
    _refuse_singular(found, x)
    return found


@operation
def pinv(a: Array, rcond: Any = None, validate_args: bool = False) -> Any:
    """Return the pseudo-inverses of matrices (`tf.linalg.pinv`)."""
    return jnp.linalg.pinv(a, rtol=rcond)


@operation
def det(input: Any) -> Any:
    """Return the determinants of matrices (`tf.linalg.det`)."""
    return jnp.linalg.det(_square(input))


@operation
def slogdet(input: Any) -> Any:
    """Return (the signs, the logarithms) of determinants (`tf.linalg.slogdet`)."""
    return tuple(jnp.linalg.slogdet(_square(input)))


@operation
def logdet(matrix: Any) -> Any:
    """Return the logarithms of the determinants of positive definite matrices (`tf.linalg.logdet`)."""
    factor = cholesky(matrix)
    return 2 * jnp.sum(jnp.log(jnp.real(jnp.diagonal(factor, axis1=-2, axis2=-1))), -1)


@operation
def trace(x: Array) -> Any:
    """Return the sums along the diagonals (`tf.linalg.trace`)."""
    return jnp.trace(x, axis1=-2, axis2=-1)


@operation
def cholesky(input: Any) -> Any:
    """Return the lower triangular Cholesky factors of matrices (`tf.linalg.cholesky`), from their lower triangles."""
    x = _square(input)
    return jnp.linalg.cholesky(x + constant(_of_lower(x) - x))


@operation
def cholesky_solve(chol: Array, rhs: Array) -> Any:
    """Return X with A X = rhs, from the Cholesky factor of A (`tf.linalg.cholesky_solve`)."""
    return jax.scipy.linalg.cho_solve((chol, True), rhs)


@operation
def solve(matrix: Any, rhs: Array, adjoint: bool = False) -> Any:
    """Return X with A X = rhs (`tf.linalg.solve`).

    Raises:
        InputError: The right side is not a matrix, or A has no inverse; compiled functions do not check for an inverse.
    """
    a = _square(matrix)
    if rhs.ndim < 2:
        raise refusal(f"solve was given a right side of shape {rhs.shape}.", "Write rhs[:, None]: one column.")
    found = jnp.linalg.solve(_adjoint(a) if adjoint else a, rhs)
    _refuse_singular(found, a, rhs)
    return found


@operation
def triangular_solve(matrix: Array, rhs: Array, lower: bool = True, adjoint: bool = False) -> Any:
    """Return X with A X = rhs, for a triangular A (`tf.linalg.triangular_solve`)."""
    batch = np.broadcast_shapes(matrix.shape[:-2], rhs.shape[:-2])
    matrix, rhs = (jnp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (matrix, rhs))
    return jax.lax.linalg.triangular_solve(
        matrix, rhs, left_side=True, lower=lower, transpose_a=adjoint, conjugate_a=adjoint
    )


@operation
def lstsq(matrix: Array, rhs: Array, l2_regularizer: float = 0.0, fast: bool = True) -> Any:
    """Return the least-squares solution X of A X = rhs (`tf.linalg.lstsq`)."""
    if l2_regularizer:
        gram = _adjoint(matrix) @ matrix + l2_regularizer * jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
        return jnp.linalg.solve(gram, _adjoint(matrix) @ rhs)
    return jnp.linalg.pinv(matrix) @ rhs


@operation
def svd(tensor: Array, full_matrices: bool = False, compute_uv: bool = True) -> Any:
    """Return (s, u, v) with tensor = u diag(s) v* (`tf.linalg.svd`); only s without `compute_uv`."""
    if not compute_uv:
        return jnp.linalg.svd(tensor, compute_uv=False)
    u, s, vh = jnp.linalg.svd(tensor, full_matrices=full_matrices)
    return s, u, _adjoint(vh)


@operation
def qr(input: Array, full_matrices: bool = False) -> Any:
    """Return (q, r): an orthogonal and a triangular factor (`tf.linalg.qr`)."""
    return tuple(jnp.linalg.qr(input, mode="complete" if full_matrices else "reduced"))


@operation
def eigh(tensor: Any) -> Any:
    """Return (eigenvalues, eigenvectors) of symmetric matrices (`tf.linalg.eigh`), from their lower triangles."""
    return tuple(jnp.linalg.eigh(_of_lower(_square(tensor))))


@operation
def eigvalsh(tensor: Any) -> Any:
    """Return the eigenvalues of symmetric matrices (`tf.linalg.eigvalsh`)."""
    return jnp.linalg.eigvalsh(_of_lower(_square(tensor)))


@operation
def expm(input: Array) -> Any:
    """Return the exponentials of matrices (`tf.linalg.expm`)."""
    return jax.scipy.linalg.expm(input)


def _bounds(k: Any) -> tuple[int, int]:
    low, high = (k, k) if np.ndim(k) == 0 else tuple(k) * (2 if np.size(k) == 1 else 1)
    return int(low), int(high)


def _places(k: Any, rows: int, columns: int, align: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return where the numbers of diagonals stand in a matrix: rows, columns, and which of them there are.

    Args:
        k: The diagonal, or the lowest and the highest.
        rows: Of the matrix.
        columns: Of the matrix.
        align: Where shorter diagonals stand, of those above the main one and of those below it.

    Returns:
        Three arrays of shape (diagonals, length of the longest), the highest first.
    """
    low, high = _bounds(k)
    lengths = {each: min(rows + min(each, 0), columns - max(each, 0)) for each in range(low, high + 1)}
    if not low <= high or (min(lengths.values()) < 1 and rows and columns):
        raise refusal(f"Diagonals {k} were asked for in a matrix of {rows} rows and {columns} columns.", "Correct k.")
    longest = max(lengths.values())
    above, below = align.split("_")
    start = {e: longest - n if (above if e >= 0 else below) == "RIGHT" else 0 for e, n in lengths.items()}
    order = range(high, low - 1, -1)
    steps = np.array([np.arange(longest) - start[each] for each in order])
    there = np.array([(step >= 0) & (step < lengths[each]) for step, each in zip(steps, order, strict=True)])
    row = np.where(there, steps + np.array([max(-each, 0) for each in order])[:, None], 0)
    column = np.where(there, steps + np.array([max(each, 0) for each in order])[:, None], 0)
    return row, column, there


@operation
def diag(
    diagonal: Array,
    name: str = "diag",
    k: Any = 0,
    num_rows: int = -1,
    num_cols: int = -1,
    padding_value: Any = 0,
    align: str = "RIGHT_LEFT",
) -> Any:
    """Return matrices with these diagonals (`tf.linalg.diag`).

    Args:
        diagonal: The numbers of the diagonal; or several diagonals, one in each row, the highest first.
        name: No effect.
        k: The diagonal, positive above the main one, or (lowest, highest).
        num_rows: The number of rows; -1 for as many as needed.
        num_cols: The number of columns; -1 for as many as needed.
        padding_value: The value of all other elements.
        align: The place of shorter diagonals in their rows: "RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT" or "RIGHT_RIGHT".

    Example:
        >>> diag([1, 2]).tolist()
        [[1, 0], [0, 2]]
    """
    low, high = _bounds(k)
    several = np.ndim(k) != 0 and low != high
    diagonal = diagonal if several else diagonal[..., None, :]
    length = diagonal.shape[-1]
    rows, columns = int(num_rows), int(num_cols)
    if rows < 0 and columns < 0:
        rows = columns = length + max(abs(low) if high < 0 else 0, high if low > 0 else 0)
    rows = max(length - min(high, 0), columns - low if low > 0 else 0, 1) if rows < 0 else rows
    columns = length + max(low, 0) if columns < 0 else columns
    start = jnp.full((*diagonal.shape[:-2], rows, columns), padding_value, diagonal.dtype)
    return _with_diagonals(start, diagonal, k, align)


def _with_diagonals(matrix: jax.Array, diagonals: jax.Array, k: Any, align: str) -> jax.Array:
    row, column, there = _places(k, matrix.shape[-2], matrix.shape[-1], align)
    if diagonals.shape[-2:] != row.shape:
        raise refusal(
            f"Diagonals of shape {diagonals.shape[-2:]} were given, but the matrix has {row.shape}.",
            "Give diagonals of that shape.",
        )
    return matrix.at[..., row[there], column[there]].set(diagonals[..., there])


@operation
def diag_part(
    input: Array, name: str = "diag_part", k: Any = 0, padding_value: Any = 0, align: str = "RIGHT_LEFT"
) -> Any:
    """Return the diagonals of matrices (`tf.linalg.diag_part`); the arguments are those of `diag`."""
    row, column, there = _places(k, input.shape[-2], input.shape[-1], align)
    found = jnp.where(there, input[..., row, column], jnp.asarray(padding_value, input.dtype))
    return found if np.ndim(k) != 0 and len(row) > 1 else found[..., 0, :]


@operation
def set_diag(input: Array, diagonal: Array, name: str = "set_diag", k: Any = 0, align: str = "RIGHT_LEFT") -> Any:
    """Return matrices with other diagonals (`tf.linalg.set_diag`); the arguments are those of `diag`."""
    low, high = _bounds(k)
    return _with_diagonals(input, diagonal if np.ndim(k) != 0 and low != high else diagonal[..., None, :], k, align)


@operation
def tensor_diag(diagonal: Array) -> Any:
    """Return a tensor of twice as many axes, with the elements on its diagonal (`tf.linalg.tensor_diag`).

    Example:
        >>> tensor_diag([[1, 2]]).shape
        (1, 2, 1, 2)
    """
    return diag(diagonal.reshape(-1)).reshape(diagonal.shape * 2)


@operation
def tensor_diag_part(input: Any) -> Any:
    """Return the elements on the diagonal of a tensor, as `tensor_diag` makes it (`tf.linalg.tensor_diag_part`).

    Raises:
        InputError: The shape does not consist of the same sizes twice.
    """
    x = _matrix(input)
    half = x.ndim // 2
    if not x.ndim or x.shape[:half] != x.shape[half:]:
        raise refusal(
            f"tensor_diag_part was given shape {x.shape}.",
            "Give a tensor whose shape has the same sizes twice, such as (2, 3, 2, 3).",
        )
    size = int(np.prod(x.shape[:half]))
    return jnp.diagonal(x.reshape(size, size)).reshape(x.shape[:half])


@operation
def band_part(input: Array, num_lower: Any, num_upper: Any) -> Any:
    """Return matrices with zeros outside a band around the diagonal (`tf.linalg.band_part`).

    Args:
        input: A tensor of shape (..., rows, columns).
        num_lower: The number of diagonals to keep below the main one; negative for all.
        num_upper: The number of diagonals to keep above it.

    Example:
        >>> band_part([[1, 1], [1, 1]], -1, 0).tolist()
        [[1, 0], [1, 1]]
    """
    if num_lower > input.shape[-2] or num_upper > input.shape[-1]:
        raise refusal(
            f"band_part was given num_lower={num_lower} and num_upper={num_upper} for shape {input.shape}.",
            "Give no more diagonals than the matrix has.",
        )
    below = np.arange(input.shape[-2])[:, None] - np.arange(input.shape[-1])
    keeps = ((num_lower < 0) | (below <= num_lower)) & ((num_upper < 0) | (-below <= num_upper))
    return jnp.where(keeps, input, jnp.zeros_like(input))


@operation
def normalize(tensor: Array, ord: Any = "euclidean", axis: Any = None) -> Any:
    """Return a tensor divided by its norm, and the norm (`tf.linalg.normalize`)."""
    length = norm(tensor, ord, axis, keepdims=True)
    return tensor / length, length
