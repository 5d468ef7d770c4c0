"""Losses and metrics of complex numbers, as in Keras 2; Keras 3 makes real numbers of targets and outputs first.

A loss of spectra would be one of their real parts alone: another number, and another gradient. What Keras 2 computes of
complex outputs is computed here: the mean absolute and the mean squared error, and functions and classes of the
program's own. Its metrics of functions take real parts, and so do these, which say so. Other losses are refused.
Source of the semantics: https://github.com/keras-team/tf-keras/blob/master/tf_keras/losses.py
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import keras

from stratagem.core import patches
from stratagem.core.errors import InputError
from stratagem.core.log import announce_once
from stratagem.fit import compat


def _is_complex(tree: Any) -> bool:
    return any("complex" in str(getattr(leaf, "dtype", "")) for leaf in keras.tree.flatten(tree))


def _real(tree: Any) -> Any:
    return keras.tree.map_structure(lambda leaf: keras.ops.real(leaf) if _is_complex(leaf) else leaf, tree)


def _masked(real: Any, of: Any) -> Any:
    """Return a tensor with the mask of another one."""
    mask = compat.mask_of(of)
    if mask is not None:
        compat.set_mask(real, mask)
    return real


def _imaginary(tree: Any) -> Any:
    of_real = keras.ops.zeros_like
    return keras.tree.map_structure(lambda leaf: keras.ops.imag(leaf) if _is_complex(leaf) else of_real(leaf), tree)


def _by_parts(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a mean of squares for complex numbers: the sum of those of real and of imaginary parts."""
    return lambda y_true, y_pred: (
        function(_real(y_true), _real(y_pred)) + function(_imaginary(y_true), _imaginary(y_pred))
    )


def keeping_imaginary_parts(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the call of a loss.

    Args:
        original: `keras.losses.Loss.__call__`.
    """

    @functools.wraps(original)
    def __call__(self: Any, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        if not (_is_complex(y_true) or _is_complex(y_pred)):
            return original(self, y_true, y_pred, sample_weight)
        function: Any = inspect.unwrap(getattr(self, "fn", type(self)))
        is_of_keras = str(getattr(function, "__module__", "")).startswith("keras.")
        # Keras 2 makes targets real where outputs are, and both for Huber's loss.
        if is_of_keras and (not _is_complex(y_pred) or function is keras.losses.huber):
            return original(self, y_true, y_pred, sample_weight)
        compute = self.call
        if function is keras.losses.mean_squared_error:
            compute = _by_parts(compute)
        elif is_of_keras and function is not keras.losses.mean_absolute_error:
            raise InputError(
                f"{type(self).__name__} was given complex outputs.",
                "The loss is defined for real numbers. Imaginary parts would be dropped and get no gradient.",
                "Give it tf.abs(y), tf.math.real(y) or tf.math.angle(y) of targets and outputs; MeanAbsoluteError and "
                "MeanSquaredError take complex numbers.",
            )
        targets, outputs = (
            keras.tree.map_structure(lambda leaf: _as_tensor(leaf, self.dtype), each) for each in (y_true, y_pred)
        )
        values = _real(compute(targets, outputs))
        # What is left, masks, weights and the reduction, is of real numbers.
        rest = types.SimpleNamespace(name=self.name, dtype=self.dtype, reduction=self.reduction, call=lambda *_: values)
        return original(rest, _real(y_true), _masked(_real(y_pred), y_pred), sample_weight)

    return __call__


def taking_real_parts(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the update of a metric that is a function.

    Args:
        original: `keras.metrics.MeanMetricWrapper.update_state`.
    """

    @functools.wraps(original)
    def update_state(self: Any, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        if _is_complex(y_true) or _is_complex(y_pred):
            announce_once(
                f"{type(self).__name__} {self.name!r} takes the real parts of complex numbers, as in TensorFlow: "
                "give it tf.abs(y)."
            )
            y_true, y_pred = _real(y_true), _masked(_real(y_pred), y_pred)
        return original(self, y_true, y_pred, sample_weight)

    return update_state


@functools.wraps(keras.losses.mean_squared_error)
def mean_squared_error(y_true: Any, y_pred: Any) -> Any:
    """Return the mean of squared errors along the last axis; for complex numbers, of squared absolute values."""
    function = keras.losses.mean_squared_error
    return (_by_parts(function) if _is_complex(y_pred) else function)(y_true, y_pred)


@functools.wraps(keras.losses.get)
def get(identifier: Any) -> Any:
    """Return the loss that has a name (`tf.keras.losses.get`)."""
    loss = keras.losses.get(identifier)
    return mean_squared_error if loss is keras.losses.mean_squared_error else loss


def install() -> None:
    """Give Keras's losses and metrics what `core.patches` lists. A second call does nothing."""
    patches.install(
        __name__,
        {"Loss.__call__": keeping_imaginary_parts, "MeanMetricWrapper.update_state": taking_real_parts},
    )


def _as_tensor(leaf: Any, dtype: Any) -> Any:
    return keras.ops.convert_to_tensor(leaf, dtype=None if _is_complex(leaf) else dtype)
