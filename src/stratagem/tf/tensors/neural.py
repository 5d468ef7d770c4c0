"""Neural networks' functions: `tf.nn.relu`, `tf.nn.dropout`, `tf.nn.softmax_cross_entropy_with_logits`.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/nn
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stratagem.tf.tensors.draws import uniform
from stratagem.tf.tensors.operation import integers, operation, tensor, xp
from stratagem.tf.tensors.reductions import clip_by_norm


@operation
def relu(features: Any, name: str | None = None) -> Any:
    """Return max(x, 0) (`tf.nn.relu`)."""
    x = tensor(features)
    return xp(x).maximum(x, 0)


@operation
def relu6(features: Any, name: str | None = None) -> Any:
    """Return min(max(x, 0), 6) (`tf.nn.relu6`)."""
    return jax.nn.relu6(jnp.asarray(tensor(features)))


@operation
def leaky_relu(features: Any, alpha: Any = 0.2, name: str | None = None) -> Any:
    """Return x, and alpha * x where it is negative (`tf.nn.leaky_relu`)."""
    return jax.nn.leaky_relu(jnp.asarray(tensor(features)), alpha)


@operation
def elu(features: Any, name: str | None = None) -> Any:
    """Return x, and exp(x) - 1 where it is negative (`tf.nn.elu`)."""
    return jax.nn.elu(jnp.asarray(tensor(features)))


@operation
def selu(features: Any, name: str | None = None) -> Any:
    """Return the scaled exponential linear unit (`tf.nn.selu`)."""
    return jax.nn.selu(jnp.asarray(tensor(features)))


@operation
def gelu(features: Any, approximate: bool = False, name: str | None = None) -> Any:
    """Return x times the normal distribution's function of x (`tf.nn.gelu`)."""
    return jax.nn.gelu(jnp.asarray(tensor(features)), approximate=approximate)


@operation
def silu(features: Any, beta: Any = 1.0) -> Any:
    """Return x * sigmoid(beta * x) (`tf.nn.silu`, `tf.nn.swish`)."""
    x = jnp.asarray(tensor(features))
    return x * jax.nn.sigmoid(beta * x)


swish = silu


@operation
def crelu(features: Any, axis: int = -1, name: str | None = None) -> Any:
    """Return relu(x) and relu(-x) side by side (`tf.nn.crelu`)."""
    x = jnp.asarray(tensor(features))
    return jax.nn.relu(jnp.concatenate([x, -x], axis))


@operation
def softmax(logits: Any, axis: Any = None, name: str | None = None) -> Any:
    """Return exp(x) / sum(exp(x)) along an axis, None for the last (`tf.nn.softmax`)."""
    return jax.nn.softmax(jnp.asarray(tensor(logits)), -1 if axis is None else axis)


@operation
def log_softmax(logits: Any, axis: Any = None, name: str | None = None) -> Any:
    """Return log(softmax(x)) along an axis, None for the last (`tf.nn.log_softmax`)."""
    return jax.nn.log_softmax(jnp.asarray(tensor(logits)), -1 if axis is None else axis)


@operation
def bias_add(value: Any, bias: Any, data_format: str | None = None, name: str | None = None) -> Any:
    """Return a tensor plus one number for each channel (`tf.nn.bias_add`)."""
    x, addend = tensor(value), tensor(bias)
    if data_format is not None and data_format.startswith("NC"):
        addend = addend.reshape(-1, *(1,) * (x.ndim - 2))
    return x + addend


@operation
def softmax_cross_entropy_with_logits(labels: Any, logits: Any, axis: int = -1, name: str | None = None) -> Any:
    """Return the cross entropy of probabilities and logits (`tf.nn.softmax_cross_entropy_with_logits`).

    Args:
        labels: Probabilities that add up to 1 along the axis.
        logits: Of the same shape, not normalised.
        axis: The axis of the classes.
        name: No effect.

    Returns:
        A loss for each example: the shape without the axis.

    Example:
        >>> round(float(softmax_cross_entropy_with_logits([0.0, 1.0], [0.0, 0.0])), 4)
        0.6931
    """
    scores = jnp.asarray(tensor(logits))
    return -jnp.sum(jnp.asarray(tensor(labels), scores.dtype) * jax.nn.log_softmax(scores, axis), axis)


@operation
def sparse_softmax_cross_entropy_with_logits(labels: Any, logits: Any, name: str | None = None) -> Any:
    """Return the cross entropy between classes and logits (`tf.nn.sparse_softmax_cross_entropy_with_logits`).

    Args:
        labels: Whole numbers, of shape (...).
        logits: Shape (..., classes), not normalised.
        name: No effect.

    Returns:
        A loss for each example, of the shape of `labels`.
    """
    scores = jax.nn.log_softmax(jnp.asarray(tensor(logits)))
    classes = jnp.asarray(tensor(labels))
    return -jnp.take_along_axis(scores, classes[..., None], -1)[..., 0]


@operation
def sigmoid_cross_entropy_with_logits(labels: Any, logits: Any, name: str | None = None) -> Any:
    """Return the cross entropy of independent classes (`tf.nn.sigmoid_cross_entropy_with_logits`)."""
    scores = jnp.asarray(tensor(logits))
    wanted = jnp.asarray(tensor(labels), scores.dtype)
    return jnp.maximum(scores, 0) - scores * wanted + jnp.log1p(jnp.exp(-jnp.abs(scores)))


