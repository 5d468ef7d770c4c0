"""What `stratagem.tf` adds to the arrays of JAX and NumPy and to Keras's variables: the methods of `tf.Tensor`.

The only private name: the class of JAX's arrays, `jaxlib._jax.ArrayImpl`. Not reached through an array, which would
start JAX's devices: a strategy of several workers must come before that. Checked on JAX 0.10.2.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from jax._src.array import ArrayImpl
from jax.core import Tracer

from stratagem.core.eager import EagerArray
from stratagem.core.errors import UsageError, explain
from stratagem.replica.tracing import is_traced
from stratagem.tf.tensors.making import ensure_shape
from stratagem.tf.tensors.shapes import TensorShape


def _numpy(array: Any) -> Any:
    """Return the values as a NumPy array (`tf.Tensor.numpy`)."""
    return np.asarray(array)[()]


def _numpy_of_traced(tracer: Any) -> Any:
    """Return the values if they are known, as under a tape; else explain that there are none yet."""
    if not is_traced(tracer):
        return _numpy(tracer)
    raise UsageError(
        explain(
            f".numpy() was called on a tensor of shape {tracer.shape} in strategy.run or a compiled function.",
            "The function is being compiled: its tensors have no values yet.",
            "Return the tensor and call .numpy() outside, or print it with tf.print(tensor).",
        )
    )


def _get_shape(array: Any) -> TensorShape:
    """Return the shape (`tf.Tensor.get_shape`)."""
    return TensorShape(array.shape)


def _set_shape(array: Any, shape: Any) -> None:
    """Check the shape (`tf.Tensor.set_shape`), which is always known."""
    ensure_shape(array, shape)


def _read_value(variable: Any) -> Any:
    """Return the value (`tf.Variable.read_value`)."""
    return variable.value


def install() -> None:
    """Give the classes their methods."""
    arrays: Any = ArrayImpl
    tracers: Any = Tracer
    arrays.numpy, tracers.numpy, keras.Variable.numpy = _numpy, _numpy_of_traced, _numpy
    kinds: tuple[Any, ...] = (arrays, tracers, EagerArray, keras.Variable, keras.KerasTensor)
    for kind in kinds:
        kind.get_shape, kind.set_shape = _get_shape, _set_shape
    keras.Variable.read_value = _read_value
    keras.Variable.initialized_value = _read_value


install()
