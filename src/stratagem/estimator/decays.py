"""Learning rates as functions of the step, by their old names (`tf.compat.v1.train.exponential_decay` and others).

Each returns a tensor of the step that runs, for the learning rate of an optimizer, for a summary, or to compute with.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/compat/v1/train
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from stratagem.core.errors import InputError
from stratagem.estimator.running_call import get_or_create_global_step


def exponential_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Return `learning_rate * decay_rate ** (global_step / decay_steps)`.

    Args:
        learning_rate: The rate at step 0.
        global_step: The variable that counts steps, or a number.
        decay_steps: Number of steps after which the rate is multiplied by `decay_rate`.
        decay_rate: The factor.
        staircase: Whether the rate falls in discrete steps, once every `decay_steps`.
        name: Accepted as in TensorFlow.

    Example:
        >>> [round(float(exponential_decay(0.1, step, 10, 0.5)), 4) for step in (0, 10, 20)]
        [0.1, 0.05, 0.025]
    """
    return learning_rate * jnp.power(decay_rate, _share(global_step, decay_steps, staircase))


def natural_exp_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Return `learning_rate * exp(-decay_rate * global_step / decay_steps)`; arguments as for `exponential_decay`."""
    return learning_rate * jnp.exp(-decay_rate * _share(global_step, decay_steps, staircase))


def inverse_time_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Return `learning_rate / (1 + decay_rate * global_step / decay_steps)`; arguments as for `exponential_decay`."""
    return learning_rate / (1.0 + decay_rate * _share(global_step, decay_steps, staircase))


def polynomial_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    end_learning_rate: Any = 0.0001,
    power: float = 1.0,
    cycle: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Return a rate that falls to `end_learning_rate` in `decay_steps`.

    Args:
        learning_rate: The rate at step 0.
        global_step: The variable that counts steps, or a number.
        decay_steps: Number of steps until the end.
        end_learning_rate: The final rate.
        power: Exponent of the polynomial; 1 is a straight line.
        cycle: Whether the rate rises again after the end, and falls over another `decay_steps`.
        name: Accepted as in TensorFlow.

    Example:
        >>> [round(float(polynomial_decay(0.1, step, 10, 0.0)), 2) for step in (0, 5, 10, 20)]
        [0.1, 0.05, 0.0, 0.0]
    """
    step = _number(global_step)
    if cycle:
        decay_steps = decay_steps * jnp.maximum(1.0, jnp.ceil(step / decay_steps))
    part = jnp.minimum(step, decay_steps) / decay_steps
    return (learning_rate - end_learning_rate) * jnp.power(1.0 - part, power) + end_learning_rate


def piecewise_constant(
    x: Any, boundaries: Sequence[float], values: Sequence[float], name: str | None = None
) -> jax.Array:
    """Return a rate with one value up to and at each boundary, and the last value afterwards.

    Args:
        x: The variable that counts steps, or a number.
        boundaries: Steps in ascending order.
        values: One value more than boundaries.
        name: Accepted as in TensorFlow.

    Raises:
        InputError: The numbers of boundaries and values do not fit.

    Example:
        >>> [round(float(piecewise_constant(step, [10, 20], [1.0, 0.5, 0.1])), 2) for step in (10, 11, 21)]
        [1.0, 0.5, 0.1]
    """
    if len(boundaries) != len(values) - 1:
        raise InputError(
            f"piecewise_constant was given {len(boundaries)} boundaries and {len(values)} values.",
            "Give one value more than boundaries: piecewise_constant(step, [1000], [0.1, 0.01]).",
        )
    place = jnp.searchsorted(jnp.asarray(boundaries, "float32"), _number(x), side="left")
    return jnp.take(jnp.asarray(values, "float32"), place)


def cosine_decay(
    learning_rate: Any, global_step: Any, decay_steps: Any, alpha: float = 0.0, name: str | None = None
) -> jax.Array:
    """Return a rate that falls along a half cosine wave to `alpha * learning_rate` in `decay_steps`.

    Args:
        learning_rate: The rate at step 0.
        global_step: The variable that counts steps, or a number.
        decay_steps: Number of steps until the end.
        alpha: The final rate, as a fraction of `learning_rate`.
        name: Accepted as in TensorFlow.
    """
    part = jnp.minimum(_number(global_step), decay_steps) / decay_steps
    return learning_rate * ((1 - alpha) * 0.5 * (1.0 + jnp.cos(math.pi * part)) + alpha)


def cosine_decay_restarts(
    learning_rate: Any,
    global_step: Any,
    first_decay_steps: Any,
    t_mul: float = 2.0,
    m_mul: float = 1.0,
    alpha: float = 0.0,
    name: str | None = None,
) -> jax.Array:
    """Return a rate that falls as with `cosine_decay`, and restarts each time.

    Args:
        learning_rate: The rate at step 0.
        global_step: The variable that counts steps, or a number.
        first_decay_steps: Number of steps of the first period.
        t_mul: Factor by which each period is longer than the previous one.
        m_mul: Factor of the initial rate of each period.
        alpha: The final rate, as a fraction of `learning_rate`.
        name: Accepted as in TensorFlow.
    """
    done = _number(global_step) / first_decay_steps
    if t_mul == 1.0:
        count = jnp.floor(done)
        part = done - count
    else:
        count = jnp.floor(jnp.log(1.0 - done * (1.0 - t_mul)) / math.log(t_mul))
        part = (done - (1.0 - t_mul**count) / (1.0 - t_mul)) / t_mul**count
    wave = 0.5 * m_mul**count * (1.0 + jnp.cos(math.pi * part))
    return learning_rate * ((1 - alpha) * wave + alpha)


def linear_cosine_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    num_periods: float = 0.5,
    alpha: float = 0.0,
    beta: float = 0.001,
    name: str | None = None,
) -> jax.Array:
    """Return a rate that combines a linear and a cosine decay.

    Args:
        learning_rate: The rate at step 0.
        global_step: The variable that counts steps, or a number.
        decay_steps: Number of steps until the end.
        num_periods: Number of waves until the end.
        alpha: Added to the line.
        beta: Added to the product.
        name: Accepted as in TensorFlow.
    """
    part = jnp.minimum(_number(global_step), decay_steps) / decay_steps
    wave = 0.5 * (1.0 + jnp.cos(2.0 * math.pi * num_periods * part))
    return learning_rate * ((alpha + 1.0 - part) * wave + beta)


def _share(global_step: Any, decay_steps: Any, staircase: bool) -> jax.Array:
    share = _number(global_step) / decay_steps
    return jnp.floor(share) if staircase else share


def _number(global_step: Any) -> jax.Array:
    """Return the step as a float; None is that of the Estimator."""
    step = get_or_create_global_step() if global_step is None else global_step
    return jnp.asarray(getattr(step, "value", step), "float32")
