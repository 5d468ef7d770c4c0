"""Dtypes as strings that know TensorFlow's properties."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import stratagem.tf as tf
from stratagem.tf.dtypes import DType, as_dtype


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (float, "float32"),
        (int, "int32"),
        (str, "string"),
        ("double", "float64"),
        ("half", "float16"),
        (np.dtype("S3"), "string"),
        (np.int8, "int8"),
        (np.dtype("int64"), "int64"),  # equal to `int`, as float64 is to `float`
        (np.dtype("float64"), "float64"),
        (jnp.bfloat16, "bfloat16"),
        (tf.uint16, "uint16"),
    ],
)
def test_names_of_a_dtype(value: object, name: str) -> None:
    assert as_dtype(value) == name
    assert isinstance(as_dtype(value), DType)


@pytest.mark.parametrize("value", ["floaty", object(), np.dtype("M8[s]")])
def test_what_is_no_dtype_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match=r"is not a dtype\.\n  What to do: Write tf\.float32"):
        as_dtype(value)


def test_properties() -> None:
    assert [kind.is_integer for kind in (tf.int8, tf.float32, tf.bool, tf.string)] == [True, False, False, False]
    assert [kind.is_floating for kind in (tf.bfloat16, tf.float64, tf.int32)] == [True, True, False]
    assert (tf.uint8.is_unsigned, tf.int8.is_unsigned, tf.bool.is_bool) == (True, False, True)
    assert (tf.complex64.is_complex, tf.complex64.real_dtype) == (True, "float32")
    assert (tf.int8.min, tf.uint8.max, tf.float32.max) == (-128, 255, np.finfo(np.float32).max)
    assert (tf.uint8.limits, tf.float16.limits) == ((0, 255), (0, 1))
    assert [kind.size for kind in (tf.float64, tf.bfloat16, tf.string)] == [8, 2, 1]
    assert repr(tf.int32) == "tf.int32"
    assert tf.int32.is_compatible_with("int32")
    assert (tf.bool.limits, tf.int8.is_quantized) == ((0, True), False)


@pytest.mark.parametrize("kind", [tf.bool, tf.complex64, tf.string])
def test_what_has_no_bounds_says_so(kind: DType) -> None:
    for bound in ("max", "min"):
        with pytest.raises(TypeError, match=f"tf.{kind} was asked for its least or greatest value"):
            getattr(kind, bound)


@pytest.mark.parametrize("value", [jnp.ones(2), np.ones(2, "float32"), tf.Variable([1.0]), tf.constant([1.0])])
def test_bounds_of_the_dtype_of_a_value(value: Any) -> None:
    assert tf.as_dtype(value.dtype).max == np.finfo(np.float32).max
    assert tf.as_dtype(value.dtype).limits == (0, 1)


def test_names_that_lie_elsewhere() -> None:
    assert tf.dtypes.cast is tf.cast
    assert np.dtype(tf.int16) == np.zeros(1, tf.int16).dtype
