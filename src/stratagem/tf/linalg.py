"""`tf.linalg`: linear algebra."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {
    "adjoint": "stratagem.tf.tensors.matrices:adjoint",
    "band_part": "stratagem.tf.tensors.matrices:band_part",
    "cholesky": "stratagem.tf.tensors.matrices:cholesky",
    "cholesky_solve": "stratagem.tf.tensors.matrices:cholesky_solve",
    "cross": "stratagem.tf.tensors.reductions:cross",
    "det": "stratagem.tf.tensors.matrices:det",
    "diag": "stratagem.tf.tensors.matrices:diag",
    "diag_part": "stratagem.tf.tensors.matrices:diag_part",
    "eigh": "stratagem.tf.tensors.matrices:eigh",
    "eigvalsh": "stratagem.tf.tensors.matrices:eigvalsh",
    "einsum": "stratagem.tf.tensors.reductions:einsum",
    "expm": "stratagem.tf.tensors.matrices:expm",
    "eye": "stratagem.tf.tensors.making:eye",
    "global_norm": "stratagem.tf.tensors.reductions:global_norm",
    "inv": "stratagem.tf.tensors.matrices:inv",
    "l2_normalize": "stratagem.tf.tensors.neural:l2_normalize",
    "logdet": "stratagem.tf.tensors.matrices:logdet",
    "lstsq": "stratagem.tf.tensors.matrices:lstsq",
    "matmul": "stratagem.tf.tensors.reductions:matmul",
    "matrix_transpose": "stratagem.tf.tensors.matrices:matrix_transpose",
    "matvec": "stratagem.tf.tensors.matrices:matvec",
    "norm": "stratagem.tf.tensors.reductions:norm",
    "normalize": "stratagem.tf.tensors.matrices:normalize",
    "pinv": "stratagem.tf.tensors.matrices:pinv",
    "qr": "stratagem.tf.tensors.matrices:qr",
    "set_diag": "stratagem.tf.tensors.matrices:set_diag",
    "slogdet": "stratagem.tf.tensors.matrices:slogdet",
    "solve": "stratagem.tf.tensors.matrices:solve",
    "svd": "stratagem.tf.tensors.matrices:svd",
    "tensor_diag": "stratagem.tf.tensors.matrices:diag",
    "tensor_diag_part": "stratagem.tf.tensors.matrices:diag_part",
    "tensordot": "stratagem.tf.tensors.reductions:tensordot",
    "trace": "stratagem.tf.tensors.matrices:trace",
    "triangular_solve": "stratagem.tf.tensors.matrices:triangular_solve",
}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
