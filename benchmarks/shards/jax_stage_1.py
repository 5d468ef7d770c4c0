"""The network by hand in JAX with slots in shards, as an expert writes it: `jax_stage_1.py DATA STEPS`.

Gradients travel as one pack, of whose sum each worker gets a part. It has optax's slots for that part, updates that
part of the weights, and all parts travel back as one pack, which is what the workers keep.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import PartitionSpec as P
from jax_training import WORKERS, mean_loss, optimizer, sum_in_parts, train_in_turns
from network import first_weights
from optax import apply_updates, tree  # pyright: ignore[reportMissingImports]

flat, unpack = ravel_pytree(first_weights())
PADDING = -flat.size % WORKERS


def loss_of(weights: list[jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    *hidden, kernel, bias = weights
    for own, shift in zip(hidden[::2], hidden[1::2], strict=True):
        x = jax.nn.relu(x @ own + shift)
    return mean_loss(x @ kernel + bias, y)


def step(state: Any, total: jax.Array, x: jax.Array, y: jax.Array) -> Any:
    """Return the weights and this worker's slots after a step, and the sum of losses."""
    pack, slots = state
    loss, gradients = jax.value_and_grad(loss_of)(unpack(pack[: pack.size - PADDING]), x, y)
    own = sum_in_parts(jnp.pad(ravel_pytree(gradients)[0], (0, PADDING)))
    part = lax.dynamic_slice_in_dim(pack, lax.axis_index("worker") * own.size, own.size)
    change, slots = optimizer.update(own, slots)
    return (lax.all_gather(apply_updates(part, change), "worker", tiled=True), slots), total + loss


pack = jnp.pad(flat, (0, PADDING))
slots = optimizer.init(pack)
divided = tree.map_params(optimizer, lambda _: P("worker"), slots, transform_non_params=lambda _: P())
train_in_turns((pack, slots), (P(), divided), step)
