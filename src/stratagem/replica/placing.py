"""Putting values where variables lie, equal on all workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from stratagem.replica.context import StrategyLike


def placed(strategy: StrategyLike, values: Sequence[Any], names: Sequence[str]) -> list[jax.Array]:
    """Return values with each where variables lie. Where one is not there yet, the chief's counts.

    Every worker must call this at the same point.

    Args:
        strategy: Whose mesh.
        values: Arrays; those that lie there already, or have a part for each replica, stay as they are.
        names: What the values are, for error messages.

    Raises:
        PeerError: Workers would place different things.
    """
    result = list(values)
    mesh = strategy.mesh
    foreign = [i for i, value in enumerate(result) if not (mesh.keeps(value) or mesh.keeps_apart(value))]
    if foreign:
        facts = {names[i]: f"{result[i].dtype}{list(result[i].shape)}" for i in foreign}
        strategy.check_agreement("values to place", facts)
        kept = mesh.keep_from_chief([result[i] for i in foreign])
        for i, value in zip(foreign, kept, strict=True):
            result[i] = value
    return result