@operation
def weighted_cross_entropy_with_logits(labels: Any, logits: Any, pos_weight: Any, name: str | None = None) -> Any:
    """Return `sigmoid_cross_entropy_with_logits` with true labels weighing more (`tf.nn.weighted_cross_...`)."""
    scores = jnp.asarray(tensor(logits))
    wanted = jnp.asarray(tensor(labels), scores.dtype)
    weight = 1 + (pos_weight - 1) * wanted
    return (1 - wanted) * scores + weight * (jnp.log1p(jnp.exp(-jnp.abs(scores))) + jax.nn.relu(-scores))


@operation
def log_poisson_loss(targets: Any, log_input: Any, compute_full_loss: bool = False, name: str | None = None) -> Any:
    """Return the loss of counts given the logarithm of their expectation (`tf.nn.log_poisson_loss`)."""
    logs, counts = jnp.asarray(tensor(log_input)), jnp.asarray(tensor(targets))
    loss = jnp.exp(logs) - logs * counts
    if not compute_full_loss:
        return loss
    stirling = counts * jnp.log(counts) - counts + 0.5 * jnp.log(2 * np.pi * counts)
    return loss + jnp.where((counts >= 0) & (counts <= 1), 0, stirling)


@operation
def l2_loss(t: Any, name: str | None = None) -> Any:
    """Return half the sum of squares (`tf.nn.l2_loss`).

    Example:
        >>> float(l2_loss([3.0, 4.0]))
        12.5
    """
    x = tensor(t)
    return xp(x).sum(xp(x).square(x)) / 2


@operation
def l2_normalize(x: Any, axis: Any = None, epsilon: float = 1e-12, name: str | None = None, dim: Any = None) -> Any:
    """Return a tensor over its norm along axes (`tf.math.l2_normalize`)."""
    x = tensor(x)
    numpy, along = xp(x), dim if axis is None else axis
    along = None if along is None else integers(along)
    return x / numpy.sqrt(numpy.maximum(numpy.sum(numpy.square(x), axis=along, keepdims=True), epsilon))


@operation
def moments(x: Any, axes: Any, shift: Any = None, keepdims: bool = False, name: str | None = None) -> Any:
    """Return (mean, variance) over axes (`tf.nn.moments`)."""
    x, along = tensor(x), integers(axes)
    return xp(x).mean(x, axis=along, keepdims=keepdims), xp(x).var(x, axis=along, keepdims=keepdims)


@operation
def batch_normalization(
    x: Any, mean: Any, variance: Any, offset: Any, scale: Any, variance_epsilon: float, name: str | None = None
) -> Any:
    """Return (x - mean) / sqrt(variance + epsilon) * scale + offset (`tf.nn.batch_normalization`)."""
    factor = 1 / jnp.sqrt(jnp.asarray(tensor(variance)) + variance_epsilon)
    if scale is not None:
        factor = factor * tensor(scale)
    result = (tensor(x) - tensor(mean)) * factor
    return result if offset is None else result + tensor(offset)


@operation
def local_response_normalization(
    input: Any, depth_radius: int = 5, bias: float = 1.0, alpha: float = 1.0, beta: float = 0.5, name: str | None = None
) -> Any:
    """Return a tensor over sums of squares of neighbouring channels (`tf.nn.local_response_normalization`)."""
    x = jnp.asarray(tensor(input))
    window = [1] * (x.ndim - 1) + [2 * depth_radius + 1]
    sums = jax.lax.reduce_window(jnp.square(x), 0.0, jax.lax.add, window, [1] * x.ndim, "SAME")
    return x / (bias + alpha * sums) ** beta


lrn = local_response_normalization


@operation
def dropout(x: Any, rate: Any, noise_shape: Any = None, seed: Any = None, name: str | None = None) -> Any:
    """Return a tensor with a part of its elements 0 and the others made greater (`tf.nn.dropout`).

    Args:
        x: The tensor.
        rate: Which part, from 0 to 1.
        noise_shape: The shape of what is drawn, broadcast to that of `x`.
        seed: See `tf.random.uniform`.
        name: No effect.
    """
    x = jnp.asarray(tensor(x))
    if isinstance(rate, int | float) and rate == 0:
        return x
    shape = (
        x.shape if noise_shape is None else [s if n is None else n for n, s in zip(noise_shape, x.shape, strict=True)]
    )
    kept = uniform(shape, seed=seed) >= rate
    return jnp.where(kept, x / (1 - rate), jnp.zeros_like(x)).astype(x.dtype)


@operation
def embedding_lookup(params: Any, ids: Any, max_norm: Any = None, name: str | None = None) -> Any:
    """Return the rows of a table (`tf.nn.embedding_lookup`).

    Args:
        params: The table, of shape (rows, ...).
        ids: Whole numbers.
        max_norm: Rows longer than this are scaled down to it.
        name: No effect.
    """
    rows = jnp.take(jnp.asarray(tensor(params)), jnp.asarray(tensor(ids)), axis=0)
    return rows if max_norm is None else clip_by_norm(rows, max_norm, axes=[-1])


@operation
def top_k(input: Any, k: Any = 1, sorted: bool = True, index_type: Any = "int32", name: str | None = None) -> Any:
    """Return (the k greatest elements along the last axis, where they stand) (`tf.math.top_k`)."""
    return jax.lax.top_k(jnp.asarray(tensor(input)), int(k))


@operation
def in_top_k(targets: Any, predictions: Any, k: int, name: str | None = None) -> Any:
    """Return whether each target is among the k greatest predictions (`tf.math.in_top_k`)."""
    scores, classes = jnp.asarray(tensor(predictions)), jnp.asarray(tensor(targets))
    own = jnp.take_along_axis(scores, classes[:, None], 1)
    return jnp.sum(scores > own, axis=1) < k
