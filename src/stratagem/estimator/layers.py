"""Layers as functions, by their old names (`tf.compat.v1.layers`).

Each makes a Keras layer within the scopes that are open, and calls it. Variables are called as in TensorFlow 1:
`conv2d/kernel`, `conv2d_1/kernel`, `scope/dense/bias`. The classes of these names are Keras's.
Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/compat/v1/layers
"""

from __future__ import annotations

from typing import Any

import keras
from keras.layers import (
    AveragePooling1D,
    AveragePooling2D,
    AveragePooling3D,
    BatchNormalization,
    Conv1D,
    Conv2D,
    Conv2DTranspose,
    Conv3D,
    Dense,
    Dropout,
    Flatten,
    MaxPooling1D,
    MaxPooling2D,
    MaxPooling3D,
    SeparableConv1D,
    SeparableConv2D,
)

from stratagem.estimator.graph import find, opened, unique_name
from stratagem.estimator.losses import REGULARIZATION_LOSSES
from stratagem.estimator.running_call import current_call


def dense(inputs: Any, units: int, activation: Any = None, use_bias: bool = True, **options: Any) -> Any:
    """Return the outputs of a dense layer.

    Args:
        inputs: A tensor whose last axis has the features.
        units: Size of the last axis of the result.
        activation: A function, or its name.
        use_bias: Whether a bias is added.
        options: `name`, `reuse`, and other arguments of `keras.layers.Dense`, such as `kernel_initializer`.
    """
    return _applied(Dense, "dense", inputs, options, units=int(units), activation=activation, use_bias=use_bias)


def conv1d(
    inputs: Any, filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid", **options: Any
) -> Any:
    """Return the outputs of a convolution over one axis; arguments as for `conv2d`."""
    return _convolved(Conv1D, "conv1d", inputs, filters, kernel_size, strides, padding, options)


def conv2d(
    inputs: Any, filters: int, kernel_size: Any, strides: Any = (1, 1), padding: str = "valid", **options: Any
) -> Any:
    """Return the outputs of a convolution.

    Args:
        inputs: Images of shape (rows, height, width, channels), or as `data_format` says.
        filters: Channels of the result.
        kernel_size: Size of the filters.
        strides: Steps between two places.
        padding: "valid" or "same".
        options: `data_format`, `dilation_rate`, `activation`, `name`, `reuse`, and other arguments of
            `keras.layers.Conv2D`.
    """
    return _convolved(Conv2D, "conv2d", inputs, filters, kernel_size, strides, padding, options)


def conv3d(
    inputs: Any, filters: int, kernel_size: Any, strides: Any = (1, 1, 1), padding: str = "valid", **options: Any
) -> Any:
    """Return the outputs of a convolution over three axes; arguments as for `conv2d`."""
    return _convolved(Conv3D, "conv3d", inputs, filters, kernel_size, strides, padding, options)


def conv2d_transpose(
    inputs: Any, filters: int, kernel_size: Any, strides: Any = (1, 1), padding: str = "valid", **options: Any
) -> Any:
    """Return the outputs of a transposed convolution; arguments as for `conv2d`."""
    return _convolved(Conv2DTranspose, "conv2d_transpose", inputs, filters, kernel_size, strides, padding, options)


def separable_conv1d(
    inputs: Any, filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid", **options: Any
) -> Any:
    """Return the outputs of a convolution that treats channels one by one first; arguments as for `conv2d`."""
    return _convolved(SeparableConv1D, "separable_conv1d", inputs, filters, kernel_size, strides, padding, options)


def separable_conv2d(
    inputs: Any, filters: int, kernel_size: Any, strides: Any = (1, 1), padding: str = "valid", **options: Any
) -> Any:
    """Return the outputs of a convolution that treats channels one by one first; arguments as for `conv2d`."""
    return _convolved(SeparableConv2D, "separable_conv2d", inputs, filters, kernel_size, strides, padding, options)


def max_pooling1d(inputs: Any, pool_size: Any, strides: Any, padding: str = "valid", **options: Any) -> Any:
    """Return the greatest values of windows along one axis; arguments as for `max_pooling2d`."""
    return _pooled(MaxPooling1D, inputs, pool_size, strides, padding, options)


def max_pooling2d(inputs: Any, pool_size: Any, strides: Any, padding: str = "valid", **options: Any) -> Any:
    """Return the greatest values of windows.

    Args:
        inputs: Images of shape (rows, height, width, channels), or as `data_format` says.
        pool_size: Size of the windows.
        strides: Steps between two windows.
        padding: "valid" or "same".
        options: `data_format`, `name`.
    """
    return _pooled(MaxPooling2D, inputs, pool_size, strides, padding, options)


def max_pooling3d(inputs: Any, pool_size: Any, strides: Any, padding: str = "valid", **options: Any) -> Any:
    """Return the greatest values of windows along three axes; arguments as for `max_pooling2d`."""
    return _pooled(MaxPooling3D, inputs, pool_size, strides, padding, options)


def average_pooling1d(inputs: Any, pool_size: Any, strides: Any, padding: str = "valid", **options: Any) -> Any:
    """Return the means of windows along one axis; arguments as for `max_pooling2d`."""
    return _pooled(AveragePooling1D, inputs, pool_size, strides, padding, options)


