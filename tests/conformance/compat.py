"""The only file of this suite that touches private parts of Keras."""

from __future__ import annotations

from keras.src.backend.common import dtypes


def keep_double_precision() -> None:
    """Let Keras compute in float64 where `floatx` says so.

    On JAX it takes means, `tanh` and more in float32 all the same; on TensorFlow it does not.
    """
    dtypes.BIT64_TO_BIT32_DTYPE["float64"] = "float64"
