"""Losses by their old names (`tf.compat.v1.losses`): mean over the batch, and collected for `get_total_loss`.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/compat/v1/losses
"""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
import keras

from stratagem.core.errors import InputError
from stratagem.estimator.running_call import current_call, running_call
from stratagem.tf import derivatives

LOSSES: Final = "losses"
"""The collection that every loss of this module goes to."""

REGULARIZATION_LOSSES: Final = "regularization_losses"
"""The collection of what the regularizers of layers add."""


class Reduction:
    """Ways to reduce the losses of examples to one loss (`tf.compat.v1.losses.Reduction`)."""

    NONE: Final = "none"
    SUM: Final = "weighted_sum"
    SUM_OVER_BATCH_SIZE: Final = "weighted_sum_over_batch_size"
    SUM_OVER_NONZERO_WEIGHTS: Final = "weighted_sum_by_nonzero_weights"
    SUM_BY_NONZERO_WEIGHTS: Final = "weighted_sum_by_nonzero_weights"
    MEAN: Final = "weighted_mean"

    @classmethod
    def all(cls) -> tuple[str, ...]:
        """Return all of them."""
        return cls.NONE, cls.SUM, cls.MEAN, cls.SUM_OVER_BATCH_SIZE, cls.SUM_BY_NONZERO_WEIGHTS