def average_pooling2d(inputs: Any, pool_size: Any, strides: Any, padding: str = "valid", **options: Any) -> Any:
    """Return the means of windows; arguments as for `max_pooling2d`."""
    return _pooled(AveragePooling2D, inputs, pool_size, strides, padding, options)


def average_pooling3d(inputs: Any, pool_size: Any, strides: Any, padding: str = "valid", **options: Any) -> Any:
    """Return the means of windows along three axes; arguments as for `max_pooling2d`."""
    return _pooled(AveragePooling3D, inputs, pool_size, strides, padding, options)


def flatten(inputs: Any, name: str | None = None, data_format: str = "channels_last") -> Any:
    """Return the inputs with all axes but the first made one.

    Args:
        inputs: A tensor of two axes or more.
        name: Accepted as in TensorFlow.
        data_format: "channels_last" or "channels_first", which are turned round.
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
    """Return the inputs with some of them 0, in training.

    Args:
        inputs: A tensor of any shape.
        rate: Which part of them is 0.
        noise_shape: Shape of what is drawn; axes of size 1 are alike.
        seed: Of what is drawn.
        training: Whether it is training: `mode == ModeKeys.TRAIN`.
        options: `name`.
    """
    return _applied(
        Dropout, "dropout", inputs, options, {"training": training}, rate=rate, noise_shape=noise_shape, seed=seed
    )


def batch_normalization(
    inputs: Any, axis: int = -1, momentum: float = 0.99, epsilon: float = 1e-3, training: Any = False, **options: Any
) -> Any:
    """Return the inputs with mean 0 and variance 1 in each channel.

    Moving means are updated when it is called in training: there are no `UPDATE_OPS` to wait for.

    Args:
        inputs: A tensor.
        axis: Where the channels are.
        momentum: How much of the moving means is kept.
        epsilon: Added to the variance.
        training: Whether the batch's mean and variance are taken; else the moving ones.
        options: `name`, `reuse`, and other arguments of `keras.layers.BatchNormalization`. `fused`, `renorm` and
            `virtual_batch_size` are without effect.
    """
    for ignored in ("fused", "renorm", "renorm_clipping", "renorm_momentum", "virtual_batch_size", "adjustment"):
        options.pop(ignored, None)
    arguments: dict[str, Any] = {"axis": axis, "momentum": momentum, "epsilon": epsilon}
    return _applied(BatchNormalization, "batch_normalization", inputs, options, {"training": training}, **arguments)


def _convolved(
    kind: type[keras.layers.Layer],
    name: str,
    inputs: Any,
    filters: int,
    kernel_size: Any,
    strides: Any,
    padding: str,
    options: dict[str, Any],
) -> Any:
    arguments = {"filters": int(filters), "kernel_size": kernel_size, "strides": strides, "padding": padding.lower()}
    return _applied(kind, name, inputs, options, **arguments)


def _pooled(
    kind: type[keras.layers.Layer], inputs: Any, pool_size: Any, strides: Any, padding: str, options: dict[str, Any]
) -> Any:
    name = "max_pooling" if kind.__name__.startswith("Max") else "average_pooling"
    return _applied(kind, name, inputs, options, pool_size=pool_size, strides=strides, padding=padding.lower())


def _applied(
    kind: type[keras.layers.Layer],
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
    path = f"{scope.path}/{own_name}" if scope.path else own_name
    layer = find(call, path, reuse) if _has_weights(kind) else None
    if layer is None:
        if scope.initializer is not None and _has_kernel(kind):
            options.setdefault("kernel_initializer", scope.initializer)
        if scope.regularizer is not None and _has_kernel(kind):
            options.setdefault("kernel_regularizer", scope.regularizer)
        layer = call.made[path] = kind(**arguments, **options, name=own_name.rpartition("/")[2])
        with opened(path.rpartition("/")[0]):
            outputs = layer(inputs, **(call_options or {}))
        call.collect(REGULARIZATION_LOSSES, layer.losses)
        return outputs
    return layer(inputs, **(call_options or {}))


def _has_kernel(kind: type[keras.layers.Layer]) -> bool:
    return kind is Dense or ("Conv" in kind.__name__ and "Separable" not in kind.__name__)


def _has_weights(kind: type[keras.layers.Layer]) -> bool:
    return _has_kernel(kind) or "Conv" in kind.__name__ or kind is BatchNormalization


__all__ = [
    "AveragePooling1D",
    "AveragePooling2D",
    "AveragePooling3D",
    "BatchNormalization",
    "Conv1D",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Dense",
    "Dropout",
    "Flatten",
    "MaxPooling1D",
    "MaxPooling2D",
    "MaxPooling3D",
    "SeparableConv1D",
    "SeparableConv2D",
    "average_pooling1d",
    "average_pooling2d",
    "average_pooling3d",
    "batch_normalization",
    "conv1d",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "dense",
    "dropout",
    "flatten",
    "max_pooling1d",
    "max_pooling2d",
    "max_pooling3d",
    "separable_conv1d",
    "separable_conv2d",
]
