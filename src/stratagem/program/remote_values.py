"""Values that are kept elsewhere, on parameter servers: read and written many at a time.

A program reads the variables it touches before it runs and assigns them after it. One request for all of them costs a
round trip; one for each would cost as many as there are variables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


class Residence(Protocol):
    """A place where variables live. A variable that lives there has it as its attribute `residence`."""

    def read(self, variables: Sequence[Any]) -> list[Any]:
        """Return the values of variables, and of `RowsOf` and `Taken` such, that live here."""
        ...

    def write(self, changes: Sequence[tuple[Any, Any]]) -> None:
        """Give variables that live here new values: pairs of a variable and its value, or `RowChange`."""
        ...

    def exchange(self, variable: Any, before: np.ndarray, after: np.ndarray) -> bool:
        """Give a variable a new value if it still has the one before; return whether it had."""
        ...


@dataclass(frozen=True)
class RowsOf:
    """Some rows of a variable, to be read.

    Args:
        variable: A variable that lives elsewhere.
        ids: Which rows, ascending.
    """

    variable: Any
    ids: np.ndarray

    @property
    def residence(self) -> Residence:
        """Place at which the variable lives."""
        return self.variable.residence


@dataclass(frozen=True)
class Taken:
    """The value of a variable, which goes on at the moment at which it is read: nobody else gets the same.

    Args:
        variable: A variable that lives elsewhere.
        step: What is added to it.
    """

    variable: Any
    step: np.ndarray

    @property
    def residence(self) -> Residence:
        """Place at which the variable lives."""
        return self.variable.residence


@dataclass(frozen=True)
class Known:
    """Stands in the place of a variable whose value has been read.

    Args:
        value: The value.
    """

    value: Any


@dataclass(frozen=True)
class RowChange:
    """A change of some rows of a variable.

    Args:
        ids: Which rows, ascending.
        values: One for each of them.
    """

    ids: np.ndarray
    values: np.ndarray


def lives_elsewhere(variable: Any) -> bool:
    """Whether a variable's value is kept elsewhere."""
    return getattr(variable, "residence", None) is not None


def values_of(variables: Sequence[Any]) -> list[Any]:
    """Return the values of variables; those that live elsewhere are fetched together.

    Args:
        variables: Keras variables, and `RowsOf`, `Taken` and `Known` such.
    """
    if not variables:
        return []
    groups = _groups(variables)
    values: list[Any] = [None] * len(variables)
    for residence, places in groups:
        chosen = [variables[place] for place in places]
        found = list(map(_own_value, chosen)) if residence is None else residence.read(chosen)
        for place, value in zip(places, found, strict=True):
            values[place] = value
    return values


def _own_value(variable: Any) -> Any:
    """Return what a program is given of a variable that is kept here; a user may not read every one outside."""
    read: Callable[[], Any] | None = getattr(variable, "read_together", None)
    return variable.value if read is None else read()


def assign_all(variables: Sequence[Any], values: Sequence[Any]) -> None:
    """Give variables new values; those that live elsewhere are sent together.

    Args:
        variables: Keras variables.
        values: One for each; `RowChange` where only rows change.
    """
    for residence, places in _groups(variables):
        if residence is None:
            for place in places:
                variable = variables[place]
                getattr(variable, "assign_together", variable.assign)(values[place])
        else:
            residence.write([(variables[place], values[place]) for place in places])


def _groups(variables: Sequence[Any]) -> list[tuple[Residence | None, list[int]]]:
    groups: dict[int, tuple[Residence | None, list[int]]] = {}
    for place, variable in enumerate(variables):
        residence = getattr(variable, "residence", None)
        groups.setdefault(id(residence), (residence, []))[1].append(place)
    return list(groups.values())
