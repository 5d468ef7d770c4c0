"""What a parameter server holds: parts of variables, their slots, one lock for each part."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from stratagem.core.errors import InputError, UnavailableError, UsageError
from stratagem.mesh.mesh import Device
from stratagem.ps.compat import accumulates
from stratagem.ps.row_updates import RowUpdater, spread
from stratagem.ps.updates import Updater

SLOT: Final = "|"
"""Stands in the name of a slot: `part|optimizer|number`."""


@dataclass(slots=True)
class Part:
    """A part of a variable.

    Args:
        value: Its value. An array that cannot be written to is never changed, only replaced: whoever reads it has one
            moment's value. One that can is a table whose rows are changed in place; it is read as a copy.
        variable: The name of the variable it is of.
        constraint: What the value must fulfil after an update.
        lazy: Whether rows without a gradient may stay as they are, whatever the optimizer.
        version: How often it was changed.
        slots: The optimizers' slots, by optimizer.
        awaited: What must be restored before the part is used: "" for the value, `optimizer|number` for slots.
        lock: Held while it is changed.
    """

    value: Any
    variable: str = ""
    constraint: Any = None
    lazy: bool = False
    version: int = 0
    slots: dict[str, list[Any]] = field(default_factory=dict)
    awaited: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Store:
    """Parts of variables by name. Every method may be called by several threads at once.

    Args:
        device: Where updates are computed; the first CPU when None.
    """

    def __init__(self, device: Device | None = None) -> None:
        self._device = device or jax.local_devices(backend="cpu")[0]
        self._parts: dict[str, Part] = {}
        self._optimizers: dict[str, Any] = {}
        self._updaters: dict[Any, Updater] = {}
        self._row_updaters: dict[Any, RowUpdater] = {}
        self._lock = threading.Lock()
        self.updates = 0
        """How many gradients were applied."""
        self.staleness = 0
        """How many other changes came between reading a part and applying its gradient, over all updates."""
        self.max_staleness = 0
        """The same, of the update with the most."""

    def create(
        self, name: str, value: np.ndarray, variable: str = "", constraint: Any = None, *, lazy: bool = False
    ) -> None:
        """Take a part in. If it is here already it stays as it is: a chief that comes back says everything again."""
        with self._lock:
            self._parts.setdefault(name, Part(_constant(np.array(value)), variable, constraint, lazy))

    def expect(
        self, name: str, shape: Sequence[int], dtype: str, slots: Sequence[str],
        variable: str = "", constraint: Any = None, *, lazy: bool = False,
    ) -> None:  # fmt: skip
        """Take a part in whose value, and slots, are to be restored: until then whoever uses it gets an error.

        Args:
            name: Its name.
            shape: Of its value.
            dtype: The same.
            slots: Those that are to be restored too, as `optimizer|number`.
            variable: See `Part`; also what follows.
            constraint: The same.
            lazy: The same.
        """
        self.create(name, np.zeros(shape, jnp.dtype(dtype)), variable, constraint, lazy=lazy)
        self._part(name).awaited.update(["", *slots])

    def define_optimizer(self, name: str, recipe: Any) -> None:
        """Take an optimizer in (`compat.optimizer_recipe`); a second time it is the same."""
        with self._lock:
            self._optimizers.setdefault(name, recipe)

    def remove(self, names: Sequence[str], optimizers: Sequence[str]) -> None:
        """Forget parts with their slots, and optimizers; of those that are not here nothing is said."""
        with self._lock:
            for name in names:
                self._parts.pop(name, None)
            for key in optimizers:
                self._optimizers.pop(key, None)
            for known in (self._updaters, self._row_updaters):
                for key in [key for key in known if key[0] in optimizers]:
                    del known[key]

    def names(self) -> list[str]:
        """Return the names of all parts."""
        with self._lock:
            return list(self._parts)

    def read(self, name: str, ids: np.ndarray | None = None) -> tuple[np.ndarray, int]:
        """Return the value, or rows of it, and the version of a part; of a slot, with the part's version."""
        name, _, slot = name.partition(SLOT)
        part = self._part(name)
        with part.lock:
            _require_restored(name, part, slot)
            value = np.asarray(self._slot(part, slot) if slot else part.value)
            if ids is not None:
                return value[_existing(name, ids, value)], part.version
            return value.copy() if value.flags.writeable else value, part.version

    def write(self, name: str, value: np.ndarray) -> None:
        """Replace the value of a part or slot; the array is kept, and nobody may change it."""
        name, _, slot = name.partition(SLOT)
        part = self._part(name)
        with part.lock:
            before = self._slot(part, slot) if slot else part.value
            new = _constant(_fitting(name, value, before))
            if slot:
                optimizer, _, number = slot.partition(SLOT)
                part.slots[optimizer][int(number)] = new
            else:
                part.value = new
            part.awaited.discard(slot)
            part.version += 1

    def add(self, name: str, value: np.ndarray) -> None:
        """Add to the value of a part; no addition is lost, whoever else adds."""
        part = self._part(name)
        with part.lock:
            _require_restored(name, part, "")
            part.value = _constant(np.asarray(np.asarray(part.value) + _fitting(name, value, part.value)))
            part.version += 1

    def apply(
        self, name: str, gradient: np.ndarray, optimizer: str, iterations: int, rate: float, seen: int | None,
        ids: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        """Update a part by a gradient.

        Args:
            name: The part.
            gradient: Of its shape; or with `ids` of some rows, and zero elsewhere.
            optimizer: Which optimizer.
            iterations: Updates before this one, as the worker knew them.
            rate: The learning rate.
            seen: The version that the gradient was computed with, None where nobody knows.
            ids: Which rows, each once; None for all.
        """
        part = self._part(name)
        with part.lock:
            _require_restored(name, part, *part.awaited)
            if ids is not None:
                _existing(name, ids, part.value)
                gradient = _fitting(name, gradient, part.value[: len(ids)])
            by_rows = None if ids is None else self._row_updater(optimizer, part)
            if ids is not None and by_rows is not None:
                if len(ids):
                    slots = part.slots.get(optimizer) or by_rows.new_slots(len(part.value))
                    part.value, part.slots[optimizer] = by_rows(part.value, slots, ids, gradient, iterations, rate)
            else:
                updater = self._updater(optimizer, part)
                slots = part.slots.get(optimizer) or updater.new_slots()
                whole = gradient if ids is None else spread(ids, gradient, part.value.shape)
                whole = _fitting(name, whole, part.value)
                part.value, part.slots[optimizer] = updater(part.value, whole, slots, iterations, rate)
            stale = 0 if seen is None else part.version - seen
            part.version += 1
        with self._lock:
            self.updates += 1
            self.staleness += stale
            self.max_staleness = max(self.max_staleness, stale)

    def _part(self, name: str) -> Part:
        with self._lock:
            part = self._parts.get(name)
        if part is None:
            raise UnavailableError(
                f"This parameter server has no variable {name!r}.",
                "It was lost when the server was started again, or never came.",
                "Let the chief begin again from its last checkpoint.",
            )
        return part

    def _slot(self, part: Part, slot: str) -> Any:
        optimizer, _, number = slot.partition(SLOT)
        slots = part.slots.get(optimizer)
        if slots is None:
            slots = part.slots[optimizer] = self._updater(optimizer, part).new_slots()
        return slots[int(number)]

    def _row_updater(self, optimizer: str, part: Part) -> RowUpdater | None:
        """Return what updates rows of a part alone; None where all its rows must be updated."""
        row, dtype = np.shape(part.value)[1:], part.value.dtype
        key = (optimizer, row, dtype.name, part.variable, part.constraint)
        found = self._row_updaters.get(key)
        if found is None:
            found = RowUpdater(lambda rows: self._updater(optimizer, part, rows), row, dtype)
            self._row_updaters[key] = found
        may_be_lazy = part.lazy and found.separate and not accumulates(self._optimizers[optimizer])
        return found if found.exact or may_be_lazy else None

    def _updater(self, optimizer: str, part: Part, rows: int | None = None) -> Updater:
        """Return an optimizer for variables like a part, with its number of rows or another."""
        shape, dtype = np.shape(part.value), part.value.dtype.name
        shape = shape if rows is None else (rows, *shape[1:])
        key = (optimizer, shape, dtype, part.variable, part.constraint)
        with self._lock:
            if optimizer not in self._optimizers:
                raise InputError(f"This parameter server does not know optimizer {optimizer!r}.")
            if key not in self._updaters:
                self._updaters[key] = Updater(
                    self._optimizers[optimizer], shape, dtype, part.variable, part.constraint, self._device
                )
            return self._updaters[key]


def _constant(value: np.ndarray) -> np.ndarray:
    """Return an array that cannot be written to from now on."""
    value.setflags(write=False)
    return value


def _existing(name: str, ids: np.ndarray, value: Any) -> np.ndarray:
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or (ids.size and (ids.min() < 0 or ids.max() >= len(value))):
        raise InputError(
            f"Rows of {name!r} were asked for that it does not have; it has {len(value)}.",
            "Other rows would be read, or updated.",
            "Let workers and servers run the same version of Stratagem, and the same program.",
        )
    return ids


def _require_restored(name: str, part: Part, *needed: str) -> None:
    if part.awaited.isdisjoint(needed):
        return
    what = f"{'' if '' in part.awaited else 'the slots of '}{name.partition('#')[0]!r}"
    raise UsageError(
        f"No value for {what}: a parameter server was lost, and nothing has restored it.",
        "Training would go on with zeros.",
        "Restore a checkpoint that holds it (with the optimizer), or assign to it first.",
    )


def _fitting(name: str, value: np.ndarray, before: Any) -> np.ndarray:
    if np.shape(value) != np.shape(before):
        raise InputError(
            f"A value of shape {np.shape(value)} came for {name!r}, which has shape {np.shape(before)}.",
            "The variable would change its shape.",
            "Give a value of the variable's shape.",
        )
    return np.asarray(value).astype(before.dtype, copy=False)


def change(store: Store, operations: Sequence[Mapping[str, Any]], arrays: Sequence[np.ndarray]) -> None:
    """Change parts one after another.

    Args:
        store: The store.
        operations: For each an `op` ("set", "add" or "apply"), a `name` and what `apply` needs; with `in_rows` the
            gradient is of some rows.
        arrays: One for each; before a gradient of some rows, which rows.

    Raises:
        InputError: There is no such operation, or an array does not fit.
    """
    for operation, ids, array in with_arrays(operations, arrays):
        match operation:
            case {"op": "set", "name": str(name)}:
                store.write(name, array)
            case {"op": "add", "name": str(name)}:
                store.add(name, array)
            case {"op": "apply", "name": str(name), "optimizer": str(key), "iterations": int(i), "rate": rate}:
                store.apply(name, array, key, i, float(rate), operation.get("seen"), ids)
            case _:
                raise InputError(f"A parameter server cannot do {dict(operation)!r}.")


def with_arrays(
    operations: Sequence[Mapping[str, Any]], arrays: Sequence[np.ndarray]
) -> Iterator[tuple[Mapping[str, Any], np.ndarray | None, np.ndarray]]:
    """Yield each operation, which rows it is of (None for all), and its array."""
    given = iter(arrays)
    for operation in operations:
        yield operation, next(given) if operation.get("in_rows") else None, next(given)
