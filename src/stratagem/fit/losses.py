"""Losses of a share that add up to the loss of the batch.

Inside `fit` a replica's loss counts as a mean over its rows: the gradients of the replicas are
averaged by rows. That is right for a loss divided by the number of rows, for regularisers, and
for custom losses that are means. Keras has three kinds that are not, put right here:

- a sum (`reduction="sum"`) must count whole on every replica;
- a mean over unmasked entries, or divided by the sum of sample weights, has a divisor that the
  replicas must add up first;
- an overlap of whole batches, or a comparison of rows with one another, must see the rows of all replicas.

A loss for each row (`reduction=None`) trains with the sum of all rows, as in TensorFlow; Keras on JAX refuses it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import keras
from jax import lax

from stratagem.core.errors import InputError
from stratagem.fit import compat
from stratagem.replica.context import ReplicaContext, current_replica_context


def _sharing_context() -> ReplicaContext | None:
    context = current_replica_context()
    if context is None or not context.mean_gradients or context.strategy.mesh.size == 1:
        return None
    return context


def _check_scaled(reduction: str | None) -> None:
    """Refuse a loss that is a mean over a replica's rows inside `run`, where gradients are summed."""
    context = current_replica_context()
    if context is None or context.mean_gradients or reduction not in _MEANS:
        return
    raise InputError(
        f"A Keras loss with reduction={reduction!r} was called inside strategy.run.",
        "It is the mean over the rows of one replica, and optimizers sum gradients over replicas: with "
        f"{context.num_replicas_in_sync} replicas the step would be up to {context.num_replicas_in_sync} times "
        "too large.",
        "Make the loss with reduction=None and scale it: loss = stratagem.nn.compute_average_loss(per_example_loss).",
    )


_MEANS: Final = ("sum_over_batch_size", "mean", "mean_with_sample_weight")


def sharing_reduce_values(original: Callable) -> Callable:
    """Wrap Keras's reduction of per-example losses.

    Args:
        original: `keras.src.losses.loss.reduce_values`.
    """

    def reduce_values(values: Any, sample_weight: Any = None, reduction: str | None = "sum_over_batch_size") -> Any:
        _check_scaled(reduction)
        context = _sharing_context()
        if context is None or tuple(values.shape) in ((), (0,)):
            return original(values, sample_weight, reduction)
        factor = context.share.factor_of_sums
        if reduction == "sum":
            return original(values, sample_weight, reduction) * factor
        if reduction == "mean_with_sample_weight" and sample_weight is not None:
            (divisor,) = context.sum([jnp.sum(sample_weight).astype(values.dtype)])
            return jnp.where(divisor == 0, 0, jnp.sum(values) / divisor) * factor
        return original(values, sample_weight, reduction)

    return reduce_values


def summing_rows(original: Callable) -> Callable:
    """Wrap the loss of a Keras step: one for each row becomes their sum, of which a step takes the gradient.

    Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/GradientTape#gradient

    Args:
        original: `compute_loss_and_updates` of Keras's trainer on JAX.
    """

    @functools.wraps(original)
    def compute_loss_and_updates(model: Any, *args: Any, **kwargs: Any) -> tuple[Any, tuple[Any, ...]]:
        loss, (shown, *others) = original(model, *args, **kwargs)
        if loss.shape == ():
            return loss, (shown, *others)
        context = _sharing_context()
        factor = 1 if context is None else context.share.factor_of_sums
        # A mean over no rows must be no NaN.
        return jnp.sum(loss) * factor, (jnp.sum(shown) / max(shown.size, 1), *others)

    return compute_loss_and_updates


def is_for_each_row(loss: Any) -> bool:
    """Return whether a loss that a model was compiled with has a number for each row, which Keras on JAX refuses.

    Args:
        loss: A loss, or a structure of losses.
    """
    losses = [each for each in jax.tree.leaves(loss) if isinstance(each, keras.losses.Loss)]
    return any(each.reduction in (None, "none") for each in losses)


def sharing_apply_mask(original: Callable) -> Callable:
    """Wrap Keras's joining of a mask to sample weights.

    Keras gives an unmasked entry the weight `entries / unmasked entries`, counted on one replica.

    Args:
        original: `keras.src.losses.loss.apply_mask`.
    """

    def apply_mask(sample_weight: Any, mask: Any, dtype: Any, reduction: str | None) -> Any:
        context = _sharing_context()
        weights = original(sample_weight, mask, dtype, reduction)
        if context is None or mask is None or reduction not in ("mean", "sum_over_batch_size"):
            return weights
        own = jnp.sum(mask.astype(weights.dtype))
        (everyone,) = context.sum([own])
        factor = context.share.factor_of_sums
        return weights * jnp.where(everyone == 0, 0, own * factor / everyone)

    return apply_mask


