"""Functions of Keras 2's backend `K` whose names, arguments or defaults are not those of `keras.ops`.

They compute by `keras.ops`, so that they take the symbolic tensors of a functional model too. Those that take the
arguments of another function in its order come first, a line each. Source of the semantics:
https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/keras/backend
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from keras import ops

from stratagem.core.errors import UsageError
from stratagem.data.sparse import SparseTensor
from stratagem.tf.keras import learning_phase as phase
from stratagem.tf.tensors import draws, reductions


def _like(name: str, function: Callable[..., Any], *arguments: str, **defaults: Any) -> Callable[..., Any]:
    """Return a function that calls another with its arguments in their order.

    Args:
        name: That of `K`.
        function: The other.
        *arguments: Names of the arguments without a default.
        **defaults: The others.
    """
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    optional = [inspect.Parameter(each, kind, default=default) for each, default in defaults.items()]
    signature = inspect.Signature([*(inspect.Parameter(each, kind) for each in arguments), *optional])

    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        return function(*given.args)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Return `{function.__name__}({', '.join(signature.parameters)})`."
    call.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
    return call


arange = _like("arange", ops.arange, "start", stop=None, step=1, dtype="int32")
argmax = _like("argmax", reductions.argmax, "x", axis=-1)
argmin = _like("argmin", reductions.argmin, "x", axis=-1)
binary_crossentropy = _like("binary_crossentropy", ops.binary_crossentropy, "target", "output", from_logits=False)
clip = _like("clip", ops.clip, "x", "min_value", "max_value")
concatenate = _like("concatenate", ops.concatenate, "tensors", axis=-1)
cumprod = _like("cumprod", reductions.cumprod, "x", axis=0)
cumsum = _like("cumsum", ops.cumsum, "x", axis=0)
dot = _like("dot", ops.dot, "x", "y")
dropout = _like("dropout", keras.random.dropout, "x", "level", noise_shape=None, seed=None)
equal = _like("equal", ops.equal, "x", "y")
expand_dims = _like("expand_dims", ops.expand_dims, "x", axis=-1)
flatten = _like("flatten", ops.ravel, "x")
greater = _like("greater", ops.greater, "x", "y")
greater_equal = _like("greater_equal", ops.greater_equal, "x", "y")
less = _like("less", ops.less, "x", "y")
less_equal = _like("less_equal", ops.less_equal, "x", "y")
maximum = _like("maximum", ops.maximum, "x", "y")
minimum = _like("minimum", ops.minimum, "x", "y")
not_equal = _like("not_equal", ops.not_equal, "x", "y")
permute_dimensions = _like("permute_dimensions", ops.transpose, "x", "pattern")
pow = _like("pow", ops.power, "x", "a")
prod = _like("prod", reductions.reduce_prod, "x", axis=None, keepdims=False)
repeat_elements = _like("repeat_elements", ops.repeat, "x", "rep", "axis")
reshape = _like("reshape", ops.reshape, "x", "shape")
reverse = _like("reverse", ops.flip, "x", "axes")
round = _like("round", ops.round, "x")
squeeze = _like("squeeze", ops.squeeze, "x", "axis")
tile = _like("tile", ops.tile, "x", "n")
transpose = _like("transpose", ops.transpose, "x")


def sqrt(x: Any) -> Any:
    """Return the square root; 0 for negative numbers."""
    return ops.sqrt(ops.clip(x, 0.0, float("inf")))


def batch_dot(x: Any, y: Any, axes: int | Sequence[int] | None = None) -> Any:
    """Return the products of matrices or vectors of each example in a batch (`K.batch_dot`).

    Args:
        x: A tensor of shape (batch, ...), with two or more axes.
        y: Another such tensor.
        axes: The axis of each that is summed; None for the last axis of `x` and the second-to-last of `y`.

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


def eval(x: Any) -> Any:
    """Return the value of a variable or tensor as NumPy's (`K.eval`)."""
    return get_value(x)


