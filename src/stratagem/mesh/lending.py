"""Reading of variables that rest in shards of several processes: a process that reads them is lent the wholes.

In one process JAX puts the shards together when somebody reads an array. Of several processes none can read what others
hold, so all put it together at one point. A variable has its shard back afterwards; or before the next step, where a
callback may read it after an epoch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from stratagem.mesh.mesh import is_divided, resharding
from stratagem.mesh.shards import rests_divided

_NAME = "lent_whole"
"""Attribute of a variable: its shard, and the whole that stands in its place."""


def is_in_shards(value: object) -> bool:
    """Whether a value is divided among devices, here or elsewhere."""
    return isinstance(value, jax.Array) and not value.is_fully_replicated


def whole(value: jax.Array) -> jax.Array:
    """Put a divided value together on all devices. All workers call it at the same point."""
    assert isinstance(value.sharding, NamedSharding), "what is divided lies on a mesh"
    return resharding(NamedSharding(value.sharding.mesh, PartitionSpec()))(value)


def lend(variables: Iterable[Any], *, reads: bool) -> list[Any]:
    """Put the values of variables together. All workers call it at the same point with the same variables.

    They are put together one by one: a worker that does not read them holds no more than one.

    Args:
        variables: Variables; those that this process can read are left alone.
        reads: Whether this worker reads them.

    Returns:
        Those that were lent to this worker now.
    """
    lent = []
    for variable in variables:
        value = variable.value
        shard = _resting(variable, value)
        if not is_divided(shard) or shard.shape != tuple(variable.shape):  # or has a value for each replica
            continue
        together = whole(shard)
        if reads and shard is value:
            own = jnp.asarray(np.asarray(together.addressable_data(0)))
            setattr(variable, _NAME, (shard, own))
            variable.assign(own)
            lent.append(variable)
    return lent


def give_back(lent: Iterable[Any]) -> None:
    """Give variables their shards back, but for those that were assigned something else meanwhile.

    Args:
        lent: What `lend` returned.
    """
    for variable in lent:
        value = variable.value
        shard = _resting(variable, value)
        if shard is not value:
            variable.assign(shard)
        delattr(variable, _NAME)


def divided_value(variable: Any) -> Any:
    """Return the value of a variable that rests in shards of several processes; None of one that this one can read."""
    if not rests_divided(variable):
        return None
    value = _resting(variable, variable.value)
    return value if is_divided(value) else None


def resting(variables: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """Return values with the shards in the place of wholes that were lent.

    Args:
        variables: Variables.
        values: One for each.
    """
    return [_resting(variable, value) for variable, value in zip(variables, values, strict=True)]


@contextlib.contextmanager
def readable(variables: Iterable[Any], *, reads: bool) -> Iterator[None]:
    """Let a worker read variables whole in this context. All workers enter it at the same point.

    Args:
        variables: Variables.
        reads: Whether this worker reads them.
    """
    lent = lend(variables, reads=reads)
    try:
        yield
    finally:
        give_back(lent)


def _resting(variable: Any, value: Any) -> Any:
    known = getattr(variable, _NAME, None)
    return known[0] if known is not None and value is known[1] else value
