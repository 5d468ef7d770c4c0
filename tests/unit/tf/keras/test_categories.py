"""Classes as vectors: what tf-keras returns."""

from __future__ import annotations

import numpy as np
import pytest

import stratagem.tf as tf


@pytest.mark.parametrize("dtype", ["float32", "uint8", tf.float16])
def test_dtype_and_shape(dtype: object) -> None:
    given = {} if dtype == "float32" else {"dtype": dtype}
    vectors = tf.keras.utils.to_categorical(np.array([[1], [0]]), num_classes=3, **given)
    assert vectors.dtype == np.dtype(dtype)  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert vectors.tolist() == [[0, 1, 0], [1, 0, 0]]
