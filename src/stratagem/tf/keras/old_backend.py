"""Functions of Keras 2's backend `K` that are not `keras.ops` by another name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from keras import ops

from stratagem.core.errors import UsageError
from stratagem.tf.tensors import reductions


def argmax(x: Any, axis: int = -1) -> Any:
    """Return where along an axis the greatest element stands."""
    return reductions.argmax(x, axis)


def argmin(x: Any, axis: int = -1) -> Any:
    """Return where along an axis the least element stands."""
    return reductions.argmin(x, axis)


def cumprod(x: Any, axis: int = 0) -> Any:
    """Return the products up to each element."""
    return reductions.cumprod(x, axis)


def prod(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the product of a tensor's elements."""
    return reductions.reduce_prod(x, axis, keepdims)


def sqrt(x: Any) -> Any:
    """Return the root, 0 of negative numbers."""
    return ops.sqrt(ops.clip(x, 0.0, float("inf")))


def batch_dot(x: Any, y: Any, axes: int | Sequence[int] | None = None) -> Any:
    """Return the products of matrices or vectors of a batch, example by example (`K.batch_dot`).

    Args:
        x: Of shape (batch, ...), two axes or more.
        y: Likewise.
        axes: Which axis of each is summed over; None for the last of `x` and the last but one of `y`.

    Example:
        >>> batch_dot(np.ones((2, 3)), np.ones((2, 3)), axes=1).shape
        (2, 1)
    """
    if axes is None:
        axes = (x.ndim - 1, max(1, y.ndim - 2))
    first, second = (axes, axes) if isinstance(axes, int) else axes
    product = jax.vmap(lambda a, b: jnp.tensordot(a, b, axes=((first - 1,), (second - 1,))))(x, y)
    return product[:, None] if product.ndim == 1 else product


def batch_flatten(x: Any) -> Any:
    """Return each example as one vector: shape (batch, elements)."""
    return ops.reshape(x, (-1, int(np.prod(x.shape[1:]))))


def get_value(x: Any) -> Any:
    """Return the value of a variable or tensor as NumPy's (`K.get_value`)."""
    return np.asarray(ops.convert_to_tensor(x))[()]


def batch_get_value(tensors: Sequence[Any]) -> list[Any]:
    """Return the values of variables or tensors."""
    return [get_value(tensor) for tensor in tensors]


def set_value(x: Any, value: Any) -> None:
    """Give a variable a value: `K.set_value(optimizer.lr, 0.01)` (`K.set_value`).

    Raises:
        UsageError: It is not a variable: the learning rate of an optimizer with a schedule.
    """
    if not isinstance(x, keras.Variable):
        raise UsageError(
            f"set_value was given a {type(x).__name__}, not a variable.",
            "A learning rate that is a schedule cannot be set: make the optimizer with a number.",
        )
    x.assign(value)


def batch_set_value(tuples: Sequence[tuple[Any, Any]]) -> None:
    """Give variables values: pairs of a variable and its value."""
    for variable, value in tuples:
        set_value(variable, value)


def update(x: Any, new_x: Any) -> Any:
    """Assign to a variable."""
    return x.assign(new_x)


def update_add(x: Any, increment: Any) -> Any:
    """Add to a variable."""
    return x.assign_add(increment)


def update_sub(x: Any, decrement: Any) -> Any:
    """Subtract from a variable."""
    return x.assign_sub(decrement)


def variable(value: Any, dtype: str | None = None, name: str | None = None, constraint: Any = None) -> keras.Variable:
    """Return a new variable."""
    return keras.Variable(value, dtype=dtype, name=name)


def binary_crossentropy(target: Any, output: Any, from_logits: bool = False) -> Any:
    """Return the cross-entropy of each element."""
    return ops.binary_crossentropy(target, output, from_logits=from_logits)


def categorical_crossentropy(target: Any, output: Any, from_logits: bool = False, axis: int = -1) -> Any:
    """Return the cross-entropy of each row of probabilities."""
    return ops.categorical_crossentropy(target, output, from_logits=from_logits, axis=axis)


def sparse_categorical_crossentropy(
    target: Any, output: Any, from_logits: bool = False, axis: int = -1, ignore_class: int | None = None
) -> Any:
    """Return the cross-entropy of each row of probabilities with a class; 0 for a class to ignore."""
    return keras.losses.sparse_categorical_crossentropy(target, output, from_logits, ignore_class, axis)


