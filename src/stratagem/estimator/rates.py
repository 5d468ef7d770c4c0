"""Learning rates that a step computes: Keras's optimizers take numbers and schedules only."""

from __future__ import annotations

import functools
import weakref
from typing import Any

import keras
from jax.core import Tracer

_rates: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
"""For each optimizer that was made with a tensor as learning rate the tensor."""


def is_of_step(learning_rate: Any) -> bool:
    """Whether a learning rate is computed in each step: a tensor or a variable."""
    return isinstance(learning_rate, Tracer | keras.Variable)


def keep(optimizer: Any, learning_rate: Any) -> None:
    """Let an optimizer use this learning rate of the step whenever it applies gradients."""
    _rates[optimizer] = learning_rate
    optimizer.apply_gradients = functools.partial(_taken_first, optimizer)


def take(optimizer: Any) -> None:
    """Assign the learning rate of this step, before gradients are applied.

    So the update reads no value of the step that it is not given: see `Exchange.call`.
    """
    rate = _rates.get(optimizer)
    if rate is not None:
        optimizer.learning_rate.assign(rate)


def _taken_first(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    take(optimizer)
    return type(optimizer).apply_gradients(optimizer, *args, **kwargs)
