"""Functions of Keras 2's backend `K` whose arguments or defaults are not those of `keras.ops`.

They compute by `keras.ops`, so that they take the symbolic tensors of a functional model too. Source of the semantics:
https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/keras/backend
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import keras
from keras import ops


def _of_two(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def call(x: Any, y: Any) -> Any:
        return function(x, y)

    call.__name__, call.__doc__ = function.__name__, f"Return `keras.ops.{function.__name__}(x, y)`."
    return call


equal: Final = _of_two(ops.equal)
greater: Final = _of_two(ops.greater)
greater_equal: Final = _of_two(ops.greater_equal)
less: Final = _of_two(ops.less)
less_equal: Final = _of_two(ops.less_equal)
maximum: Final = _of_two(ops.maximum)
minimum: Final = _of_two(ops.minimum)
not_equal: Final = _of_two(ops.not_equal)


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = "int32") -> Any:
    """Return numbers at equal distances."""
    return ops.arange(start, stop, step, dtype=dtype)


def bias_add(x: Any, bias: Any, data_format: str | None = None) -> Any:
    """Return a tensor with a bias added to each channel."""
    first = (data_format or keras.config.image_data_format()) == "channels_first"
    if len(bias.shape) == 1 and first and len(x.shape) > 2:
        bias = ops.reshape(bias, (-1, *(1 for _ in x.shape[2:])))
    return x + bias


def batch_normalization(
    x: Any, mean: Any, var: Any, beta: Any, gamma: Any, axis: int = -1, epsilon: float = 1e-3
) -> Any:
    """Return a tensor brought to mean `beta` and deviation `gamma`."""
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


def concatenate(tensors: Sequence[Any], axis: int = -1) -> Any:
    """Return tensors one after another along an axis, the last."""
    return ops.concatenate(tensors, axis=axis)


def constant(value: Any, dtype: Any = None, shape: Any = None, name: str | None = None) -> Any:
    """Return a tensor of a value."""
    made: Any = ops.convert_to_tensor(value, dtype or keras.config.floatx())
    return made if shape is None else ops.broadcast_to(made, shape) if made.size == 1 else ops.reshape(made, shape)


def cumsum(x: Any, axis: int = 0) -> Any:
    """Return the sums up to each element."""
    return ops.cumsum(x, axis=axis)


def dtype(x: Any) -> str:
    """Return the name of a tensor's dtype."""
    return keras.backend.standardize_dtype(x.dtype)


def expand_dims(x: Any, axis: int = -1) -> Any:
    """Return a tensor with an axis of size 1 more."""
    return ops.expand_dims(x, axis)


def eye(size: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Return a matrix with ones from its upper left to its lower right corner."""
    rows, columns = size if isinstance(size, list | tuple) else (size, size)
    return ops.eye(rows, columns, dtype=dtype or keras.config.floatx())


def in_top_k(predictions: Any, targets: Any, k: int) -> Any:
    """Return whether each row's class is among its `k` greatest predictions."""
    return ops.in_top_k(targets, predictions, k)


def is_sparse(tensor: Any) -> bool:
    """Return False: there are no sparse tensors here."""
    return False


def one_hot(indices: Any, num_classes: int) -> Any:
    """Return rows of zeros with a one where each index says."""
    return ops.one_hot(indices, num_classes, dtype=keras.config.floatx())


def ones(shape: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Return a tensor of ones."""
    return ops.ones(shape, dtype or keras.config.floatx())


def ones_like(x: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Return a tensor of ones as large as another."""
    return ops.ones_like(x, dtype=dtype)


def pow(x: Any, a: Any) -> Any:
    """Return x to the power a."""
    return ops.power(x, a)


def relu(x: Any, alpha: float = 0.0, max_value: float | None = None, threshold: float = 0.0) -> Any:
    """Return a tensor with its negative elements set to 0, or times `alpha` (`keras.activations.relu`)."""
    return keras.activations.relu(x, negative_slope=alpha, max_value=max_value, threshold=threshold)


def repeat(x: Any, n: int) -> Any:
    """Return each row of a matrix `n` times, on a new axis after the first."""
    return ops.repeat(ops.expand_dims(x, 1), n, axis=1)


def repeat_elements(x: Any, rep: int, axis: int) -> Any:
    """Return a tensor with each element along an axis so many times."""
    return ops.repeat(x, rep, axis=axis)


def reshape(x: Any, shape: Any) -> Any:
    """Return the elements of a tensor in another shape."""
    return ops.reshape(x, shape)


def reverse(x: Any, axes: Any) -> Any:
    """Return a tensor with its elements in the other order along some axes."""
    return ops.flip(x, axis=axes)


def round(x: Any) -> Any:
    """Return the nearest whole numbers, of halves the even one."""
    return ops.round(x)


def squeeze(x: Any, axis: int) -> Any:
    """Return a tensor without an axis of size 1."""
    return ops.squeeze(x, axis)


def stop_gradient(variables: Any) -> Any:
    """Return a tensor, or a list of them, that derivatives take for constant."""
    if isinstance(variables, list | tuple):
        return [ops.stop_gradient(each) for each in variables]
    return ops.stop_gradient(variables)


def temporal_padding(x: Any, padding: tuple[int, int] = (1, 1)) -> Any:
    """Return sequences with zeros before and after."""
    return ops.pad(x, ((0, 0), tuple(padding), (0, 0)))


def tile(x: Any, n: Any) -> Any:
    """Return a tensor several times over along each axis."""
    return ops.tile(x, n)


def transpose(x: Any) -> Any:
    """Return a tensor with its axes in the other order."""
    return ops.transpose(x)


def zeros(shape: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Return a tensor of zeros."""
    return ops.zeros(shape, dtype or keras.config.floatx())


def zeros_like(x: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Return a tensor of zeros as large as another."""
    return ops.zeros_like(x, dtype=dtype)
