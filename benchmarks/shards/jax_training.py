"""The mesh of workers in JAX by hand, over Gloo, and the loop around a step, for whatever rests in shards."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
import optax  # pyright: ignore[reportMissingImports]
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from network import EPSILON, LEARNING_RATE, ROWS
from turns import Turns

turns = Turns(jax=jax.__version__, optax=optax.__version__)  # first: Gloo would print into its answers
tf_config = json.loads(os.environ["TF_CONFIG"])
addresses, rank = tf_config["cluster"]["worker"], tf_config["task"]["index"]
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(addresses[0], len(addresses), rank)
mesh = jax.make_mesh((len(addresses),), ("worker",))
optimizer = optax.adam(LEARNING_RATE, eps=EPSILON)

WORKERS = len(addresses)


def mean_loss(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Return what a worker's rows add to the mean loss of all rows."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean() / WORKERS


def sum_in_parts(values: jax.Array) -> jax.Array:
    """Return this worker's rows of the sum of all workers' values.

    Not `lax.psum_scatter`: over Gloo its sums are wrong now and then (docs/upstream.md). As many bytes cross.
    """
    parts = values.reshape(WORKERS, -1, *values.shape[1:])
    return jax.lax.all_to_all(parts, "worker", 0, 0).sum(0)


def train_in_turns(state: Any, specs: Any, step: Callable[..., Any]) -> None:
    """Train an epoch a turn; its loss is read once, like that of `fit`.

    Args:
        state: Weights and slots, whole.
        specs: How they lie on the workers, a `PartitionSpec` for each.
        step: Function of one worker's state, sum of losses and rows that returns the new state and sum.
    """
    one_each, alike = P("worker"), P()
    of_worker = partial(jax.shard_map, mesh=mesh, check_vma=False)
    run = of_worker(step, in_specs=(specs, one_each, one_each, one_each), out_specs=(specs, one_each))
    run = jax.jit(run, donate_argnums=(0, 1))
    state = jax.tree.map(lambda spec, value: _placed(value, spec), specs, state, is_leaf=lambda each: type(each) is P)
    x, y = (_split(array) for array in turns.rows(ROWS * WORKERS))
    while True:
        total = _placed(np.zeros(WORKERS, np.float32), one_each)
        for rows in zip(x, y, strict=True):
            own = (jax.make_array_from_process_local_data(NamedSharding(mesh, one_each), each) for each in rows)
            state, total = run(state, total, *own)
        loss = jax.jit(jax.numpy.sum, out_shardings=NamedSharding(mesh, alike))(total)
        if not turns.finish(float(loss) / turns.steps):
            break


def _split(array: np.ndarray) -> np.ndarray:
    """Return this worker's rows of each step."""
    return array.reshape(turns.steps, WORKERS, ROWS, *array.shape[1:])[:, rank]


def _placed(value: Any, spec: P) -> jax.Array:
    whole = np.asarray(value)
    return jax.make_array_from_callback(whole.shape, NamedSharding(mesh, spec), lambda index: whole[index])
