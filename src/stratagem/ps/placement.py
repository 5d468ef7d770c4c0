"""Placement of variables: the chief decides which parameter server holds which part."""

from __future__ import annotations

import itertools
import math
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import jax.numpy as jnp
import keras
import numpy as np

from stratagem.core import by_value
from stratagem.core.errors import UsageError
from stratagem.core.split import even_sizes
from stratagem.ps.changes import SLOT, Change, Location, divided
from stratagem.ps.client import Servers
from stratagem.ps.compat import held_elsewhere, optimizer_recipe, settings_sent, slots_by_variable, value_held
from stratagem.ps.partitioners import count_parts
from stratagem.ps.streams import RemoteStream, is_seed
from stratagem.ps.variables import RemoteVariable, Residence, remote_state
from stratagem.transport.message import Message

LAZY_UPDATE_BYTES: Final = 64 << 20
"""On one core, Adam takes about a tenth of a second over all rows of a table of this size."""


@dataclass(frozen=True, slots=True)
class _NewPart:
    """What a server is told of a part.

    Args:
        part: Where it shall live.
        variable: The variable it is of.
        value: Its value; None where that is to be restored.
        slots: Which slots are to be restored too, as `optimizer|number`.
    """

    part: Location
    variable: keras.Variable
    value: np.ndarray | None
    slots: Sequence[str] = ()


