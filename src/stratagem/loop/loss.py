"""Losses of a custom loop, scaled so that the sum over replicas is the loss of the global batch.

In a custom loop gradients are *summed* over replicas. Each replica's loss must therefore be its part of
the mean: the sum over its examples, divided by the examples of all replicas.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/nn/compute_average_loss
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stratagem.core.errors import InputError, UsageError
from stratagem.program.tracing import is_traced
from stratagem.replica.context import ReplicaContext, current_replica_context, current_strategy, has_strategy


def compute_average_loss(per_example_loss: Any, sample_weight: Any = None, global_batch_size: Any = None) -> jax.Array:
    """Return this replica's part of the mean loss: the sum of its losses over the global batch size.

    Without `global_batch_size`, every example has the same weight, even in a smaller last batch: the divisor is the
    number of examples that the replicas have at this step. A constant gives the examples of a smaller batch less
    weight, as in TensorFlow. TensorFlow's default is the number of this replica's examples times the number of
    replicas. That is the same if the batch divides; if not, the true number counts here.

    If labels have several dimensions, divide by their number first, as in TensorFlow, because every dimension after the
    first is summed: `per_example_loss / keras.ops.prod(labels.shape[1:])`.

    Args:
        per_example_loss: Losses of this replica's examples, of shape (rows, ...), from a loss with
            `reduction="none"`.
        sample_weight: Weights: a scalar, or of the shape of the losses, less or more their last dimension.
        global_batch_size: Number of examples on all replicas, an integer of 0 or more; None counts them.

    Returns:
        A scalar with the dtype of the losses; 0 if the global batch size is 0.

    Raises:
        InputError: The losses are a scalar, or the global batch size is not an integer of 0 or more.
        UsageError: Called in a scope outside `strategy.run`, without a global batch size.

    Example:
        >>> import stratagem
        >>> strategy = stratagem.OneDeviceStrategy("cpu:0")
        >>> losses = jnp.array([1.0, 2.0, 6.0])
        >>> float(strategy.run(stratagem.nn.compute_average_loss, args=(losses,)))
        3.0
        >>> float(strategy.run(lambda x: stratagem.nn.compute_average_loss(x, global_batch_size=9), args=(losses,)))
        1.0
    """
    losses = jnp.asarray(per_example_loss)
    if losses.ndim == 0:
        raise InputError(
            "compute_average_loss was given a scalar.",
            "A scalar does not show how many examples it stands for, so the gradients would be scaled wrongly.",
            'Make the loss with reduction="none", so that there is one number for each example.',
        )
    context = current_replica_context()
    if global_batch_size is None:
        if context is None:
            _require_replica("compute_average_loss", "give global_batch_size")
        divisor = _examples(context, losses.shape[0])
    else:
        divisor = _checked_size(global_batch_size)
    if sample_weight is not None:
        losses = _weighted(losses, jnp.asarray(sample_weight)).astype(losses.dtype)
    divisor = jnp.asarray(divisor, losses.dtype)
    total = jnp.sum(losses)
    average = jnp.where(divisor == 0, jnp.zeros_like(total), total / jnp.where(divisor == 0, 1, divisor))
    return average * as_counted(context)


def scale_regularization_loss(regularization_loss: Any) -> jax.Array:
    """Return this replica's part of a regularisation loss: the sum divided by the number of replicas.

    Each replica adds the same loss of the same weights, but gradients are summed over replicas
    (https://www.tensorflow.org/api_docs/python/tf/nn/scale_regularization_loss).

    Args:
        regularization_loss: A number, an array, or a list of them, such as `model.losses`.

    Returns:
        A scalar; 0 for an empty list.

    Raises:
        UsageError: Called in a scope outside `strategy.run`.

    Example:
        >>> import stratagem
        >>> float(stratagem.nn.scale_regularization_loss([0.5, 0.25]))
        0.75
    """
    context = current_replica_context()
    if context is None:
        _require_replica("scale_regularization_loss", "add the losses without scaling")
    parts = [jnp.sum(jnp.asarray(part)) for part in jax.tree.leaves(regularization_loss)]
    total = sum(parts[1:], start=parts[0]) if parts else jnp.zeros(())
    if context is None or context.mean_gradients:
        return total  # inside `fit` the replicas' losses are averaged, not summed
    return total / context.replicas_counted(total)


def _require_replica(function: str, otherwise: str) -> None:
    if has_strategy():
        raise UsageError(
            f"{function} was called inside the scope of {type(current_strategy()).__name__}, outside strategy.run.",
            "The number of examples of a replica is known only inside the function that runs on the replicas.",
            f"Call it in the function given to strategy.run; or {otherwise}.",
        )


def _examples(context: ReplicaContext | None, rows: int) -> Any:
    """Return the number of examples over all replicas, each of which holds `rows` or knows its own."""
    if context is None:
        return rows
    # One program with one shape runs on all replicas, unless their shares differ: then the weight is traced.
    if not isinstance(context.share.weight, jax.Array):
        return rows * context.num_replicas_in_sync
    (examples,) = context.sum([jnp.asarray(rows, jnp.result_type(float))])
    return examples


def as_counted(context: ReplicaContext | None) -> float:
    """Return the factor for a replica's part of a sum, with which it counts as such.

    Inside `fit` the replicas' losses are not summed but averaged, each with its share of the rows.

    Args:
        context: The replica; None outside all.
    """
    if context is None or not context.mean_gradients:
        return 1.0
    return context.share.factor_of_sums


def _checked_size(size: Any) -> Any:
    """Check a global batch size as TensorFlow does."""
    traced = is_traced(size)
    array = size if traced else np.asarray(size)
    whole = array.ndim == 0 and jnp.issubdtype(array.dtype, jnp.integer)
    if not whole or (not traced and bool(array < 0)):
        raise InputError(
            f"global_batch_size is {size!r}.",
            "Write the number of examples over all replicas, an integer; or leave it out.",
        )
    return array


def _weighted(losses: jax.Array, weights: jax.Array) -> jax.Array:
    """Multiply losses by weights, after fitting the weights' rank as TensorFlow and Keras do."""
    if weights.ndim == losses.ndim + 1 and weights.shape[-1] == 1:
        weights = jnp.squeeze(weights, -1)
    elif weights.ndim and weights.ndim == losses.ndim - 1:
        weights = weights[..., jnp.newaxis]
    return losses.astype(jnp.promote_types(losses.dtype, jnp.float32)) * weights
