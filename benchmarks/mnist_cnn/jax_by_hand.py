"""The same network written by hand in JAX: one jitted step, one sum of one pack over Gloo, its own loop.

What an expert writes without any framework.
"""

from __future__ import annotations

import json
import os
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from network import ROWS_PER_WORKER, SEED
from turns import Turns

turns = Turns(jax=jax.__version__)  # first: Gloo would print into its answers
tf_config = json.loads(os.environ["TF_CONFIG"])
workers, rank = tf_config["cluster"]["worker"], tf_config["task"]["index"]
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(workers[0], len(workers), rank)
mesh = jax.make_mesh((len(workers),), ("worker",))
x, y = turns.rows(ROWS_PER_WORKER * len(workers))

Layers = tuple[tuple[jax.Array, jax.Array], ...]
"""Weights and biases of each layer."""


def loss_and_accuracy(layers: Layers, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the mean loss of these rows, and which share of them is right."""
    (kernel, shift), (inner, inner_bias), (outer, outer_bias) = layers
    channels_last = ("NHWC", "HWIO", "NHWC")
    maps = jax.lax.conv_general_dilated(images[..., None], kernel, (1, 1), "VALID", dimension_numbers=channels_last)
    hidden = jax.nn.relu(maps + shift).reshape(len(images), -1)
    hidden = jax.nn.relu(hidden @ inner + inner_bias)
    logits = hidden @ outer + outer_bias
    loss = -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1).mean()
    return loss, (logits.argmax(1) == labels).mean()


@partial(jax.jit, donate_argnums=0)
@partial(jax.shard_map, mesh=mesh, in_specs=(P(), P("worker"), P("worker")), out_specs=P(), check_vma=False)
def step(state: tuple[Layers, jax.Array], images: jax.Array, labels: jax.Array) -> tuple[Layers, jax.Array]:
    """Return the layers after a step, and the sums of losses and accuracies.

    With `check_vma` JAX would sum each gradient by itself, as it is that of a weight that all workers have in common.
    """
    layers, totals = state
    own, gradients = jax.value_and_grad(loss_and_accuracy, has_aux=True)(layers, images, labels)
    pack, unpack = ravel_pytree((gradients, jnp.stack(own)))
    gradients, means = unpack(jax.lax.pmean(pack, "worker"))
    return jax.tree.map(lambda weight, gradient: weight - 0.001 * gradient, layers, gradients), totals + means


def epoch(layers: Layers) -> tuple[Layers, float]:
    """Train an epoch; return the layers, and its loss, read once like the metrics of `fit`.

    No step waits for the one before: waiting costs 2 to 4 ms a step here.
    """
    state = layers, on_all(np.zeros(2, np.float32))
    for first in range(rank * ROWS_PER_WORKER, len(x), len(workers) * ROWS_PER_WORKER):
        own = slice(first, first + ROWS_PER_WORKER)
        state = step(state, *(jax.make_array_from_process_local_data(split, rows[own]) for rows in (x, y)))
    layers, totals = state
    return layers, float(totals[0]) / turns.steps


on_all = partial(jax.make_array_from_process_local_data, NamedSharding(mesh, P()))
split = NamedSharding(mesh, P("worker"))
glorot = jax.nn.initializers.glorot_uniform()
shapes = (3, 3, 1, 32), (26 * 26 * 32, 128), (128, 10)
keys = jax.random.split(jax.random.key(SEED), len(shapes))
starts = [(glorot(key, shape), np.zeros(shape[-1], np.float32)) for key, shape in zip(keys, shapes, strict=True)]
layers = jax.tree.map(lambda start: on_all(np.asarray(start)), tuple(starts))
while True:
    layers, loss = epoch(layers)
    if not turns.finish(loss):
        break
