"""Changes to variables, as they travel: an operation and its arrays for each part that a parameter server holds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from stratagem.program.remote_values import RowChange

SLOT: Final = "|"
"""Stands in the name of a slot: `part|optimizer|number`."""

Operation: TypeAlias = Mapping[str, Any]
"""An `op` ("set", "add" or "apply"), the `name` of a part, and what `apply` needs; with `in_rows` it has two arrays."""


@dataclass(frozen=True, slots=True)
class Location:
    """Where a part of a variable, or of a slot, lives.

    Args:
        server: Index of the parameter server.
        name: Its name there.
        rows: How many rows of the first axis; None for a variable that is one part.
    """

    server: int
    name: str
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A change to a variable.

    Args:
        op: "set", "add" or "apply".
        parts: Where it lives.
        value: A new value, a summand or a gradient, of the variable's shape; or a gradient's rows (`RowChange`).
        more: Other fields of its operations: of "apply" `optimizer`, `iterations`, `rate`; of all `together`, how
            those of several workers make one in a round.
    """

    op: str
    parts: Sequence[Location]
    value: Any
    more: Mapping[str, Any] = field(default_factory=dict)

    def operations(self) -> Iterator[tuple[Location, dict[str, Any], list[np.ndarray]]]:
        """Yield the operation for each part, and its arrays.

        Example:
            >>> parts = [Location(0, "table/part_0", 2), Location(1, "table/part_1", 3)]
            >>> for part, operation, arrays in Change("add", parts, np.arange(5)).operations():
            ...     part.server, operation, [array.tolist() for array in arrays]
            (0, {'op': 'add', 'name': 'table/part_0'}, [[0, 1]])
            (1, {'op': 'add', 'name': 'table/part_1'}, [[2, 3, 4]])
        """
        arrays: list[list[np.ndarray]]
        more = dict(self.more)
        if isinstance(self.value, RowChange):
            rows = np.split(self.value.values, np.searchsorted(self.value.ids, _ends(self.parts)))
            arrays = [list(pair) for pair in zip(ids_by_part(self.parts, self.value.ids), rows, strict=True)]
            more["in_rows"] = True
        else:
            arrays = [[piece] for piece in divided(np.asarray(self.value), self.parts)]
        for part, own in zip(self.parts, arrays, strict=True):
            yield part, {"op": self.op, "name": part.name, **more}, own


def with_arrays(
    operations: Sequence[Operation], arrays: Sequence[np.ndarray]
) -> Iterator[tuple[Operation, np.ndarray | None, np.ndarray]]:
    """Yield each operation, which rows it is of (None for all), and its array."""
    given = iter(arrays)
    for operation in operations:
        yield operation, next(given) if operation.get("in_rows") else None, next(given)


def divided(value: np.ndarray, parts: Sequence[Location]) -> list[np.ndarray]:
    """Return the pieces of a variable's value, by its parts."""
    return np.split(value, _ends(parts)) if len(parts) > 1 else [value]


def ids_by_part(parts: Sequence[Location], ids: np.ndarray | None) -> list[Any]:
    """Return which rows of each part are meant by ascending rows of the whole; None for all.

    Example:
        >>> parts = [Location(0, "table/part_0", 2), Location(1, "table/part_1", 3)]
        >>> [own.tolist() for own in ids_by_part(parts, np.array([1, 2, 4]))]
        [[1], [0, 2]]
    """
    if ids is None:
        return [None] * len(parts)
    ends = _ends(parts)
    own_ids = np.split(ids, np.searchsorted(ids, ends))
    return [own - start for own, start in zip(own_ids, [0, *ends], strict=True)]


def _ends(parts: Sequence[Location]) -> list[int]:
    """Return where the parts of a variable end, except for the last."""
    return list(itertools.accumulate(part.rows or 0 for part in parts[:-1]))
