"""Which parameter server holds which part of which variable, decided by the chief."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import cloudpickle
import keras
import numpy as np

from stratagem.core.errors import UsageError, explain
from stratagem.ps.client import Change, Location, Servers
from stratagem.ps.compat import held_elsewhere, optimizer_recipe, slots_by_variable, value_held
from stratagem.ps.partitioners import count_parts, divide_rows
from stratagem.ps.service import pickled
from stratagem.ps.store import SLOT
from stratagem.ps.variables import RemoteVariable, Residence, remote_state
from stratagem.transport.message import Message


class Placement:
    """Moves variables to the parameter servers: parts go round them in turn, as in TensorFlow.

    Args:
        servers: The servers.
        partitioner: Given shape and dtype, returns into how many parts each axis is divided; None divides nothing.
    """

    def __init__(self, servers: Servers, partitioner: Any = None) -> None:
        self.residence = Residence(servers)
        self._servers = servers
        self._partitioner = partitioner
        self._turn = itertools.cycle(range(len(servers)))
        self._count = itertools.count()
        self._optimizers: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._lock = threading.RLock()

    def place(self, variables: Sequence[keras.Variable]) -> None:
        """Move variables to the servers. They stay the same objects; those that live there already stay.

        Args:
            variables: Initialised Keras variables.

        Raises:
            UsageError: A variable has no value yet.
            InputError: The partitioner asks for what cannot be.
        """
        with self._lock:
            new = {id(v): v for v in variables if not isinstance(v, RemoteVariable)}
            chosen = [(variable, self._parts(variable)) for variable in new.values()]
            requests: dict[int, list[tuple[Location, keras.Variable, np.ndarray]]] = {}
            for variable, parts in chosen:
                value = np.asarray(_value(variable))
                start = 0
                for part in parts:
                    piece = value if part.rows is None else value[start : start + part.rows]
                    start += part.rows or 0
                    requests.setdefault(part.server, []).append((part, variable, piece))
            self._servers.ask({server: _creation(entries) for server, entries in requests.items()})
            for variable, parts in chosen:
                held_elsewhere(variable, RemoteVariable, remote_state(self.residence, parts))

    def name_of(self, optimizer: Any) -> str:
        """Return the name of an optimizer on the servers, which get to know it, and its slots, when they do not."""
        with self._lock:
            if optimizer not in self._optimizers:
                slots = slots_by_variable(optimizer)
                self.place([variable for variable, _ in slots])
                name = f"{optimizer.name}#{next(self._count)}"
                recipe = pickled(cloudpickle.dumps(optimizer_recipe(optimizer)))
                self._servers.ask_all(Message("define", {"name": name}, [recipe]))
                self._place_slots(name, slots)
                self._optimizers[optimizer] = name
            return self._optimizers[optimizer]

    def _place_slots(self, name: str, slots_of: Sequence[tuple[Any, Sequence[Any]]]) -> None:
        """Let the slots of an optimizer be those on the servers, so that a checkpoint saves and restores them.

        An optimizer that is not built yet has none here; the servers then make them, and no checkpoint has them.
        """
        for variable, slots in slots_of:
            for number, slot in enumerate(slots):
                if slot is None or isinstance(slot, RemoteVariable):
                    continue
                locations = [replace(part, name=SLOT.join((part.name, name, str(number)))) for part in variable.parts]
                if tuple(slot.shape) != tuple(variable.shape):  # a number that all parts have alike
                    locations = [replace(locations[0], rows=None)]
                self._servers.change([Change("set", locations, _value(slot))])
                held_elsewhere(slot, RemoteVariable, remote_state(self.residence, locations))

    def _parts(self, variable: keras.Variable) -> list[Location]:
        shape = tuple(variable.shape)
        # A constraint such as a norm needs the whole variable.
        parts = 1 if variable.constraint is not None else count_parts(self._partitioner, shape, variable.dtype)
        name = f"{variable.path}#{next(self._count)}"
        if parts == 1:
            return [Location(next(self._turn), name)]
        sizes = divide_rows(shape[0], parts)
        return [Location(next(self._turn), f"{name}/part_{i}", rows) for i, rows in enumerate(sizes)]


def _creation(entries: Sequence[tuple[Location, keras.Variable, np.ndarray]]) -> Message:
    names = [[part.name, variable.name] for part, variable, _ in entries]
    constraints = cloudpickle.dumps([variable.constraint for _, variable, _ in entries])
    return Message("create", {"parts": names}, [*(value for _, _, value in entries), pickled(constraints)])


def _value(variable: keras.Variable) -> Any:
    value = value_held(variable)
    if value is None:
        raise UsageError(
            explain(
                f"{variable.path} has no value yet.",
                "It cannot be put on a parameter server.",
                "Make it outside functions that are traced.",
            )
        )
    return value