def compute_weighted_loss(
    losses: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> jax.Array:
    """Reduce the losses of examples to one weighted loss.

    Args:
        losses: A tensor of any shape.
        weights: Weights that broadcast to it.
        scope: Accepted as in TensorFlow.
        loss_collection: The collection that the loss is added to; None means none.
        reduction: One of `Reduction`; by default the sum divided by the number of nonzero weights.

    Returns:
        A scalar; with `Reduction.NONE` the weighted losses.

    Raises:
        InputError: The reduction is unknown, or the weights do not fit.

    Example:
        >>> float(compute_weighted_loss([1.0, 3.0, 8.0], [1.0, 1.0, 0.0]))
        2.0
    """
    if reduction not in Reduction.all():
        raise InputError(
            f"reduction is {reduction!r}.",
            "Write stratagem.estimator.losses.Reduction.SUM, MEAN, SUM_BY_NONZERO_WEIGHTS, ...; without it the "
            "loss is a mean.",
        )
    losses = jnp.asarray(losses)
    losses = losses if jnp.issubdtype(losses.dtype, jnp.floating) else losses.astype("float32")
    weights = _fitting(jnp.asarray(weights, losses.dtype), losses)
    weighted = losses * weights
    loss = weighted if reduction == Reduction.NONE else jnp.sum(weighted)
    if reduction == Reduction.MEAN:
        loss = _safely_divided(loss, jnp.sum(jnp.broadcast_to(weights, losses.shape)))
    elif reduction == Reduction.SUM_OVER_BATCH_SIZE:
        loss = _safely_divided(loss, jnp.asarray(losses.size, losses.dtype))
    elif reduction == Reduction.SUM_BY_NONZERO_WEIGHTS:
        there = jnp.broadcast_to(weights != 0, losses.shape)
        loss = _safely_divided(loss, jnp.sum(there.astype(losses.dtype)))
    add_loss(loss, loss_collection)
    return loss


def absolute_difference(labels: Any, predictions: Any, weights: Any = 1.0, *args: Any, **options: Any) -> jax.Array:
    """Return the mean of the absolute differences.

    Args:
        labels: A tensor of any shape.
        predictions: A tensor of the same shape.
        weights: Weights that broadcast to it.
        args: As `options`, in this order.
        options: `scope`, `loss_collection`, `reduction`, as for `compute_weighted_loss`.
    """
    return compute_weighted_loss(derivatives.absolute(_difference(labels, predictions)), weights, *args, **options)


def mean_squared_error(labels: Any, predictions: Any, weights: Any = 1.0, *args: Any, **options: Any) -> jax.Array:
    """Return the mean of the squared differences; arguments as for `absolute_difference`."""
    return compute_weighted_loss(jnp.square(_difference(labels, predictions)), weights, *args, **options)


def huber_loss(
    labels: Any, predictions: Any, weights: Any = 1.0, delta: float = 1.0, *args: Any, **options: Any
) -> jax.Array:
    """Return the mean of the differences, squared up to `delta` and linear beyond.

    Args:
        labels: A tensor of any shape.
        predictions: A tensor of the same shape.
        weights: Weights that broadcast to it.
        delta: The difference at which the loss becomes linear.
        args: As for `absolute_difference`.
        options: As for `absolute_difference`.
    """
    error = derivatives.absolute(_difference(labels, predictions))
    square = derivatives.minimum(error, delta)
    return compute_weighted_loss(0.5 * square**2 + delta * (error - square), weights, *args, **options)


def log_loss(
    labels: Any, predictions: Any, weights: Any = 1.0, epsilon: float = 1e-7, *args: Any, **options: Any
) -> jax.Array:
    """Return the mean of the cross entropies of probabilities.

    Args:
        labels: 0 and 1, or probabilities.
        predictions: Probabilities of the same shape.
        weights: Weights that broadcast to it.
        epsilon: Added to probabilities, which may be 0.
        args: As for `absolute_difference`.
        options: As for `absolute_difference`.
    """
    predictions = jnp.asarray(predictions)
    _difference(labels, predictions)
    labels = jnp.asarray(labels).astype(predictions.dtype)
    losses = -labels * jnp.log(predictions + epsilon) - (1 - labels) * jnp.log(1 - predictions + epsilon)
    return compute_weighted_loss(losses, weights, *args, **options)


def hinge_loss(labels: Any, logits: Any, weights: Any = 1.0, *args: Any, **options: Any) -> jax.Array:
    """Return the mean of the hinge losses of labels 0 and 1; arguments as for `absolute_difference`."""
    logits = jnp.asarray(logits)
    _difference(labels, logits)
    signs = 2.0 * jnp.asarray(labels).astype(logits.dtype) - 1.0
    return compute_weighted_loss(derivatives.relu(1.0 - signs * logits), weights, *args, **options)


def cosine_distance(
    labels: Any, predictions: Any, axis: int | None = None, weights: Any = 1.0, *args: Any, **options: Any
) -> jax.Array:
    """Return the mean of 1 minus the dot product of labels and predictions, which are unit vectors.

    Args:
        labels: A tensor of any shape.
        predictions: A tensor of the same shape.
        axis: The axis of the vectors.
        weights: Weights that broadcast to the distances, whose size along the axis is 1.
        args: As for `absolute_difference`.
        options: `dim`, the old name of `axis`; others as for `absolute_difference`.
    """
    axis = options.pop("dim", axis)
    if axis is None:
        raise InputError("cosine_distance was given no axis.", "Write axis=-1, the axis along which vectors lie.")
    _difference(labels, predictions)
    products = jnp.asarray(labels, "float32") * jnp.asarray(predictions)
    return compute_weighted_loss(1 - jnp.sum(products, axis=axis, keepdims=True), weights, *args, **options)


def sparse_softmax_cross_entropy(labels: Any, logits: Any, weights: Any = 1.0, *args: Any, **options: Any) -> jax.Array:
    """Return the mean cross entropy of class numbers.

    Args:
        labels: Class numbers of shape (rows,) or (rows, 1).
        logits: Logits of shape (rows, classes).
        weights: Weights that broadcast to the labels.
        args: As for `absolute_difference`.
        options: As for `absolute_difference`.

    Raises:
        InputError: The shapes do not fit.

    Example:
        >>> round(float(sparse_softmax_cross_entropy([0, 1], [[0.0, 0.0], [0.0, 0.0]])), 4)
        0.6931
    """
    labels, logits = jnp.asarray(labels), jnp.asarray(logits)
    if labels.ndim == logits.ndim and labels.shape[-1] == 1:
        labels = jnp.squeeze(labels, -1)
        weights = jnp.squeeze(weights, -1) if jnp.ndim(weights) == logits.ndim else weights
    if labels.shape != logits.shape[:-1]:
        raise _unfit("labels", labels.shape, "logits", logits.shape, "class numbers of shape logits.shape[:-1]")
    return compute_weighted_loss(cross_entropies(labels.astype("int32"), logits), weights, *args, **options)


def cross_entropies(classes: jax.Array, logits: jax.Array) -> jax.Array:
    """Return the cross entropy of each example.

    Args:
        classes: Class numbers of shape (...).
        logits: Logits of shape (..., classes).

    Returns:
        An array with the shape of the class numbers; NaN if a number is not a class.

    Example:
        >>> [round(float(loss), 4) for loss in cross_entropies(jnp.array([0, 2]), jnp.zeros((2, 2)))]
        [0.6931, nan]
    """
    inside = (classes >= 0) & (classes < logits.shape[-1])
    found = -jnp.take_along_axis(jax.nn.log_softmax(logits), jnp.where(inside, classes, 0)[..., None], axis=-1)[..., 0]
    return jnp.where(inside, found, jnp.nan)


def softmax_cross_entropy(
    onehot_labels: Any, logits: Any, weights: Any = 1.0, label_smoothing: float = 0, *args: Any, **options: Any
) -> jax.Array:
    """Return the mean cross entropy of one-hot labels or probabilities.

    Args:
        onehot_labels: Labels of shape (rows, classes).
        logits: Logits of the same shape.
        weights: Weights that broadcast to (rows,).
        label_smoothing: Fraction of the labels that is spread over all classes.
        args: As for `absolute_difference`.
        options: As for `absolute_difference`.
    """
    logits = jnp.asarray(logits)
    _difference(onehot_labels, logits, names=("onehot_labels", "logits"))
    labels = jnp.asarray(onehot_labels).astype(logits.dtype)
    labels = labels * (1 - label_smoothing) + label_smoothing / logits.shape[-1]
    losses = derivatives.softmax_cross_entropy(derivatives.constant(labels), logits)
    return compute_weighted_loss(losses, weights, *args, **options)


def sigmoid_cross_entropy(
    multi_class_labels: Any, logits: Any, weights: Any = 1.0, label_smoothing: float = 0, *args: Any, **options: Any
) -> jax.Array:
    """Return the mean cross entropy of classes that do not exclude each other.

    Args:
        multi_class_labels: 0 and 1, of shape (rows, classes).
        logits: Logits of the same shape.
        weights: Weights that broadcast to it.
        label_smoothing: Degree to which labels are moved towards one half.
        args: As for `absolute_difference`.
        options: As for `absolute_difference`.
    """
    logits = jnp.asarray(logits)
    _difference(multi_class_labels, logits, names=("multi_class_labels", "logits"))
    labels = jnp.asarray(multi_class_labels).astype(logits.dtype) * (1 - label_smoothing) + 0.5 * label_smoothing
    losses = derivatives.sigmoid_cross_entropy(labels, logits)
    return compute_weighted_loss(losses, weights, *args, **options)


def add_loss(loss: Any, loss_collection: str | None = LOSSES) -> None:
    """Collect a loss for `get_total_loss`; no effect outside a model_fn.

    Args:
        loss: A scalar.
        loss_collection: The collection.
    """
    call = running_call()
    if call is not None and loss_collection is not None:
        call.collect(loss_collection, [loss])


def get_losses(scope: str | None = None, loss_collection: str = LOSSES) -> list[Any]:
    """Return the collected losses of this call of the model_fn.

    Args:
        scope: Accepted as in TensorFlow.
        loss_collection: The collection.
    """
    return list(current_call("losses.get_losses").collections.get(loss_collection, []))


def get_regularization_losses(scope: str | None = None) -> list[Any]:
    """Return the losses of regularizers of `stratagem.estimator.layers` and `get_variable`.

    Args:
        scope: Accepted as in TensorFlow.
    """
    return get_losses(scope, REGULARIZATION_LOSSES)


def get_regularization_loss(scope: str | None = None, name: str | None = None) -> Any:
    """Return the sum of `get_regularization_losses`, 0 without any.

    Args:
        scope: Accepted as in TensorFlow.
        name: Accepted as in TensorFlow.
    """
    return _total(get_regularization_losses(scope))


def get_total_loss(
    add_regularization_losses: bool = True, name: str | None = None, scope: str | None = None
) -> jax.Array:
    """Return the sum of all collected losses.

    Args:
        add_regularization_losses: Whether to add those of regularizers.
        name: Accepted as in TensorFlow.
        scope: Accepted as in TensorFlow.
    """
    return _total(get_losses(scope) + (get_regularization_losses(scope) if add_regularization_losses else []))


def _total(losses: list[Any]) -> jax.Array:
    return sum(losses, jnp.zeros((), keras.config.floatx()))


def _difference(labels: Any, predictions: Any, names: tuple[str, str] = ("labels", "predictions")) -> jax.Array:
    """Return the difference of two tensors of the same shape; a column and a row would broadcast to a square."""
    labels, predictions = jnp.asarray(labels), jnp.asarray(predictions)
    if labels.shape != predictions.shape:
        raise _unfit(names[0], labels.shape, names[1], predictions.shape, f"the shape of {names[1]}")
    return predictions - labels.astype(predictions.dtype)


def _unfit(one: str, its: tuple[int, ...], other: str, others: tuple[int, ...], wanted: str) -> InputError:
    return InputError(
        f"The loss was given {one} of shape {its} and {other} of shape {others}.",
        "They would not be compared example by example.",
        f"Give {one} {wanted}: keras.ops.reshape, keras.ops.one_hot or keras.ops.argmax.",
    )


def _fitting(weights: jax.Array, losses: jax.Array) -> jax.Array:
    """Return weights that broadcast to losses: (rows,) to (rows, n) as well as (rows, 1) to (rows,)."""
    if weights.ndim == losses.ndim + 1 and weights.shape[-1] == 1:
        weights = jnp.squeeze(weights, -1)
    while 0 < weights.ndim < losses.ndim:
        weights = weights[..., None]
    try:
        fits = jnp.broadcast_shapes(weights.shape, losses.shape) == losses.shape
    except ValueError:
        fits = False
    if not fits:
        raise _unfit("weights", weights.shape, "losses of examples", losses.shape, "one number for each example")
    return weights


def _safely_divided(total: jax.Array, count: jax.Array) -> jax.Array:
    return jnp.where(count > 0, total / jnp.where(count > 0, count, 1), 0)
