"""Values that are divided among devices, of this process or of others."""

from __future__ import annotations

import jax
from jax.sharding import NamedSharding


def is_divided(value: object) -> bool:
    """Whether other processes hold parts of a value, so that this one cannot read it alone."""
    return isinstance(value, jax.Array) and not (value.is_fully_addressable or value.is_fully_replicated)


def is_in_shards(value: object) -> bool:
    """Whether a value is divided among devices, here or elsewhere."""
    return isinstance(value, jax.Array) and not value.is_fully_replicated


def sharding_of(value: jax.Array) -> NamedSharding:
    """Return how a value lies that is divided: it is on a mesh."""
    assert isinstance(value.sharding, NamedSharding), "what is divided lies on a mesh"
    return value.sharding
