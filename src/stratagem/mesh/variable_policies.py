"""Policies of variables: what replicas do with each, in one table.

Keras puts two attributes on every variable, `aggregation` and `synchronization`. Together with
the variable's role they choose a policy. `enter` gives each replica its view before a step, `merge`
makes one value of the replicas' results after it:

| policy | which variables                                | a replica starts from    | value after the step   |
| ------ | ---------------------------------------------- | ------------------------ | ---------------------- |
| SAME   | trainable; of the optimizer                    | the value                | any replica's          |
| SUM    | `aggregation="sum"`; metrics                   | the value on replica 0,  | the sum over replicas  |
|        |                                                | 0 on the others          |                        |
| MEAN   | `"mean"`, and unmarked floats (BatchNorm's)    | the value                | the mean, by rows      |
| FIRST  | `"only_first_replica"`, and unmarked integers  | the value                | the first replica's    |
| SEED   | states of seed generators                      | a stream of its own      | moved on by as many    |
|        |                                                |                          | draws                  |

A variable made with `synchronization=ON_READ` under `stratagem.tf` has a value for each replica, from which the
replica starts (`replica.on_read`); the policy says what is read outside steps.

Source of the semantics: `tf.VariableAggregation`, `tf.VariableSynchronization`
(https://www.tensorflow.org/api_docs/python/tf/VariableAggregation). TensorFlow has no rule for
unmarked variables that replicas change; taking the mean keeps BatchNorm's moving statistics in step.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from stratagem.mesh.exchange import Share
from stratagem.mesh.mesh import AXIS
from stratagem.mesh.packs import sum_over_replicas

# An odd constant near 2**32 / golden ratio: multiples of it differ in many bits (Knuth, TAOCP 6.4).
_STREAM: Final = 0x9E3779B9


class Policy(enum.Enum):
    """The policy of a variable: a row of the table above."""

    SAME = "same"
    SUM = "sum"
    MEAN = "mean"
    FIRST = "first"
    SEED = "seed"


def policy_of(variable: Any, *, metric: bool = False) -> Policy:
    """Choose the policy of a Keras variable.

    Args:
        variable: A `keras.Variable`.
        metric: Whether a metric owns it.
    """
    if variable.trainable:
        return Policy.SAME
    if variable.name == "seed_generator_state" and tuple(variable.shape) == (2,):
        return Policy.SEED
    aggregation = getattr(variable, "aggregation", "none")
    if aggregation == "sum" or (metric and aggregation == "none"):
        return Policy.SUM
    if aggregation == "mean" or (aggregation == "none" and jnp.issubdtype(variable.dtype, jnp.floating)):
        return Policy.MEAN
    return Policy.FIRST


def enter(policies: Sequence[Policy], values: Sequence[jax.Array]) -> list[jax.Array]:
    """Return this replica's view of each variable at the beginning of a step.

    Args:
        policies: One for each value.
        values: The variables' values, equal on all replicas.
    """
    replica = lax.axis_index(AXIS)
    views = []
    for policy, value in zip(policies, values, strict=True):
        if policy is Policy.SUM:
            value = jnp.where(replica == 0, value, jnp.zeros_like(value))
        elif policy is Policy.SEED:
            stream = (replica.astype(jnp.uint32) * jnp.uint32(_STREAM)).astype(value.dtype)
            value = value.at[0].set(value[0] ^ stream)
        views.append(value)
    return views


class Change(NamedTuple):
    """The change of a variable in a step, on this replica.

    Attributes:
        policy: The policy of the variable.
        share: The replica's part of the batch; without rows it leaves the variable as it saw it.
        value: The value before the step.
        view: What the replica saw of it (`enter`).
        after: The replica's value at the end of the step.
    """

    policy: Policy
    share: Share
    value: jax.Array
    view: jax.Array
    after: jax.Array


def merge(
    changes: Sequence[Change], pack_bytes: int | None, others: Sequence[jax.Array] = ()
) -> tuple[list[jax.Array], list[jax.Array]]:
    """Make one value of what each replica made of a variable, for each of several.

    Args:
        changes: This replica's.
        pack_bytes: Largest size of a pack, as in `sum_over_replicas`.
        others: Arrays to be summed in the same packs.

    Returns:
        (the new values, equal on all replicas; the sums of the others).
    """
    own = [_contribution(change) for change in changes]
    summands = [each for each in own if each is not None]
    sums = iter(sum_over_replicas([*summands, *others], pack_bytes))
    merged = [
        _left(change) if each is None else next(sums).astype(change.value.dtype)
        for change, each in zip(changes, own, strict=True)
    ]
    return merged, list(sums)


def _contribution(change: Change) -> jax.Array | None:
    """Return this replica's summand of the new value; None if that needs no other replica."""
    policy, share, after = change.policy, change.share, change.share.masked(change.after, change.view)
    if policy is Policy.SUM:
        return after
    if policy is Policy.MEAN:
        whole = not jnp.issubdtype(after.dtype, jnp.inexact)  # a weight of half would be 0
        return after * jnp.asarray(share.weight, jnp.float32 if whole else after.dtype)
    if policy is Policy.FIRST:
        return jnp.where(lax.axis_index(AXIS) == share.first, after, jnp.zeros_like(after))
    return None


def _left(change: Change) -> jax.Array:
    """Return the new value where each replica has it."""
    if change.policy is Policy.SEED:
        return change.value + (change.after - change.view)
    return change.after
