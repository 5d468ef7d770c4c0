"""Losses of logits, with TensorFlow's derivatives.

Source of the rules: tensorflow/python/ops/nn_grad.py and nn_impl.py of TensorFlow 2.21.
"""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp

from stratagem.tf.derivatives.rules import Rule, constant, ruled


def softmax_cross_entropy_rules(axis: int) -> tuple[Rule, ...]:
    """Return the rules of `softmax_cross_entropy` along an axis."""
    return (
        lambda t, y, labels, logits, *_: -jnp.sum(t * jax.nn.log_softmax(logits, axis), axis),
        lambda t, y, labels, logits, *_: jnp.sum(t * (jax.nn.softmax(logits, axis) - constant(labels)), axis),
    )


softmax_cross_entropy: Final = ruled(
    lambda labels, logits: -jnp.sum(labels * jax.nn.log_softmax(logits), -1), *softmax_cross_entropy_rules(-1)
)
"""`SoftmaxCrossEntropyWithLogits` along the last axis: by the logits softmax - labels, also of labels that do not add
up to 1, and no derivative of that by the labels.
"""


def sigmoid_cross_entropy(labels: Any, logits: Any) -> Any:
    """Return the cross entropy of independent classes, of logits of any size.

    TensorFlow's formula: of two branches that meet at 0, the one of `logits >= 0` is taken there.
    """
    right = logits >= 0
    positive = jnp.where(right, logits, jnp.zeros_like(logits))
    return positive - logits * labels + jnp.log1p(jnp.exp(jnp.where(right, -logits, logits)))
