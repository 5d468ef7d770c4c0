"""`tf.linalg`: linear algebra."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {
    "adjoint": "stratagem.tf.tensors.matrices:adjoint",
    "band_part": "stratagem.tf.tensors.matrices:band_part",
    "cholesky": "stratagem.tf.tensors.matrices:cholesky",
    "cholesky_solve": "stratagem.tf.tensors.matrices:cholesky_solve",
    "cross": "stratagem.tf.tensors.products:cross",
    "det": "stratagem.tf.tensors.matrices:det",
    "diag": "stratagem.tf.tensors.matrices:diag",
    "diag_part": "stratagem.tf.tensors.matrices:diag_part",
    "eigh": "stratagem.tf.tensors.matrices:eigh",
    "eigvalsh": "stratagem.tf.tensors.matrices:eigvalsh",
    "einsum": "stratagem.tf.tensors.products:einsum",
    "expm": "stratagem.tf.tensors.matrices:expm",
    "eye": "stratagem.tf.tensors.creation:eye",
    "global_norm": "stratagem.tf.tensors.norms:global_norm",
    "inv": "stratagem.tf.tensors.matrices:inv",
    "l2_normalize": "stratagem.tf.tensors.neural:l2_normalize",
    "logdet": "stratagem.tf.tensors.matrices:logdet",
    "lstsq": "stratagem.tf.tensors.matrices:lstsq",
    "lu": "stratagem.tf.tensors.factors:lu",
    "lu_matrix_inverse": "stratagem.tf.tensors.factors:lu_matrix_inverse",
    "lu_reconstruct": "stratagem.tf.tensors.factors:lu_reconstruct",
    "lu_solve": "stratagem.tf.tensors.factors:lu_solve",
    "matmul": "stratagem.tf.tensors.products:matmul",
    "matrix_rank": "stratagem.tf.tensors.factors:matrix_rank",
    "matrix_transpose": "stratagem.tf.tensors.matrices:matrix_transpose",
    "matvec": "stratagem.tf.tensors.matrices:matvec",
    "norm": "stratagem.tf.tensors.norms:norm",
    "normalize": "stratagem.tf.tensors.matrices:normalize",
    "pinv": "stratagem.tf.tensors.matrices:pinv",
    "qr": "stratagem.tf.tensors.matrices:qr",
    "set_diag": "stratagem.tf.tensors.matrices:set_diag",
    "slogdet": "stratagem.tf.tensors.matrices:slogdet",
    "solve": "stratagem.tf.tensors.matrices:solve",
    "svd": "stratagem.tf.tensors.matrices:svd",
    "tensor_diag": "stratagem.tf.tensors.matrices:tensor_diag",
    "tensor_diag_part": "stratagem.tf.tensors.matrices:tensor_diag_part",
    "tensordot": "stratagem.tf.tensors.products:tensordot",
    "trace": "stratagem.tf.tensors.matrices:trace",
    "triangular_solve": "stratagem.tf.tensors.matrices:triangular_solve",
    "tridiagonal_matmul": "stratagem.tf.tensors.factors:tridiagonal_matmul",
    "tridiagonal_solve": "stratagem.tf.tensors.factors:tridiagonal_solve",
}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
