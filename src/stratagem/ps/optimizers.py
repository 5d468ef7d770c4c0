"""Optimizers on a worker: gradients are sent to the servers, which update the variables where they live.

Clipping and loss scaling happen here, on whole gradients. The scale of dynamic loss scaling is a variable that all
workers share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from stratagem.core.errors import UsageError
from stratagem.program.tracing import current_tracing
from stratagem.ps.compat import clipped, iterations_variable
from stratagem.ps.variables import GRADIENT, RemoteVariable, companion_of


def apply_remotely(
    optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any] | None, counts: Any = None
) -> None:
    """Send gradients to the servers, which update the variables: `apply` of an optimizer on a worker.

    Clipping and loss scaling happen here, on whole gradients; the rest where the variables live.

    Args:
        optimizer: A Keras optimizer with `remote_name`, `residence` and `companions`.
        gradients: One for each variable; None where there is none.
        variables: Remote variables; None for those that the optimizer was built with.
        counts: A boolean scalar, False to leave everything as it is; None always counts.

    Raises:
        UsageError: A variable is none, or is updated twice in one program.
    """
    targets: Sequence[Any] = optimizer.targets if variables is None else variables
    pairs = [(g, v) for g, v in zip(gradients, targets, strict=bool(targets)) if g is not None]
    if not pairs:
        raise UsageError(
            "optimizer.apply was given no gradient, or no variables.",
            "Write optimizer.apply_gradients(zip(gradients, model.trainable_variables)).",
        )
    count = iterations_variable(optimizer)
    purpose = f"{GRADIENT} {optimizer.remote_name}"
    changes: list[tuple[Any, Any]] = [
        (companion_of(optimizer, "rate", (), "float32"), jnp.asarray(optimizer.learning_rate, "float32")),
        (companion_of(optimizer, "iterations", (), "int32"), jnp.asarray(count.value)),
    ]
    if counts is not None:
        changes.append((companion_of(optimizer, "counts", (), "int32"), jnp.asarray(counts, "int32")))
    for gradient, variable in zip(clipped(optimizer, [g for g, _ in pairs]), [v for _, v in pairs], strict=True):
        if not isinstance(variable, RemoteVariable):
            raise UsageError(
                f"optimizer.apply was given {getattr(variable, 'path', variable)!r}, which is not a variable of the "
                "chief.",
                "It is not on the parameter servers, so no other worker would see the update.",
                "Make the model on the chief, in strategy.scope(), before it is used in a scheduled function.",
            )
        target = companion_of(variable, purpose, variable.shape, variable.stored_dtype)
        changes.append((target, jnp.asarray(gradient, variable.stored_dtype)))
    one = jnp.asarray(1 if counts is None else counts, count.stored_dtype)
    if current_tracing() is None:  # the count goes with the gradients, as a round counts once
        optimizer.residence.write([*changes, (companion_of(count, "add", (), count.stored_dtype), one)])
    else:
        for target, value in changes:
            target.assign(value)
        count.assign_add(one)


def apply_scaled(optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any] | None) -> None:
    """Unscale gradients and send them: `apply` of a `LossScaleOptimizer` on a worker.

    A step with a gradient that is not finite leaves everything as it is, and halves the scale. If several workers
    change the scale at one moment, the last value stays: each halves the scale that it has read, so that two workers
    that overflow together halve it once.

    Args:
        optimizer: A `LossScaleOptimizer` round an optimizer of the servers.
        gradients: Gradients of the scaled loss, one for each variable; None where there is none.
        variables: Remote variables; None for those that the optimizer was built with.
    """
    finite = optimizer.check_finite(gradients)
    scale, steps = optimizer.dynamic_scale.value, optimizer.step_counter.value
    grows = finite & (steps == optimizer.dynamic_growth_steps - 1)
    unscaled = [None if gradient is None else gradient / scale for gradient in gradients]
    apply_remotely(optimizer.inner_optimizer, unscaled, variables, counts=finite)
    optimizer.dynamic_scale.assign(jnp.where(grows, scale * 2, jnp.where(finite, scale, scale / 2)))
    optimizer.step_counter.assign(jnp.where(finite & ~grows, steps + 1, 0))


def weigh(optimizer: Any, rows: int) -> None:
    """Say of how many examples this program's gradients are the mean. It is their weight in a round.

    Without it, contributions to a round count alike.

    Args:
        optimizer: The optimizer that applies them. There is no effect for one that is not on a worker.
        rows: The number of examples.
    """
    if hasattr(optimizer, "companions"):
        companion_of(optimizer, "rows", (), "float32").assign(jnp.asarray(rows, "float32"))