@dataclass(eq=False)
class Placement:
    """Moves variables to the parameter servers: parts go round them in turn, as in TensorFlow.

    Args:
        servers: The servers.
        partitioner: Given shape and dtype, returns into how many parts each axis is divided; None divides nothing.
        lazy_update_bytes: In a table larger than this, only rows with a gradient are updated, whatever the optimizer.
        begin: Begins another term (`server.service`), if one is due, before anything is placed or written.
    """

    servers: Servers
    partitioner: Any = None
    lazy_update_bytes: int = LAZY_UPDATE_BYTES
    begin: Callable[[Placement], None] | None = None

    def __post_init__(self) -> None:
        self.residence = Residence(self.servers, self.make_ready)
        self._turn = itertools.cycle(range(len(self.servers)))
        self._count = itertools.count()
        self._optimizers: weakref.WeakKeyDictionary[Any, tuple[str, dict[str, Any]]] = weakref.WeakKeyDictionary()
        self._losses = 0
        self._lock = threading.RLock()
        self._placed: list[RemoteVariable] = []
        self._definitions: list[Message] = []

    def make_ready(self) -> None:
        """Begin another term, if one is due."""
        if self.begin is not None:
            with self._lock:
                self.begin(self)

    def expect(self) -> None:
        """Let servers that hold nothing expect all that was ever placed; its values are to be restored.

        Random streams have other numbers meanwhile, which have never been drawn.
        """
        with self._lock:
            self._losses += 1
            slots: defaultdict[str, list[str]] = defaultdict(list)
            for part in (part for variable in self._placed for part in variable.parts if SLOT in part.name):
                name, _, slot = part.name.partition(SLOT)
                slots[name].append(slot)
            self._create(
                _NewPart(part, variable, self._meanwhile(variable), slots[part.name])
                for variable in self._placed
                for part in variable.parts
                if SLOT not in part.name
            )
            for definition in self._definitions:
                self.servers.ask_all(definition)

    def place(self, variables: Sequence[keras.Variable]) -> None:
        """Move variables to the servers. They stay the same objects; those that live there already stay.

        Args:
            variables: Initialised Keras variables.

        Raises:
            UsageError: A variable has no value yet.
            InputError: The partitioner asks for what cannot be.
        """
        with self._lock:
            self.make_ready()
            new = {id(v): v for v in variables if not isinstance(v, RemoteVariable)}
            chosen = [(variable, self._parts(variable)) for variable in new.values()]
            self._create(
                _NewPart(part, variable, piece)
                for variable, parts in chosen
                for part, piece in zip(parts, divided(np.asarray(_value(variable)), parts), strict=True)
            )
            for variable, parts in chosen:
                self._hold(variable, parts)

    def _meanwhile(self, variable: RemoteVariable) -> np.ndarray | None:
        return variable.begun_anew(self._losses) if isinstance(variable, RemoteStream) else None

    def _create(self, parts: Iterable[_NewPart]) -> None:
        """Let the servers take parts in (`server.service` has the fields)."""
        by_server: defaultdict[int, list[_NewPart]] = defaultdict(list)
        for new in parts:
            by_server[new.part.server].append(new)
        requests = {}
        for server, news in by_server.items():
            constraints = _pickled([new.variable.constraint for new in news])
            values = [new.value for new in news if new.value is not None]
            fields = {"parts": [self._described(new) for new in news]}
            requests[server] = Message("create", fields, [constraints, *values])
        self.servers.ask(requests)

    def _described(self, new: _NewPart) -> list[Any]:
        variable, rows = new.variable, new.part.rows
        # The last part of its path is its name, which a model function may have changed.
        name = variable.path.rpartition("/")[2]
        lazy = math.prod(variable.shape) * jnp.dtype(variable.dtype).itemsize > self.lazy_update_bytes
        if new.value is not None:
            return [new.part.name, name, lazy, None]
        shape = variable.shape if rows is None else (rows, *variable.shape[1:])
        return [new.part.name, name, lazy, [shape, variable.stored_dtype, ["", *new.slots]]]

    def remove(self, variables: Sequence[Any], optimizers: Sequence[Any]) -> None:
        """Let the servers forget variables, and optimizers with their slots. Nothing may use them any more.

        Args:
            variables: Variables; those that do not live there are ignored.
            optimizers: Keras optimizers.
        """
        with self._lock:
            names = [self._optimizers.pop(optimizer)[0] for optimizer in optimizers if optimizer in self._optimizers]
            gone = {id(variable) for variable in variables}
            parts = {part.name for held in self._placed if id(held) in gone for part in held.parts}
            # Slots are parts of their variables, whatever optimizer they are of.
            self._placed = [v for v in self._placed if v.parts[0].name.partition(SLOT)[0] not in parts]
            self._definitions = [each for each in self._definitions if each.fields["name"] not in names]
            if not self.servers.is_lost:
                self.servers.ask_all(Message("remove", {"parts": sorted(parts), "optimizers": names}))

    def _hold(self, variable: keras.Variable, parts: Sequence[Location]) -> None:
        kind, state = RemoteVariable, remote_state(self.residence, parts)
        if is_seed(variable):
            kind, state = RemoteStream, {**state, "begins": np.array(_value(variable))}
        self._placed.append(held_elsewhere(variable, kind, state))

    def name_of(self, optimizer: Any) -> str:
        """Return the name of an optimizer on the servers; tell them the optimizer and its slots the first time."""
        with self._lock:
            self.make_ready()
            settings = settings_sent(optimizer)
            if optimizer not in self._optimizers:
                slots = slots_by_variable(optimizer)
                self.place([variable for variable, _ in slots])
                name = f"{optimizer.name}#{next(self._count)}"
                self._definitions.append(Message("define", {"name": name}, [_pickled(optimizer_recipe(optimizer))]))
                self.servers.ask_all(self._definitions[-1])
                self._place_slots(name, slots)
                self._optimizers[optimizer] = name, settings
            name, before = self._optimizers[optimizer]
            changed = sorted(key for key in settings if settings[key] != before.get(key))
            if changed:
                raise UsageError(
                    f"{changed[0]} of the optimizer {optimizer.name!r} was {before.get(changed[0])!r} when its "
                    f"variables moved to the parameter servers, and is {settings[changed[0]]!r}.",
                    "The servers would continue with the first setting.",
                    "Make another optimizer, with the new setting. The learning rate may change at any time.",
                )
            return name

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
                self.servers.change([Change("set", locations, _value(slot))])
                self._hold(slot, locations)

    def _parts(self, variable: keras.Variable) -> list[Location]:
        shape = tuple(variable.shape)
        # A constraint such as a norm needs the whole variable; who draws, the whole position.
        whole = variable.constraint is not None or is_seed(variable)
        parts = 1 if whole else count_parts(self.partitioner, shape, variable.dtype)
        name = f"{variable.path}#{next(self._count)}"
        if parts == 1:
            return [Location(next(self._turn), name)]
        sizes = even_sizes(shape[0], parts)  # as TensorFlow's ShardedVariable
        return [Location(next(self._turn), f"{name}/part_{i}", rows) for i, rows in enumerate(sizes)]


def _pickled(value: Any) -> np.ndarray:
    """Return something pickled, as the array that a message carries."""
    return np.frombuffer(by_value.dumps(value), np.uint8)


def _value(variable: keras.Variable) -> Any:
    value = value_held(variable)
    if value is None:
        raise UsageError(
            f"{variable.path} has no value yet, and cannot be put on a parameter server.",
            "Make it outside traced functions.",
        )
    return value