def clip(x: Any, min_value: Any, max_value: Any) -> Any:
    """Return a tensor with its elements held between two bounds."""
    return ops.clip(x, min_value, max_value)


def count_params(x: Any) -> int:
    """Return the number of elements."""
    return int(np.prod(x.shape))


def dot(x: Any, y: Any) -> Any:
    """Return the product over the last axis of `x` and the last but one of `y`."""
    return ops.dot(x, y)


def dropout(x: Any, level: float, noise_shape: Any = None, seed: Any = None) -> Any:
    """Return a tensor with a part of its elements set to zero, the others scaled up."""
    return keras.random.dropout(x, level, noise_shape, seed)


def flatten(x: Any) -> Any:
    """Return a tensor as one vector."""
    return ops.ravel(x)


def gather(reference: Any, indices: Any) -> Any:
    """Return rows of a tensor."""
    return ops.take(reference, indices, axis=0)


def hard_sigmoid(x: Any) -> Any:
    """Return Keras 2's piecewise sigmoid, `0.2 * x + 0.5` between 0 and 1; that of Keras 3 has the slope 1/6."""
    return ops.clip(0.2 * x + 0.5, 0.0, 1.0)


def int_shape(x: Any) -> tuple[int | None, ...]:
    """Return the shape as a tuple; None where it is not known."""
    return tuple(x.shape)


def l2_normalize(x: Any, axis: int | None = None) -> Any:
    """Return a tensor divided by its length along an axis."""
    squares = ops.sum(ops.square(x), axis=axis, keepdims=True)
    return x / ops.sqrt(ops.maximum(squares, 1e-12))


def permute_dimensions(x: Any, pattern: Sequence[int]) -> Any:
    """Return a tensor with its axes in another order."""
    return ops.transpose(x, pattern)


def print_tensor(x: Any, message: str = "", summarize: int = 3) -> Any:
    """Print a tensor each time it is computed, and return it."""
    jax.debug.print(message.replace("{", "{{").replace("}", "}}") + " {}", x)
    return x


def random_normal(
    shape: Sequence[int], mean: float = 0.0, stddev: float = 1.0, dtype: Any = None, seed: Any = None
) -> Any:
    """Return numbers of a normal distribution."""
    return keras.random.normal(shape, mean, stddev, dtype, seed)


def random_uniform(
    shape: Sequence[int], minval: float = 0.0, maxval: float = 1.0, dtype: Any = None, seed: Any = None
) -> Any:
    """Return numbers evenly spread between two bounds."""
    return keras.random.uniform(shape, minval, maxval, dtype, seed)


def truncated_normal(
    shape: Sequence[int], mean: float = 0.0, stddev: float = 1.0, dtype: Any = None, seed: Any = None
) -> Any:
    """Return numbers of a normal distribution within two standard deviations."""
    return keras.random.truncated_normal(shape, mean, stddev, dtype, seed)


def switch(condition: Any, then_expression: Any, else_expression: Any) -> Any:
    """Return one or the other, element by element; of functions, what the chosen one returns."""
    if callable(then_expression) and callable(else_expression):
        chosen: Callable[..., Any] = ops.cond
        return chosen(condition, then_expression, else_expression)
    return ops.where(condition, then_expression, else_expression)


def learning_phase() -> Any:
    """Refuse: a layer is told by an argument whether it trains.

    Raises:
        UsageError: Always.
    """
    raise UsageError(
        "learning_phase() was asked for.",
        "There is no global phase in Keras 3: what it returned would not be what the layers do.",
        "Take `training` as an argument: `def call(self, inputs, training=False)`.",
    )


def set_learning_phase(value: Any) -> None:
    """Refuse: a layer is told by an argument whether it trains.

    Raises:
        UsageError: Always.
    """
    raise UsageError(
        f"set_learning_phase({value!r}) was called.",
        "There is no global phase in Keras 3: Dropout and BatchNormalization would not hear of it.",
        "Write model(x, training=True), or layer.trainable = False.",
    )


def manual_variable_initialization(value: bool) -> None:
    """Do nothing: variables have their values when they are made."""
