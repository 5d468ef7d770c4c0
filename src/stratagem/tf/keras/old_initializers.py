"""Initializers of constants that take lists as TensorFlow does: the weights' numbers in their order, or one for all.

Keras 3 broadcasts a list to the shape. Source of the semantics:
https://www.tensorflow.org/api_docs/python/tf/constant_initializer
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from stratagem.core.errors import explain
from stratagem.tf.tensors.creation import constant
from stratagem.tf.tensors.operation import integers


def _filled(value: Any, shape: Any, dtype: Any) -> Any:
    sizes, count = integers(shape), int(np.size(value))
    if count not in (1, int(np.prod(sizes))):
        raise TypeError(
            explain(
                f"A constant of {count} numbers cannot fill the shape {sizes}.",
                "It is not defined which number goes where; TensorFlow refuses it too.",
                "Give as many numbers as the shape has elements, or one.",
            )
        )
    return constant(value, dtype, sizes)


class ConstantInitializer(keras.initializers.Constant):
    """An initializer of given numbers (`tf.constant_initializer`).

    Args:
        value: One number, or as many numbers as the weights will have, in a list of any depth or an array.
        support_partition: No effect.

    Raises:
        TypeError: When it is called: there are fewer or more numbers than the shape has elements.

    Example:
        >>> ConstantInitializer([0.0, 1.0, 2.0, 3.0])(shape=(2, 2)).tolist()
        [[0.0, 1.0], [2.0, 3.0]]
    """

    def __init__(self, value: Any = 0, support_partition: bool = False) -> None:
        super().__init__(value)

    def __call__(self, shape: Any, dtype: Any = None, **kwargs: Any) -> Any:
        return _filled(self.value, shape, dtype)


class OldConstantInitializer(ConstantInitializer):
    """The same with its own dtype (`tf.compat.v1.constant_initializer`).

    Args:
        value: One number, or as many numbers as the weights will have.
        dtype: The dtype of the weights if a call gives none.
        verify_shape: Whether the numbers must have the shape of the weights.
    """

    def __init__(self, value: Any = 0, dtype: Any = "float32", verify_shape: bool = False) -> None:
        super().__init__(value)
        self.dtype, self.verify_shape = dtype, verify_shape

    def __call__(self, shape: Any, dtype: Any = None, **kwargs: Any) -> Any:
        if self.verify_shape and np.shape(self.value) != integers(shape):
            raise TypeError(
                explain(
                    f"A constant of shape {np.shape(self.value)} cannot fill the shape {integers(shape)}.",
                    "verify_shape requires the same shape.",
                    "Give the numbers in the shape of the weights, or leave verify_shape out.",
                )
            )
        return super().__call__(shape, self.dtype if dtype is None else dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "dtype": str(self.dtype), "verify_shape": self.verify_shape}


def filling_in_order(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `Constant.__call__` of Keras: a list gives the numbers in their order."""

    @functools.wraps(original)
    def call(self: Any, shape: Any, dtype: Any = None, **kwargs: Any) -> Any:
        if np.ndim(self.value) == 0:
            return original(self, shape, dtype)
        return _filled(self.value, shape, dtype or keras.config.floatx())

    return call
