"""Layers as functions, by their old names (`tf.compat.v1.layers`).

Each makes a Keras layer within the scopes that are open, and calls it. Variables are called as in TensorFlow 1:
`conv2d/kernel`, `conv2d_1/kernel`, `scope/dense/bias`. The classes of these names are Keras's.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/compat/v1/layers
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras.layers import AveragePooling1D as AveragePooling1D
from keras.layers import AveragePooling2D as AveragePooling2D
from keras.layers import AveragePooling3D as AveragePooling3D
from keras.layers import BatchNormalization as BatchNormalization
from keras.layers import Conv1D as Conv1D
from keras.layers import Conv2D as Conv2D
from keras.layers import Conv2DTranspose as Conv2DTranspose
from keras.layers import Conv3D as Conv3D
from keras.layers import Dense as Dense
from keras.layers import Dropout as Dropout
from keras.layers import Flatten as Flatten
from keras.layers import MaxPooling1D as MaxPooling1D
from keras.layers import MaxPooling2D as MaxPooling2D
from keras.layers import MaxPooling3D as MaxPooling3D
from keras.layers import SeparableConv1D as SeparableConv1D
from keras.layers import SeparableConv2D as SeparableConv2D

from stratagem.estimator.graph import find, joined, opened, unique_name
from stratagem.estimator.losses import REGULARIZATION_LOSSES
from stratagem.estimator.running_call import current_call

Kind = type[keras.layers.Layer]


def dense(inputs: Any, units: int, activation: Any = None, use_bias: bool = True, **options: Any) -> Any:
    """Return the outputs of a dense layer.

    Args:
        inputs: A tensor whose last axis contains the features.
        units: Size of the last axis of the result.
        activation: A function, or its name.
        use_bias: Whether to add a bias.
        options: `name`, `reuse`, and other arguments of `keras.layers.Dense`, such as `kernel_initializer`.
    """
    return _applied(Dense, "dense", inputs, options, units=int(units), activation=activation, use_bias=use_bias)


def _convolution(kind: Kind, name: str, what: str) -> Callable[..., Any]:
    def convolve(
        inputs: Any, filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid", **options: Any
    ) -> Any:
        sizes = {"filters": int(filters), "kernel_size": kernel_size, "strides": strides, "padding": padding.lower()}
        return _applied(kind, name, inputs, options, **sizes)

    convolve.__name__ = convolve.__qualname__ = name
    convolve.__doc__ = f"""Return the outputs of a {what}.

    Args:
        inputs: A tensor of shape (rows, ..., channels), or as `data_format` says.
        filters: Channels of the result.
        kernel_size: Size of the filters.
        strides: Steps between two places.
        padding: "valid" or "same".
        options: `data_format`, `dilation_rate`, `activation`, `name`, `reuse`, and other arguments of
            `keras.layers.{kind.__name__}`.
    """
    return convolve


def _pooling(kind: Kind, name: str, what: str) -> Callable[..., Any]:
    def pool(inputs: Any, pool_size: Any, strides: Any, padding: str = "valid", **options: Any) -> Any:
        sizes = {"pool_size": pool_size, "strides": strides, "padding": padding.lower()}
        return _applied(kind, name[:-2], inputs, options, **sizes)

    pool.__name__ = pool.__qualname__ = name
    pool.__doc__ = f"""Return {what}.

    Args:
        inputs: A tensor of shape (rows, ..., channels), or as `data_format` says.
        pool_size: Size of the windows.
        strides: Steps between two windows.
        padding: "valid" or "same".
        options: `data_format`, `name`.
    """
    return pool


conv1d = _convolution(Conv1D, "conv1d", "convolution over one axis")
conv2d = _convolution(Conv2D, "conv2d", "convolution of images")
conv3d = _convolution(Conv3D, "conv3d", "convolution over three axes")
conv2d_transpose = _convolution(Conv2DTranspose, "conv2d_transpose", "transposed convolution of images")
separable_conv1d = _convolution(
    SeparableConv1D, "separable_conv1d", "convolution over one axis, first of each channel alone"
)
separable_conv2d = _convolution(
    SeparableConv2D, "separable_conv2d", "convolution of images, first of each channel alone"
)
max_pooling1d = _pooling(MaxPooling1D, "max_pooling1d", "the greatest values of windows along one axis")
max_pooling2d = _pooling(MaxPooling2D, "max_pooling2d", "the greatest values of windows in images")
max_pooling3d = _pooling(MaxPooling3D, "max_pooling3d", "the greatest values of windows along three axes")
average_pooling1d = _pooling(AveragePooling1D, "average_pooling1d", "the means of windows along one axis")
average_pooling2d = _pooling(AveragePooling2D, "average_pooling2d", "the means of windows in images")
average_pooling3d = _pooling(AveragePooling3D, "average_pooling3d", "the means of windows along three axes")


def flatten(inputs: Any, name: str | None = None, data_format: str = "channels_last") -> Any:
    """Return the inputs with all axes but the first joined.

    Args:
        inputs: A tensor of two axes or more.
        name: Accepted as in TensorFlow.
        data_format: "channels_last" or "channels_first", which is transposed first.
    """
    return _applied(Flatten, "flatten", inputs, {"name": name}, data_format=data_format)


def dropout(
    inputs: Any,
    rate: float = 0.5,
    noise_shape: Any = None,
    seed: int | None = None,
    training: Any = False,
    **options: Any,
) -> Any:
    """Return the inputs; in training some of them are set to 0.

    Args:
        inputs: A tensor of any shape.
        rate: Fraction of the inputs that becomes 0.
        noise_shape: Shape of the random mask; along axes of size 1 it is the same.
        seed: Seed of the random mask.
        training: Whether the mode is training: `mode == ModeKeys.TRAIN`.
        options: `name`.
    """
    arguments: dict[str, Any] = {"rate": rate, "noise_shape": noise_shape, "seed": seed}
    return _applied(Dropout, "dropout", inputs, options, {"training": training}, **arguments)


def batch_normalization(
    inputs: Any, axis: int = -1, momentum: float = 0.99, epsilon: float = 1e-3, training: Any = False, **options: Any
) -> Any:
    """Return the inputs, normalized to mean 0 and variance 1 in each channel.

    In training, a call updates the moving means at once. There are no `UPDATE_OPS` to run.

    Args:
        inputs: A tensor.
        axis: The axis of the channels.
        momentum: Fraction of the moving means that is kept.
        epsilon: Added to the variance.
        training: Whether to use the mean and variance of the batch; otherwise the moving ones are used.
        options: `name`, `reuse`, and other arguments of `keras.layers.BatchNormalization`. `fused`, `renorm` and
            `virtual_batch_size` are without effect.
    """
    for ignored in ("fused", "renorm", "renorm_clipping", "renorm_momentum", "virtual_batch_size", "adjustment"):
        options.pop(ignored, None)
    arguments: dict[str, Any] = {"axis": axis, "momentum": momentum, "epsilon": epsilon}
    return _applied(BatchNormalization, "batch_normalization", inputs, options, {"training": training}, **arguments)


def _applied(
    kind: Kind,
    name: str,
    inputs: Any,
    options: dict[str, Any],
    call_options: dict[str, Any] | None = None,
    **arguments: Any,
) -> Any:
    """Make a layer within the scopes that are open, or find it again, and call it."""
    call = current_call(f"layers.{name}")
    scope = call.scopes[-1]
    options = {key: value for key, value in options.items() if value is not None}
    own_name = options.pop("name", None) or unique_name(scope, name)
    reuse = options.pop("reuse", scope.reuse)
    path = joined(scope.name, own_name)
    layer = find(call, path, reuse) if _has_weights(kind) else None
    if layer is not None:
        return layer(inputs, **(call_options or {}))
    if _has_kernel(kind):
        for part in ("initializer", "regularizer"):
            if getattr(scope, part) is not None:
                options.setdefault(f"kernel_{part}", getattr(scope, part))
    layer = call.made[path] = kind(**arguments, **options, name=own_name.rpartition("/")[2])
    with opened(path.rpartition("/")[0]):
        outputs = layer(inputs, **(call_options or {}))
    call.collect(REGULARIZATION_LOSSES, layer.losses)
    return outputs


def _has_kernel(kind: Kind) -> bool:
    return kind is Dense or ("Conv" in kind.__name__ and "Separable" not in kind.__name__)


def _has_weights(kind: Kind) -> bool:
    return _has_kernel(kind) or "Conv" in kind.__name__ or kind is BatchNormalization
