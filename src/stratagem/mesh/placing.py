"""Placing of variables' values where variables lie, equal on all workers, and putting parts of them together."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import jax

from stratagem.mesh.mesh import ReplicaMesh


class Agreeing(Protocol):
    """A strategy, as far as it is needed here."""

    mesh: ReplicaMesh

    def check_agreement(self, name: str, fields: Mapping[str, str | int]) -> None: ...


def placed(strategy: Agreeing, values: Sequence[Any], variables: Sequence[Any]) -> list[jax.Array]:
    """Return values with each where variables lie. Where one is not there yet, the chief's counts.

    Every worker must call this at the same point.

    Args:
        strategy: Whose mesh.
        values: Arrays; those that lie there already, or have a part for each replica, stay as they are.
        variables: Whose values they are, for error messages.

    Raises:
        PeerError: Workers would place different things.
    """
    result = list(values)
    mesh = strategy.mesh
    foreign = [i for i, value in enumerate(result) if not (mesh.keeps(value) or mesh.keeps_apart(value))]
    if foreign:
        facts = {f"variable {i} {variables[i].path}": f"{result[i].dtype}{list(result[i].shape)}" for i in foreign}
        strategy.check_agreement("values to place", facts)
        kept = mesh.keep_from_chief([result[i] for i in foreign])
        for i, value in zip(foreign, kept, strict=True):
            result[i] = value
    return result


_puts_together: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def holds_parts(model: Any, put_together: Callable[[Any], None]) -> None:
    """Note that a model may hold values of which each replica has a part.

    Args:
        model: The model.
        put_together: Given the model, makes the values of its variables whole. It is collective.
    """
    _puts_together[model] = put_together


def make_whole(model: Any) -> None:
    """Make the values of a model's variables whole. All workers must call it at the same point."""
    put_together = _puts_together.get(model)
    if put_together is not None:
        put_together(model)