def function(inputs: Any, outputs: Any, updates: Any = None, name: str | None = None) -> Callable[[Any], Any]:
    """Return a function of arrays that computes symbolic tensors of a functional model (`K.function`).

    The function computes as in inference. It takes one array for each input, or a list of them, and returns NumPy
    arrays.

    Args:
        inputs: Symbolic tensors: `model.input`, `layer.output`.
        outputs: The tensors to compute. If this is a list, the function returns a list.
        updates: Only None is supported.
        name: No effect.

    Raises:
        UsageError: `updates` were given.

    Example:
        >>> inputs = keras.Input((2,))
        >>> hidden = keras.layers.ReLU()(inputs)
        >>> function([inputs], [hidden])([np.array([[-1.0, 2.0]])])[0].tolist()
        [[0.0, 2.0]]
    """
    if updates:
        raise UsageError(
            "K.function was given updates.",
            "There is no graph to run the updates, so they would be left out.",
            "Assign to the variables after the call: variable.assign(...).",
        )
    model = keras.Model(inputs, outputs)

    def compute(values: Any) -> Any:
        found = [np.asarray(each) for each in keras.tree.flatten(model(values, training=False))]
        return found if isinstance(outputs, list | tuple) else found[0]

    return compute


def batch_get_value(tensors: Sequence[Any]) -> list[Any]:
    """Return the values of variables or tensors."""
    return [get_value(tensor) for tensor in tensors]


def set_value(x: Any, value: Any) -> None:
    """Give a variable a value: `K.set_value(optimizer.lr, 0.01)` (`K.set_value`).

    Raises:
        UsageError: The argument is not a variable, as the learning rate of an optimizer with a schedule.
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


def categorical_crossentropy(target: Any, output: Any, from_logits: bool = False, axis: int = -1) -> Any:
    """Return the cross-entropy of each row of probabilities."""
    return ops.categorical_crossentropy(target, output, from_logits=from_logits, axis=axis)


def sparse_categorical_crossentropy(
    target: Any, output: Any, from_logits: bool = False, axis: int = -1, ignore_class: int | None = None
) -> Any:
    """Return the cross-entropy of each row of probabilities with a class; 0 for a class that is ignored."""
    return keras.losses.sparse_categorical_crossentropy(target, output, from_logits, ignore_class, axis)


def count_params(x: Any) -> int:
    """Return the number of elements."""
    return int(np.prod(x.shape))


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


def print_tensor(x: Any, message: str = "", summarize: int = 3) -> Any:
    """Print a tensor each time it is computed, and return it."""
    jax.debug.print(message.replace("{", "{{").replace("}", "}}") + " {}", x)
    return x


def random_normal(
    shape: Sequence[int], mean: float = 0.0, stddev: float = 1.0, dtype: Any = None, seed: Any = None
) -> Any:
    """Return numbers of a normal distribution."""
    return draws.normal(shape, mean, stddev, dtype or keras.config.floatx(), seed)


def random_uniform(
    shape: Sequence[int], minval: float = 0.0, maxval: float = 1.0, dtype: Any = None, seed: Any = None
) -> Any:
    """Return numbers evenly spread between two bounds."""
    return draws.uniform(shape, minval, maxval, dtype or keras.config.floatx(), seed)


def truncated_normal(
    shape: Sequence[int], mean: float = 0.0, stddev: float = 1.0, dtype: Any = None, seed: Any = None
) -> Any:
    """Return numbers of a normal distribution within two standard deviations."""
    return draws.truncated_normal(shape, mean, stddev, dtype or keras.config.floatx(), seed)


def switch(condition: Any, then_expression: Any, else_expression: Any) -> Any:
    """Return one of two tensors, element by element; for functions, the result of the chosen one."""
    if callable(then_expression) and callable(else_expression):
        chosen: Callable[..., Any] = ops.cond
        return chosen(condition, then_expression, else_expression)
    return ops.where(condition, then_expression, else_expression)


def bias_add(x: Any, bias: Any, data_format: str | None = None) -> Any:
    """Return a tensor with a bias added to each channel."""
    first = (data_format or keras.config.image_data_format()) == "channels_first"
    if len(bias.shape) == 1 and first and len(x.shape) > 2:
        bias = ops.reshape(bias, (-1, *(1 for _ in x.shape[2:])))
    return x + bias


def batch_normalization(
    x: Any, mean: Any, var: Any, beta: Any, gamma: Any, axis: int = -1, epsilon: float = 1e-3
) -> Any:
    """Return a tensor normalized to the mean `beta` and the deviation `gamma`."""
    sizes = [1] * len(x.shape)
    sizes[axis] = x.shape[axis]

    def along(part: Any) -> Any:
        return ops.reshape(part, sizes)

    scaled = (x - along(mean)) * ops.rsqrt(along(var) + epsilon)
    scaled = scaled if gamma is None else scaled * along(gamma)
    return scaled if beta is None else scaled + along(beta)


def cast_to_floatx(x: Any) -> Any:
    """Return a tensor in the dtype of `keras.config.floatx()`."""
    return ops.cast(x, keras.config.floatx())


def constant(value: Any, dtype: Any = None, shape: Any = None, name: str | None = None) -> Any:
    """Return a tensor of a value."""
    made: Any = ops.convert_to_tensor(value, dtype or keras.config.floatx())
    return made if shape is None else ops.broadcast_to(made, shape) if made.size == 1 else ops.reshape(made, shape)


def dtype(x: Any) -> str:
    """Return the name of a tensor's dtype."""
    return keras.backend.standardize_dtype(x.dtype)


