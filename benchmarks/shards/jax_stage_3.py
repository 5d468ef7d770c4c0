"""The network by hand in JAX with weights and slots in shards, as an expert writes it: `jax_stage_3.py DATA STEPS`.

Each worker holds rows of the kernels. A layer gathers its kernel in the forward pass, and again in the backward pass,
as `jax.checkpoint` keeps nothing of it. Biases and the small last layer are whole, and their gradients travel as one
pack.
"""

from __future__ import annotations

from typing import Any

import jax
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import PartitionSpec as P
from jax_training import mean_loss, optimizer, sum_in_parts, train_in_turns
from network import first_weights
from optax import apply_updates, tree  # pyright: ignore[reportMissingImports]


@jax.custom_vjp
def gathered(rows: jax.Array) -> jax.Array:
    """Return all rows. The derivative is a sum, of which each worker gets its rows."""
    return lax.all_gather(rows, "worker", tiled=True)


gathered.defvjp(lambda rows: (gathered(rows), None), lambda _, change: (sum_in_parts(change),))


@jax.checkpoint
def dense(x: jax.Array, rows: jax.Array, bias: jax.Array) -> jax.Array:
    return jax.nn.relu(x @ gathered(rows) + bias)


def loss_of(kernels: list[jax.Array], others: list[jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    *biases, kernel, bias = others
    for rows, shift in zip(kernels, biases, strict=True):
        x = dense(x, rows, shift)
    return mean_loss(x @ kernel + bias, y)


def step(state: Any, total: jax.Array, x: jax.Array, y: jax.Array) -> Any:
    """Return this worker's weights and slots after a step, and the sum of losses."""
    weights, slots = state
    loss, (of_kernels, of_others) = jax.value_and_grad(loss_of, argnums=(0, 1))(*weights, x, y)
    pack, unpack = ravel_pytree(of_others)
    change, slots = optimizer.update((of_kernels, unpack(lax.psum(pack, "worker"))), slots)
    return (apply_updates(weights, change), slots), total + loss


start = first_weights()
weights = start[:-2:2], start[1:-2:2] + start[-2:]
specs = [P("worker") for _ in weights[0]], [P() for _ in weights[1]]
slots = optimizer.init(weights)
divided = tree.map_params(optimizer, lambda _, spec: spec, slots, specs, transform_non_params=lambda _: P())
train_in_turns((weights, slots), (specs, divided), step)
