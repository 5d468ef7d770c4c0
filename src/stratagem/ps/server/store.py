"""Parts of variables as a parameter server holds them, with their slots and a lock for each."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from stratagem.core.errors import InputError, UnavailableError, UsageError
from stratagem.core.freed_memory import keep_freed_memory_for_cpu
from stratagem.ps.changes import SLOT, Operation, with_arrays
from stratagem.ps.compat import accumulates
from stratagem.ps.server.row_updates import RowUpdater, spread
from stratagem.ps.server.updates import Updater


@dataclass(slots=True)
class StoredPart:
    """A part of a variable.

    Args:
        value: Its value. An array that cannot be written to is never changed, only replaced: whoever reads it has one
            moment's value. One that can is a table whose rows are changed in place; it is read as a copy.
        variable: The name of the variable it is of.
        constraint: What the value must fulfil after an update.
        lazy: Whether rows without a gradient may stay as they are, whatever the optimizer.
        awaited: What must be restored before the part is used: "" for the value, `optimizer|number` for slots. To use
            it before is an error.
        version: How often it was changed.
        slots: The optimizers' slots, by optimizer.
        lock: Held while it is changed.
    """

    value: Any
    variable: str = ""
    constraint: Any = None
    lazy: bool = False
    awaited: set[str] = field(default_factory=set)
    version: int = 0
    slots: dict[str, list[Any]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def like(self, rows: int | None = None) -> tuple[tuple[int, ...], np.dtype, str, Any]:
        """Return what an optimizer must know of it: shape (with another number of rows), dtype, variable, constraint.

        Args:
            rows: How many rows; None for its own.
        """
        shape = np.shape(self.value)
        return shape if rows is None else (rows, *shape[1:]), self.value.dtype, self.variable, self.constraint


class Store:
    """Parts of variables by name, updated on the first CPU. Several threads may call any method at once."""

    def __init__(self) -> None:
        keep_freed_memory_for_cpu()
        self._device = jax.local_devices(backend="cpu")[0]
        self._parts: dict[str, StoredPart] = {}
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

    def create(self, name: str, part: StoredPart) -> None:
        """Take a part in. One that is already here stays as it is: a chief that comes back repeats everything.

        Args:
            name: Its name.
            part: The part; its value is copied.
        """
        part.value = _constant(np.array(part.value))
        with self._lock:
            self._parts.setdefault(name, part)

    def define_optimizer(self, name: str, recipe: Any) -> None:
        """Take an optimizer in (`compat.optimizer_recipe`); a second time it is the same."""
        with self._lock:
            self._optimizers.setdefault(name, recipe)

    def remove(self, names: Sequence[str], optimizers: Sequence[str]) -> None:
        """Forget parts with their slots, and optimizers. Names that are not here have no effect."""
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

    def take(self, name: str, step: np.ndarray) -> tuple[np.ndarray, int]:
        """Return the value and version of a part, and add a step to it at the same moment: nobody gets the same."""
        part = self._part(name)
        with part.lock:
            _require_restored(name, part, "")
            before, version = np.asarray(part.value), part.version
            part.value = _constant(np.asarray(before + _fitting(name, step, before)))
            part.version += 1
            return before, version

    def exchange(self, name: str, before: np.ndarray, after: np.ndarray) -> bool:
        """Replace the value of a part if it is still the one before; return whether it was."""
        part = self._part(name)
        with part.lock:
            _require_restored(name, part, "")
            same = np.array_equal(np.asarray(part.value), _fitting(name, before, part.value))
            if same:
                part.value = _constant(np.array(_fitting(name, after, part.value)))
                part.version += 1
            return same

    def write(self, name: str, value: np.ndarray, ids: np.ndarray | None = None) -> None:
        """Replace the value of a part or slot; the array is kept, and nobody may change it.

        Args:
            name: The part or slot.
            value: Its value, or with `ids` that of rows of a part; others stay as they are.
            ids: Numbers of the rows; None for all.
        """
        name, _, slot = name.partition(SLOT)
        part = self._part(name)
        with part.lock:
            if ids is not None:
                _require_restored(name, part, "")
                whole = np.array(part.value)
                whole[_existing(name, ids, whole)] = value
                value = whole
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
        self,
        name: str,
        gradient: np.ndarray,
        optimizer: str,
        iterations: int,
        rate: float,
        seen: int | None,
        ids: np.ndarray | None = None,
    ) -> None:
        """Update a part by a gradient.

        Args:
            name: The part.
            gradient: The gradient of the part; with `ids`, of those rows, and zero elsewhere.
            optimizer: Name of the optimizer.
            iterations: Updates before this one, as the worker knew them.
            rate: The learning rate.
            seen: The version that the gradient was computed with; None if unknown.
            ids: Numbers of the rows, each once; None for all.
        """
        part = self._part(name)
        with part.lock:
            _require_restored(name, part, *part.awaited)
            if ids is not None:
                gradient = _fitting(name, gradient, part.value[: len(_existing(name, ids, part.value))])
            by_rows = None if ids is None else self._row_updater(optimizer, part)
            if ids is None or by_rows is None:
                updater = self._updater(optimizer, part)
                slots = part.slots.get(optimizer) or updater.new_slots()
                whole = gradient if ids is None else spread(ids, gradient, part.value.shape)
                whole = _fitting(name, whole, part.value)
                part.value, part.slots[optimizer] = updater(part.value, whole, slots, iterations, rate)
            elif len(ids):
                slots = part.slots.get(optimizer) or by_rows.new_slots(len(part.value))
                part.value, part.slots[optimizer] = by_rows(part.value, slots, ids, gradient, iterations, rate)
            stale = 0 if seen is None else part.version - seen
            part.version += 1
        with self._lock:
            self.updates += 1
            self.staleness += stale
            self.max_staleness = max(self.max_staleness, stale)

    def change(self, operations: Sequence[Operation], arrays: Sequence[np.ndarray]) -> None:
        """Change parts one after another.

        Args:
            operations: What to do (`changes.Operation`).
            arrays: One for each; before a gradient of some rows, which rows.

        Raises:
            InputError: There is no such operation, or an array does not fit.
        """
        for operation, ids, array in with_arrays(operations, arrays):
            match operation:
                case {"op": "set", "name": str(name)}:
                    self.write(name, array, ids)
                case {"op": "add", "name": str(name)}:
                    self.add(name, array)
                case {"op": "apply", "name": str(name), "optimizer": str(key), "iterations": int(i), "rate": rate}:
                    self.apply(name, array, key, i, float(rate), operation.get("seen"), ids)
                case _:
                    raise InputError(f"A parameter server cannot do {dict(operation)!r}.")

    def _part(self, name: str) -> StoredPart:
        with self._lock:
            part = self._parts.get(name)
        if part is None:
            raise UnavailableError(
                f"This parameter server has no variable {name!r}: it was started again, or never got the variable.",
                "Let the chief begin again from its last checkpoint.",
            )
        return part

    def _slot(self, part: StoredPart, slot: str) -> Any:
        optimizer, _, number = slot.partition(SLOT)
        if optimizer not in part.slots:
            part.slots[optimizer] = self._updater(optimizer, part).new_slots()
        return part.slots[optimizer][int(number)]

    def _row_updater(self, optimizer: str, part: StoredPart) -> RowUpdater | None:
        """Return what updates rows of a part alone; None where all its rows must be updated."""
        key = (optimizer, *part.like(rows=0))
        found = self._row_updaters.get(key)
        if found is None:
            row, dtype = part.value.shape[1:], part.value.dtype
            found = RowUpdater(lambda rows: self._updater(optimizer, part, rows), row, dtype)
            self._row_updaters[key] = found
        may_be_lazy = part.lazy and found.separate and not accumulates(self._optimizers[optimizer])
        return found if found.exact or may_be_lazy else None

    def _updater(self, optimizer: str, part: StoredPart, rows: int | None = None) -> Updater:
        """Return an optimizer for variables like a part, with its number of rows or another."""
        like = part.like(rows)
        key = (optimizer, *like)
        with self._lock:
            if optimizer not in self._optimizers:
                raise InputError(f"This parameter server does not know optimizer {optimizer!r}.")
            if key not in self._updaters:
                self._updaters[key] = Updater(self._optimizers[optimizer], *like, self._device)
            return self._updaters[key]


def _constant(value: np.ndarray) -> np.ndarray:
    """Return an array that cannot be written to from now on."""
    value.setflags(write=False)
    return value


def _existing(name: str, ids: np.ndarray, value: Any) -> np.ndarray:
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or (ids.size and (ids.min() < 0 or ids.max() >= len(value))):
        raise InputError(
            f"Rows of {name!r} were asked for that do not exist; it has {len(value)} rows.",
            "Let workers and servers run the same version of Stratagem, and the same program.",
        )
    return ids


def _require_restored(name: str, part: StoredPart, *needed: str) -> None:
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
            "Give a value of the variable's shape.",
        )
    return np.asarray(value).astype(before.dtype, copy=False)
