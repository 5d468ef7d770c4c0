"""Putting values that are not on the mesh there, equal on all workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from stratagem.replica.context import StrategyLike


def placed(strategy: StrategyLike, values: Sequence[Any], names: Sequence[str]) -> list[jax.Array]:
    """Return values with each on every device of the mesh. Where one is not there yet, the chief's counts.

    Every worker must call this at the same point.

    Args:
        strategy: Whose mesh.
        values: Arrays; those on the mesh already stay as they are.
        names: What the values are, for error messages.

    Raises:
        PeerError: Workers would place different things.
    """
    result = list(values)
    foreign = [i for i, value in enumerate(result) if not strategy.mesh.is_replicated(value)]
    if foreign:
        facts = {names[i]: f"{result[i].dtype}{list(result[i].shape)}" for i in foreign}
        strategy.check_agreement("values to place", facts)
        on_mesh = strategy.mesh.replicate_from_chief([result[i] for i in foreign])
        for i, value in zip(foreign, on_mesh, strict=True):
            result[i] = value
    return result
