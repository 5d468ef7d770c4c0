"""What a parameter server holds: parts of variables, their slots, one lock for each part."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import jax
import numpy as np

from stratagem.core.errors import InputError, UnavailableError, explain
from stratagem.ps.updates import Updater
from stratagem.replica.mesh import Device

SLOT: Final = "|"
"""Stands in the name of a slot: `part|optimizer|number`."""


@dataclass(slots=True)
class Part:
    """A part of a variable.

    Args:
        value: Its value. An array is never changed, only replaced: whoever reads it has one moment's value. The
            rows of a table are changed in place, and copied under the lock.
        variable: The name of the variable it is of.
        constraint: What the value must fulfil after an update.
        version: How often it was changed.
        slots: The optimizers' slots, by optimizer.
        lock: Held while it is changed.
    """

    value: Any
    variable: str = ""
    constraint: Any = None
    version: int = 0
    slots: dict[str, list[Any]] = field(default_factory=dict)
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
        self._lock = threading.Lock()
        self.updates = 0
        """How many gradients were applied."""
        self.staleness = 0
        """How many other changes came between reading a part and applying its gradient, over all updates."""

    def create(self, name: str, value: np.ndarray, variable: str = "", constraint: Any = None) -> None:
        """Take a part in. If it is here already it stays as it is: a chief that comes back says everything again."""
        with self._lock:
            self._parts.setdefault(name, Part(np.array(value), variable, constraint))

    def define_optimizer(self, name: str, recipe: Any) -> None:
        """Take an optimizer in (`compat.optimizer_recipe`); a second time it is the same."""
        with self._lock:
            self._optimizers.setdefault(name, recipe)

    def names(self) -> list[str]:
        """Return the names of all parts."""
        with self._lock:
            return list(self._parts)

    def read(self, name: str) -> tuple[np.ndarray, int]:
        """Return the value and the version of a part; of a slot, with the part's version."""
        name, _, slot = name.partition(SLOT)
        part = self._part(name)
        with part.lock:
            return np.asarray(self._slot(part, slot) if slot else part.value), part.version

    def write(self, name: str, value: np.ndarray) -> None:
        """Replace the value of a part or slot."""
        name, _, slot = name.partition(SLOT)
        part = self._part(name)
        with part.lock:
            before = self._slot(part, slot) if slot else part.value
            new = np.array(_fitting(name, value, before))
            if slot:
                optimizer, _, number = slot.partition(SLOT)
                part.slots[optimizer][int(number)] = new
            else:
                part.value = new
            part.version += 1

    def add(self, name: str, value: np.ndarray) -> None:
        """Add to the value of a part; no addition is lost, whoever else adds."""
        part = self._part(name)
        with part.lock:
            part.value = np.asarray(part.value) + _fitting(name, value, part.value)
            part.version += 1

    def apply(
        self, name: str, gradient: np.ndarray, optimizer: str, iterations: int, rate: float, seen: int | None
    ) -> None:
        """Update a part by a gradient.

        Args:
            name: The part.
            gradient: Of its shape.
            optimizer: Which optimizer.
            iterations: Updates before this one, as the worker knew them.
            rate: The learning rate.
            seen: The version that the gradient was computed with, None where nobody knows.
        """
        part = self._part(name)
        with part.lock:
            updater = self._updater(optimizer, part)
            slots = part.slots.get(optimizer) or updater.new_slots()
            gradient = _fitting(name, gradient, part.value)
            part.value, part.slots[optimizer] = updater(part.value, gradient, slots, iterations, rate)
            stale = 0 if seen is None else part.version - seen
            part.version += 1
        with self._lock:
            self.updates += 1
            self.staleness += stale

    def _part(self, name: str) -> Part:
        with self._lock:
            part = self._parts.get(name)
        if part is None:
            raise UnavailableError(
                explain(
                    f"This parameter server has no variable {name!r}.",
                    "It was lost when the server was started again, or never came.",
                    "Let the chief begin again from its last checkpoint.",
                )
            )
        return part

    def _slot(self, part: Part, slot: str) -> Any:
        optimizer, _, number = slot.partition(SLOT)
        slots = part.slots.get(optimizer)
        if slots is None:
            slots = part.slots[optimizer] = self._updater(optimizer, part).new_slots()
        return slots[int(number)]

    def _updater(self, optimizer: str, part: Part) -> Updater:
        shape, dtype = np.shape(part.value), part.value.dtype.name
        key = (optimizer, shape, dtype, part.variable, part.constraint)
        with self._lock:
            if optimizer not in self._optimizers:
                raise InputError(f"This parameter server does not know optimizer {optimizer!r}.")
            if key not in self._updaters:
                self._updaters[key] = Updater(
                    self._optimizers[optimizer], shape, dtype, part.variable, part.constraint, self._device
                )
            return self._updaters[key]


def _fitting(name: str, value: np.ndarray, before: Any) -> np.ndarray:
    if np.shape(value) != np.shape(before):
        raise InputError(
            explain(
                f"A value of shape {np.shape(value)} came for {name!r}, which has shape {np.shape(before)}.",
                "The variable would change its shape.",
                "Give a value of the variable's shape.",
            )
        )
    return np.asarray(value).astype(before.dtype, copy=False)


def change(store: Store, operations: Sequence[Mapping[str, Any]], arrays: Sequence[np.ndarray]) -> None:
    """Change parts one after another.

    Args:
        store: The store.
        operations: For each an `op` ("set", "add" or "apply"), a `name` and what `apply` needs.
        arrays: One for each.

    Raises:
        InputError: There is no such operation, or an array does not fit.
    """
    for operation, array in zip(operations, arrays, strict=True):
        match operation:
            case {"op": "set", "name": str(name)}:
                store.write(name, array)
            case {"op": "add", "name": str(name)}:
                store.add(name, array)
            case {"op": "apply", "name": str(name), "optimizer": str(key), "iterations": int(i), "rate": rate}:
                store.apply(name, array, key, i, float(rate), operation.get("seen"))
            case _:
                raise InputError(f"A parameter server cannot do {dict(operation)!r}.")
