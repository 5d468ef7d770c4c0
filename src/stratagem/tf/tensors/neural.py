"""Neural networks' functions: `tf.nn.relu`, `tf.nn.dropout`, `tf.nn.softmax_cross_entropy_with_logits`.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/nn
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stratagem.core.errors import InputError
from stratagem.tf import derivatives
from stratagem.tf.tensors.draws import uniform
from stratagem.tf.tensors.elementwise import rsqrt
from stratagem.tf.tensors.indexing import gather
from stratagem.tf.tensors.marks import Array, Tensor
from stratagem.tf.tensors.norms import clip_by_norm
from stratagem.tf.tensors.operation import held, integers, on_host, operands, operation, refuse_outside, tensor, xp


@operation
def relu(features: Tensor) -> Any:
    """Return max(x, 0) (`tf.nn.relu`)."""
    return np.maximum(features, 0) if on_host(features) else derivatives.relu(features)


@operation
def relu6(features: Array) -> Any:
    """Return min(max(x, 0), 6) (`tf.nn.relu6`)."""
    return derivatives.relu6(features)


@operation
def elu(features: Array) -> Any:
    """Return x, or exp(x) - 1 where x is negative (`tf.nn.elu`)."""
    return derivatives.elu(features)


@operation
def selu(features: Array) -> Any:
    """Return the scaled exponential linear unit (`tf.nn.selu`)."""
    return derivatives.selu(features)


@operation
def leaky_relu(features: Array, alpha: Any = 0.2) -> Any:
    """Return x, or alpha * x where x is negative (`tf.nn.leaky_relu`)."""
    features = features.astype(jnp.float32) if jnp.issubdtype(features.dtype, jnp.integer) else features
    return derivatives.leaky_relu(features, alpha)


@operation
def gelu(features: Array, approximate: bool = False) -> Any:
    """Return x times the normal distribution function of x (`tf.nn.gelu`)."""
    return jax.nn.gelu(features, approximate=approximate)


@operation
def silu(features: Array, beta: Any = 1.0) -> Any:
    """Return x * sigmoid(beta * x) (`tf.nn.silu`, `tf.nn.swish`)."""
    return features * jax.nn.sigmoid(beta * features)


swish = silu


@operation
def crelu(features: Array, axis: int = -1) -> Any:
    """Return relu(x) and relu(-x) side by side (`tf.nn.crelu`)."""
    return derivatives.relu(jnp.concatenate([features, -features], axis))


@operation
def softmax(logits: Tensor, axis: Any = None) -> Any:
    """Return exp(x) / sum(exp(x)) along an axis, None for the last (`tf.nn.softmax`)."""
    x = _of_classes(logits)
    return jax.nn.softmax(x, _axis_within(x, axis))


@operation
def log_softmax(logits: Tensor, axis: Any = None) -> Any:
    """Return log(softmax(x)) along an axis, None for the last (`tf.nn.log_softmax`)."""
    x = _of_classes(logits)
    return jax.nn.log_softmax(x, _axis_within(x, axis))


@operation
def bias_add(value: Tensor, bias: Tensor, data_format: str | None = None) -> Any:
    """Return a tensor with a number added to each channel (`tf.nn.bias_add`).

    Raises:
        InputError: The numbers of channels and biases differ.
    """
    second = data_format is not None and data_format.startswith("NC")
    if value.ndim < 2 or bias.shape != (value.shape[1 if second else -1],):
        raise _refused(f"bias_add was given a bias of shape {bias.shape} and a value of shape {value.shape}.")
    return value + (bias.reshape(-1, *(1,) * (value.ndim - 2)) if second else bias)


def _refused(what: str) -> InputError:
    return InputError(what, "Correct the shapes.")


def _of_classes(value: Any) -> Any:
    x = jnp.asarray(value)
    if not x.ndim:
        raise _refused("Logits are a scalar.")
    return x


def _axis_within(x: Any, axis: Any) -> int:
    axis = -1 if axis is None else int(axis)
    if not -x.ndim <= axis < x.ndim:
        raise _refused(f"axis is {axis} for a tensor of shape {x.shape}.")
    return axis


@operation
def softmax_cross_entropy_with_logits(labels: Tensor, logits: Tensor, axis: int = -1) -> Any:
    """Return the cross entropy of probabilities and logits (`tf.nn.softmax_cross_entropy_with_logits`).

    Args:
        labels: Probabilities that add up to 1 along the axis.
        logits: A tensor of the same shape, not normalised.
        axis: The axis of the classes.

    Returns:
        A loss for each example, in the shape without the axis.

    Raises:
        InputError: The shapes do not fit.

    Example:
        >>> round(float(softmax_cross_entropy_with_logits([0.0, 1.0], [0.0, 0.0])), 4)
        0.6931
    """
    scores = _of_classes(logits)
    wanted = jnp.asarray(labels, scores.dtype)
    if wanted.ndim != scores.ndim or wanted.shape[axis] != scores.shape[axis]:
        raise _refused(f"Labels have shape {wanted.shape}, logits {scores.shape}.")
    return derivatives.softmax_cross_entropy(jnp.moveaxis(wanted, axis, -1), jnp.moveaxis(scores, axis, -1))


@operation
def sparse_softmax_cross_entropy_with_logits(labels: Array, logits: Tensor) -> Any:
    """Return the cross entropy between classes and logits (`tf.nn.sparse_softmax_cross_entropy_with_logits`).

    Args:
        labels: Whole numbers, of shape (...). In a compiled function a label that is not a class has the loss NaN.
        logits: A tensor of shape (..., classes), not normalised.

    Returns:
        A loss for each example, of the shape of `labels`.

    Raises:
        InputError: The shapes do not fit, or a label is not a class.
    """
    scores = _of_classes(logits)
    if labels.shape != scores.shape[:-1]:
        raise _refused(f"Labels have shape {labels.shape}, logits {scores.shape}.")
    refuse_outside(labels, scores.shape[-1], "Labels", "classes")
    inside = (labels >= 0) & (labels < scores.shape[-1])
    found = -jnp.take_along_axis(jax.nn.log_softmax(scores), jnp.where(inside, labels, 0)[..., None], -1)[..., 0]
    return jnp.where(inside, found, jnp.nan)


def _same_shape(labels: Any, logits: Any) -> tuple[Any, Any]:
    scores = jnp.asarray(tensor(logits))
    wanted = jnp.asarray(tensor(labels), scores.dtype)
    if scores.shape != wanted.shape:
        raise _refused(f"Labels have shape {wanted.shape}, logits {scores.shape}.")
    return wanted, scores


@operation
def sigmoid_cross_entropy_with_logits(labels: Any, logits: Any) -> Any:
    """Return the cross entropy of independent classes (`tf.nn.sigmoid_cross_entropy_with_logits`).

    Raises:
        InputError: The shapes differ.
    """
    wanted, scores = _same_shape(labels, logits)
    return derivatives.sigmoid_cross_entropy(wanted, scores)


@operation
def weighted_cross_entropy_with_logits(labels: Any, logits: Any, pos_weight: Tensor) -> Any:
    """Return `sigmoid_cross_entropy_with_logits` with a weight for true labels (`tf.nn.weighted_cross_...`).

    Raises:
        InputError: The shapes differ.
    """
    wanted, scores = _same_shape(labels, logits)
    (positive,) = operands(jnp.asarray(pos_weight, scores.dtype))
    weight = 1 + (positive - 1) * wanted
    away = jnp.log1p(jnp.exp(-derivatives.absolute(scores))) + derivatives.relu(-scores)
    return (1 - wanted) * scores + weight * away


@operation
def log_poisson_loss(targets: Any, log_input: Any, compute_full_loss: bool = False) -> Any:
    """Return the loss of counts given the logarithm of their expectation (`tf.nn.log_poisson_loss`).

    Raises:
        InputError: The shapes differ.
    """
    counts, logs = _same_shape(targets, log_input)
    loss = jnp.exp(logs) - logs * counts
    if not compute_full_loss:
        return loss
    stirling = counts * derivatives.log(counts) - counts + 0.5 * derivatives.log(2 * np.pi * counts)
    return loss + jnp.where((counts >= 0) & (counts <= 1), 0, stirling)


@operation
def l2_loss(t: Tensor) -> Any:
    """Return half the sum of squares (`tf.nn.l2_loss`).

    Example:
        >>> float(l2_loss([3.0, 4.0]))
        12.5
    """
    return xp(t).sum(xp(t).square(t)) / 2


@operation
def l2_normalize(x: Tensor, axis: Any = None, epsilon: float = 1e-12, name: str | None = None, dim: Any = None) -> Any:
    """Return a tensor divided by its norm along axes (`tf.math.l2_normalize`)."""
    numpy, along = xp(x), dim if axis is None else axis
    along = None if along is None else integers(along)
    return x * rsqrt(numpy.maximum(numpy.sum(numpy.square(x), axis=along, keepdims=True), epsilon))


@operation
def local_response_normalization(
    input: Array, depth_radius: int = 5, bias: float = 1.0, alpha: float = 1.0, beta: float = 0.5
) -> Any:
    """Return a tensor divided by sums of squares of neighbouring channels (`tf.nn.local_response_normalization`)."""
    window = [1] * (input.ndim - 1) + [2 * depth_radius + 1]
    sums = jax.lax.reduce_window(jnp.square(input), 0.0, jax.lax.add, window, [1] * input.ndim, "SAME")
    return input / (bias + alpha * sums) ** beta


lrn = local_response_normalization


@operation
def dropout(x: Array, rate: Any, noise_shape: Any = None, seed: Any = None) -> Any:
    """Return a tensor with some elements set to 0 and the others scaled up (`tf.nn.dropout`).

    Args:
        x: The tensor.
        rate: The fraction of elements set to 0, from 0 to 1.
        noise_shape: The shape of the random numbers, which are broadcast to the shape of `x`.
        seed: See `tf.random.uniform`.
    """
    if isinstance(rate, int | float) and rate == 0:
        return x
    shape = (
        x.shape if noise_shape is None else [s if n is None else n for n, s in zip(noise_shape, x.shape, strict=True)]
    )
    kept = uniform(shape, seed=seed) >= rate
    return jnp.where(kept, x / (1 - rate), jnp.zeros_like(x)).astype(x.dtype)


@operation
def embedding_lookup(params: Any, ids: Array, max_norm: Any = None) -> Any:
    """Return the rows of a table (`tf.nn.embedding_lookup`).

    Args:
        params: The table, of shape (rows, ...).
        ids: Whole numbers.
        max_norm: Rows longer than this are scaled down to it.

    Raises:
        InputError: There is no such row.
    """
    rows = gather(params, ids)
    return rows if max_norm is None else clip_by_norm(rows, max_norm, axes=list(range(ids.ndim, rows.ndim)))


@operation
def top_k(input: Array, k: Any = 1, sorted: bool = True, index_type: Any = "int32") -> Any:
    """Return the k greatest elements along the last axis, and their indices (`tf.math.top_k`).

    NaN counts as less than all other numbers; TensorFlow does not define its place.

    Raises:
        InputError: The axis has fewer elements.

    Example:
        >>> [part.tolist() for part in top_k([1.0, 3.0, 2.0], k=2)]
        [[3.0, 2.0], [1, 2]]
    """
    if not input.ndim or not 0 <= int(k) <= input.shape[-1]:
        raise InputError(
            f"top_k was asked for {int(k)} elements of a tensor of shape {input.shape}.",
            "Give a smaller k, or a tensor with an axis.",
        )
    ranked = jnp.where(jnp.isnan(input), -jnp.inf, input) if jnp.issubdtype(input.dtype, jnp.inexact) else input
    _, places = jax.lax.top_k(derivatives.constant(ranked), int(k))
    return TopK(jnp.take_along_axis(input, places, -1), places.astype(held(index_type)))


class TopK(NamedTuple):
    """The greatest elements, and their indices."""

    values: Any
    indices: Any


@operation
def in_top_k(targets: Array, predictions: Array, k: int) -> Any:
    """Return whether each target is among the k greatest predictions (`tf.math.in_top_k`).

    The answer is False for a target that is not a class, and for predictions that are not all finite.
    """
    inside = (targets >= 0) & (targets < predictions.shape[1])
    own = jnp.take_along_axis(predictions, jnp.where(inside, targets, 0)[:, None], 1)
    greater = jnp.sum(predictions > own, axis=1)
    unclear = ~jnp.isfinite(own[:, 0]) | jnp.any(~jnp.isfinite(predictions), axis=1)
    return inside & ~unclear & (greater < k)


def _approximate(name: str, compute: Callable[..., Any], which: str) -> Callable[..., Any]:
    def function(
        operand: Array,
        k: Any,
        reduction_dimension: int = -1,
        recall_target: float = 0.95,
        reduction_input_size_override: int = -1,
        aggregate_to_topk: bool = True,
    ) -> Any:
        options = (reduction_dimension, recall_target, reduction_input_size_override, aggregate_to_topk)
        return tuple(compute(operand, int(k), *options))

    text = f"""Return k of the {which} elements along an axis, and their indices: fast on a TPU, exact elsewhere.

    (`tf.math.{name}`, `tf.nn.{name}`)

    Args:
        operand: The tensor.
        k: The number of elements.
        reduction_dimension: The axis.
        recall_target: The part of the k {which} that must be found.
        reduction_input_size_override: The length of the axis to assume; -1 for its real length.
        aggregate_to_topk: Whether to merge the results of parts.
    """
    return operation(function, name, text)


approx_max_k = _approximate("approx_max_k", jax.lax.approx_max_k, "greatest")
approx_min_k = _approximate("approx_min_k", jax.lax.approx_min_k, "least")