def seeing_all_rows(original: Callable) -> Callable:
    """Wrap the `call` of a loss that is no mean over rows, so that it sees the rows of all replicas.

    Dice and Tversky divide sums over the batch, Circle compares its rows with one another.

    Args:
        original: `call` of `keras.losses.Dice`, `Tversky` or `Circle`.
    """

    @functools.wraps(original)
    def call(loss: Any, y_true: Any, y_pred: Any) -> Any:
        context = _sharing_context()
        axis = getattr(loss, "axis", None)
        if context is None or (axis is not None and 0 not in (axis if isinstance(axis, list | tuple) else [axis])):
            return original(loss, y_true, y_pred)
        replica = context.replica_id_in_sync_group
        y_true, y_pred, owners = context.all_gather((y_true, y_pred, jnp.full(context.share.rows, replica)), axis=0)
        values = original(loss, y_true, y_pred)
        if not isinstance(loss, keras.losses.Circle):
            return values

        def own(array: jax.Array) -> jax.Array:
            return lax.dynamic_slice_in_dim(array, jnp.argmax(owners == replica), context.share.rows)

        mask, values = compat.mask_of(values), own(values)
        if mask is not None:
            compat.set_mask(values, own(mask))
        return values

    return call


def sharing_moments(original: Callable) -> Callable:
    """Wrap Keras's mean and variance so that `synchronized=True` means the global batch.

    Keras on JAX refuses `synchronized=True`; outside a step it means what it means on one device.

    Args:
        original: `keras.src.backend.jax.nn.moments`, or `keras.ops.moments`.
    """

    def moments(x: Any, axes: Any, keepdims: bool = False, synchronized: bool = False) -> Any:
        context = current_replica_context()
        if not synchronized or context is None or context.strategy.mesh.size == 1:
            return original(x, axes, keepdims=keepdims)
        wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
        count = context.share.factor_of_sums
        for axis in axes:
            count *= x.shape[axis]
        mean, variance = _global_moments(context, wide, axes, None, count)
        if not keepdims:
            mean, variance = jnp.squeeze(mean, axes), jnp.squeeze(variance, axes)
        largest = jnp.finfo(x.dtype).max  # statistics of float16 inputs may leave its range
        return tuple(jnp.clip(value, -largest, largest).astype(x.dtype) for value in (mean, variance))

    return moments


def sharing_masked_moments(original: Callable) -> Callable:
    """Wrap the mean and variance of unmasked entries, which Keras's BatchNormalization computes by itself.

    Args:
        original: `keras.layers.BatchNormalization._moments`.
    """

    def moments(layer: Any, inputs: Any, mask: Any) -> Any:
        context = current_replica_context()
        if context is None or context.strategy.mesh.size == 1:
            return original(layer, inputs, mask)
        counted = jnp.broadcast_to(mask[..., jnp.newaxis], inputs.shape).astype(bool)
        axes = _reduced_axes(layer, inputs)
        (count,) = context.sum([jnp.sum(counted, axes, keepdims=True, dtype=inputs.dtype)])
        # Keras's own guard against a batch without any entry.
        both = _global_moments(context, inputs, axes, counted, count + keras.config.epsilon())
        return tuple(jnp.squeeze(value) for value in both)

    return moments


def moments_of_all_replicas(layer: Any, inputs: Any, mask: Any) -> Any:
    """Return mean and variance as one BatchNormalization(synchronized=True) needs them: its `_moments`.

    Args:
        layer: The layer.
        inputs: What it is called with.
        mask: Which entries count; None for all.
    """
    if mask is None:
        return sharing_moments(keras.ops.moments)(inputs, _reduced_axes(layer, inputs), synchronized=True)
    return sharing_masked_moments(type(layer)._moments)(layer, inputs, mask)


def _reduced_axes(layer: Any, inputs: Any) -> tuple[int, ...]:
    return tuple(axis for axis in range(inputs.ndim) if axis != layer.axis % inputs.ndim)


def _global_moments(
    context: ReplicaContext, x: jax.Array, axes: Sequence[int], counted: jax.Array | None, count: Any
) -> tuple[jax.Array, jax.Array]:
    """Return mean and variance over the entries of all replicas, with the reduced axes kept."""
    total = context.all_reduce("sum", jnp.sum(x, axes, keepdims=True, where=counted))
    mean = total / count
    squares = context.all_reduce("sum", jnp.sum((x - mean) ** 2, axes, keepdims=True, where=counted))
    return mean, squares / count
