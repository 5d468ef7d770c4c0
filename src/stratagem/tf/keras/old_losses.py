"""Losses that a program calls itself, as in TensorFlow.

Those that are means are refused where a strategy is current. In `strategy.run` they are refused with or without
`stratagem.tf` (`fit.losses`); here are those in a scope outside it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, Final

import keras

from stratagem.core.errors import InputError
from stratagem.fit.resuming import current_session
from stratagem.replica.context import current_replica_context, has_strategy


class _Compiled(threading.local):
    """Calls of losses that `compile` was given, under way in a thread."""

    count = 0


_COMPILED = _Compiled()

_MEANS: Final = ("sum_over_batch_size", "mean", "mean_with_sample_weight")


def counting_as_compiled(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the call of what `compile` makes of its losses, which may be means.

    Args:
        original: `keras.src.trainers.compile_utils.CompileLoss.__call__`.
    """

    @functools.wraps(original)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        _COMPILED.count += 1
        try:
            return original(self, *args, **kwargs)
        finally:
            _COMPILED.count -= 1

    return __call__


def refusing_means(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the call of a loss: in a scope, and outside `fit`, it may be a sum or a loss for each example.

    Args:
        original: `keras.losses.Loss.__call__`.
    """

    @functools.wraps(original)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.reduction in _MEANS and has_strategy() and not (_COMPILED.count or _is_stepping()):
            raise InputError(
                f"{type(self).__name__}(reduction={self.reduction!r}) was called in the scope of a strategy.",
                "It is the mean over the rows that this call sees, which need not be the global batch.",
                "Please use `tf.keras.losses.Reduction.SUM` or `tf.keras.losses.Reduction.NONE`, with "
                "tf.nn.compute_average_loss; call it outside the scope; or give it to Model.compile.",
            )
        return original(self, *args, **kwargs)

    return __call__


def _is_stepping() -> bool:
    """Whether `fit` runs, or a replica's step, which has a check of its own."""
    return current_session() is not None or current_replica_context() is not None


@functools.wraps(keras.losses.binary_crossentropy)
def binary_crossentropy(y_true: Any, y_pred: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the cross-entropy of targets that are broadcast to the outputs (Keras 3 on JAX refuses other shapes)."""
    shapes: list[tuple[Any, ...]] = [tuple(getattr(each, "shape", ())) for each in (y_true, y_pred)]
    targets, outputs = shapes
    if len(targets) == len(outputs) and targets[:-1] == outputs[:-1] and targets[-1:] == (1,) != outputs[-1:]:
        # Not to the shape of the outputs, whose number of rows may be unknown.
        y_true = keras.ops.repeat(y_true, outputs[-1], axis=-1)
    return keras.losses.binary_crossentropy(y_true, y_pred, *args, **kwargs)