def eye(size: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Return a matrix with ones from its upper left to its lower right corner."""
    rows, columns = size if isinstance(size, list | tuple) else (size, size)
    return ops.eye(rows, columns, dtype=dtype or keras.config.floatx())


def in_top_k(predictions: Any, targets: Any, k: int) -> Any:
    """Return whether each row's class is among its `k` greatest predictions."""
    return ops.in_top_k(targets, predictions, k)


def is_sparse(tensor: Any) -> bool:
    """Return whether a tensor is sparse."""
    return isinstance(tensor, SparseTensor)


def one_hot(indices: Any, num_classes: int) -> Any:
    """Return rows of zeros with a one at the index of each row."""
    return ops.one_hot(indices, num_classes, dtype=keras.config.floatx())


def ones(shape: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Return a tensor of ones."""
    return ops.ones(shape, dtype or keras.config.floatx())


def ones_like(x: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Return a tensor of ones with the shape of another."""
    return ops.ones_like(x, dtype=dtype)


def relu(x: Any, alpha: float = 0.0, max_value: float | None = None, threshold: float = 0.0) -> Any:
    """Return a tensor with its negative elements set to 0, or times `alpha` (`keras.activations.relu`)."""
    return keras.activations.relu(x, negative_slope=alpha, max_value=max_value, threshold=threshold)


def repeat(x: Any, n: int) -> Any:
    """Return each row of a matrix `n` times, on a new axis after the first."""
    return ops.repeat(ops.expand_dims(x, 1), n, axis=1)


def stop_gradient(variables: Any) -> Any:
    """Return a tensor, or a list of tensors, that derivatives treat as constant."""
    if isinstance(variables, list | tuple):
        return [ops.stop_gradient(each) for each in variables]
    return ops.stop_gradient(variables)


def temporal_padding(x: Any, padding: tuple[int, int] = (1, 1)) -> Any:
    """Return sequences with zeros before and after."""
    return ops.pad(x, ((0, 0), tuple(padding), (0, 0)))


def zeros(shape: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Return a tensor of zeros."""
    return ops.zeros(shape, dtype or keras.config.floatx())


def zeros_like(x: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Return a tensor of zeros with the shape of another."""
    return ops.zeros_like(x, dtype=dtype)


def learning_phase() -> Any:
    """Raise an error: an argument tells a layer whether it trains.

    Raises:
        UsageError: Always.
    """
    raise UsageError(
        "learning_phase() was called.",
        "Keras 3 has no global phase. The returned value would not say what the layers do.",
        "Take `training` as an argument: `def call(self, inputs, training=False)`.",
    )


def set_learning_phase(value: Any) -> None:
    """Let models that are called without `training` train, or not (`K.set_learning_phase`).

    `fit`, `evaluate` and `predict` say themselves whether they train. For a layer that is called
    directly, outside a model, only its argument counts.

    Args:
        value: Whether models train.

    Example:
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dropout(0.999, seed=1)])
        >>> x = np.ones((1, 1), np.float32)
        >>> before = model(x).tolist()
        >>> set_learning_phase(1)
        >>> before, model(x).tolist(), model(x, training=False).tolist()
        ([[1.0]], [[0.0]], [[1.0]])
        >>> set_learning_phase(0)
    """
    phase.choose(value)


def manual_variable_initialization(value: bool) -> None:
    """Do nothing: variables have their values when they are made."""
