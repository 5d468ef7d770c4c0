"""What all operations on tensors share."""

from __future__ import annotations

import importlib
import inspect
import pickle
from typing import Any

import keras
import numpy as np
import pytest

import stratagem.tf as tf
from stratagem.tf.tensors.operation import axes, integers, operands, operation, xp

NAMESPACES = ("tf", "tf.bitwise", "tf.linalg", "tf.math", "tf.nn")


@operation
def twice(x: Any, factor: Any = 2.0) -> Any:
    """Return a tensor times a factor."""
    return x * factor


def test_an_operation_takes_a_name() -> None:
    as_programs_see_it: Any = twice
    assert as_programs_see_it(3.0, name="product") == as_programs_see_it(3.0, 2.0, "product") == 6.0
    assert list(inspect.signature(twice).parameters) == ["x", "factor", "name"]
    with pytest.raises(TypeError, match="4 were given"):
        as_programs_see_it(3.0, 2.0, "product", "more")


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_all_operations_take_a_name(namespace: str) -> None:
    module = importlib.import_module(f"stratagem.{namespace}")
    functions = [getattr(module, name) for name in dir(module) if not name.startswith("_")]
    wrapped = [function for function in functions if hasattr(function, "__wrapped__")]
    operations = [function for function in wrapped if not inspect.isgeneratorfunction(function.__wrapped__)]  # contexts
    assert len(operations) > 5
    without = [f.__name__ for f in operations if not {"name", "kwargs"} & set(inspect.signature(f).parameters)]
    assert without == []


def test_an_operation_is_pickled_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(tf.math.log)) is tf.math.log
    assert tf.math.log.__module__ == "stratagem.tf.tensors.elementwise"


def test_an_operation_takes_symbols_of_keras() -> None:
    inputs = keras.Input((2,))
    model = keras.Model(inputs, tf.math.log(inputs, name="logarithm"))
    np.testing.assert_allclose(model(np.ones((1, 2), np.float32)), [[0.0, 0.0]])


def test_numbers_of_python_take_the_dtype_of_the_tensor_beside_them() -> None:
    x, factor = operands(tf.constant([1, 2], "int8"), 3)
    assert (x * factor).dtype == "int8"
    assert [value.dtype.name for value in operands(1, 2.0)] == ["int32", "float32"]


def test_shapes_and_axes_may_be_tensors() -> None:
    assert integers(tf.constant([2, 3])) == (2, 3)
    assert integers([None, np.int64(4)]) == (-1, 4)
    assert axes(tf.constant([0, 1])) == (0, 1)
    assert axes(None) is None


def test_jax_computes_outside_functions_of_datasets() -> None:
    libraries = []
    dataset = tf.data.Dataset.range(1).map(lambda x: libraries.append(xp(x)) or x)
    list(dataset)
    assert libraries[0] is np
    assert xp(tf.constant(1.0)) is not np
