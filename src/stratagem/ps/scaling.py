"""Dynamic loss scaling on a worker, which sees whole gradients; the scale is a variable that all workers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from stratagem.ps.variables import apply_remotely


def apply_scaled(optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any] | None) -> None:
    """Unscale gradients and send them: `apply` of a `LossScaleOptimizer` on a worker.

    A step with a gradient that is not finite leaves everything as it is, and halves the scale. Of workers that change
    the scale at one moment the last one's stays: each halves what it has seen, so that two that overflow together
    halve it once.

    Args:
        optimizer: A `LossScaleOptimizer` round an optimizer of the servers.
        gradients: Of the scaled loss, one for each variable; None where there is none.
        variables: Remote variables; None for those that the optimizer was built with.
    """
    finite = optimizer.check_finite(gradients)
    scale, steps = optimizer.dynamic_scale.value, optimizer.step_counter.value
    grows = finite & (steps == optimizer.dynamic_growth_steps - 1)
    unscaled = [None if gradient is None else gradient / scale for gradient in gradients]
    apply_remotely(optimizer.inner_optimizer, unscaled, variables, counts=finite)
    optimizer.dynamic_scale.assign(jnp.where(grows, scale * 2, jnp.where(finite, scale, scale / 2)))
    optimizer.step_counter.assign(jnp.where(finite & ~grows, steps + 1, 0))
