"""Parts of each kind of object, by names that are the same in every run.

A checkpoint saves a graph: objects, and parts of objects under names. The names come from the program's own
structure (an attribute, a place in a list, the name a layer's author gave to a variable), never from the names that
Keras counts up (`dense_1`, `dense_4`). Restoring walks the saved graph and the program's in step.

Source of the semantics: https://www.tensorflow.org/guide/checkpoint#loading_mechanics
"""

from __future__ import annotations

import functools
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, MutableSequence
from dataclasses import dataclass
from typing import Any

import keras

from stratagem.checkpoint.containers import telling
from stratagem.compression.residuals import slot_of
from stratagem.core.errors import InputError

_PLAIN = (bool, int, float, str, type(None))
_AUTOMATIC_NAME = re.compile(r"(keras_)?variable(_\d+)?")
_OPTIMIZER_SCALARS = frozenset({"iteration", "learning_rate", "step_counter", "dynamic_scale"})
"""Variables that an optimizer has before it knows a model."""


class Holder:
    """An object whose public attributes are its parts.

    One that gets an attribute, or an entry of a list or dictionary that is one, after a checkpoint was restored into it
    asks that checkpoint for its value.
    """

    _give_later: Callable[[str], None] | None = None

    def checkpoint_parts(self) -> dict[str, Any]:
        """Return the parts by name."""
        public = {name: part for name, part in vars(self).items() if not name.startswith("_")}
        return {name: _entry(vars(self), name, part, "") for name, part in public.items()}

    def __setattr__(self, name: str, value: Any) -> None:
        give = self._give_later
        super().__setattr__(name, value if give is None else telling(value, functools.partial(give, name)))
        if give is not None:
            give(name)

    def wait_for(self, give: Callable[[str], None] | None) -> None:
        """Remember the checkpoint that was restored last.

        Args:
            give: Called with the name of each attribute that is set, or whose list or dictionary gets an entry, from
                now on; None where the checkpoint has nothing left to give.
        """
        attributes = vars(self)
        attributes["_give_later"] = give
        if give is not None:
            attributes.update({name: telling(part, functools.partial(give, name)) for name, part in attributes.items()})


WITH_STATE = keras.Variable | keras.Layer | keras.Optimizer | keras.Metric | keras.random.SeedGenerator | Holder
"""What is saved of the attributes of an object that has others too, which are none of a checkpoint's."""

_WITH_PARTS = (
    keras.Layer | keras.Optimizer | keras.Metric | keras.random.SeedGenerator | Holder | Mapping | list | tuple
)


@dataclass(frozen=True)
class PlainValue:
    """A number, string or None in a place that can be assigned to.

    Args:
        owner: The attributes of a holder, a dictionary, or a list.
        key: The attribute, key or index.
    """

    owner: Any
    key: Any

    def get(self) -> Any:
        return self.owner[self.key]

    def set(self, value: Any) -> None:
        self.owner[self.key] = value


@dataclass(frozen=True)
class Node:
    """One object of a graph.

    Args:
        name: Shortest path to it from the root.
        value: The object.
        parts: Numbers of the nodes of its parts, by name.
    """

    name: str
    value: Any
    parts: dict[str, int]


def is_variable(value: Any) -> bool:
    """Whether a value is a Keras variable."""
    return isinstance(value, keras.Variable)


def has_state(value: Any) -> bool:
    """Whether an object tells its state as plain data: an iterator over a dataset."""
    return callable(getattr(value, "get_state", None)) and callable(getattr(value, "set_state", None))


def is_leaf(value: Any) -> bool:
    """Whether a value is saved, rather than only its parts."""
    return isinstance(value, keras.Variable | PlainValue) or (has_state(value) and not isinstance(value, _WITH_PARTS))


def is_unbuilt(value: Any) -> bool:
    """Whether an object will make its variables later, in `build`."""
    return isinstance(value, keras.Layer | keras.Optimizer) and not value.built


def graph_of(root: Holder) -> list[Node]:
    """Return all objects that can be reached from `root`, which is the first; nearest first.

    Raises:
        InputError: A part is of a kind that cannot be saved; the message says where it is.
    """
    nodes = [Node("", root, {})]
    numbers = {identity(root): 0}
    queue = deque(nodes)
    while queue:
        node = queue.popleft()
        for part, value in parts_of(node.value, node.name).items():
            if identity(value) not in numbers:
                numbers[identity(value)] = len(nodes)
                nodes.append(Node(f"{node.name}/{part}".lstrip("/"), value, {}))
                queue.append(nodes[-1])
            node.parts[part] = numbers[identity(value)]
    return nodes


def identity(value: Any) -> Any:
    """Return a key that is the same for the same object, also for a plain value in the same place."""
    return (id(value.owner), value.key) if isinstance(value, PlainValue) else id(value)


def parts_of(value: Any, where: str) -> dict[str, Any]:
    """Return the parts of an object by name.

    Args:
        value: Anything that a checkpoint can hold.
        where: Its own name, for error messages.

    Raises:
        InputError: The object, or an entry of the container, cannot be saved.
    """
    if is_leaf(value):
        return {}
    if isinstance(value, Holder):
        return value.checkpoint_parts()
    if isinstance(value, Mapping):
        return {str(key).replace("/", "%2F"): _entry(value, key, part, where) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return {str(index): _entry(value, index, part, where) for index, part in enumerate(value)}
    if isinstance(value, keras.Layer):
        return _layer_parts(value)
    if isinstance(value, keras.Optimizer):
        return _optimizer_parts(value)
    if isinstance(value, keras.Metric):
        return _named(value.variables)
    return {"state": value.state}  # a seed generator, the one kind left


def can_be_saved(value: Any) -> bool:
    """Whether a checkpoint can hold an object."""
    return isinstance(value, keras.Variable | _WITH_PARTS) or has_state(value)


def _entry(owner: Any, key: Any, value: Any, where: str) -> Any:
    if isinstance(value, _PLAIN) and isinstance(owner, MutableMapping | MutableSequence):
        return PlainValue(owner, key)
    if not can_be_saved(value):
        raise InputError(
            f"{f'{where}/{key}'.lstrip('/')} is {str(value)[:80]!r} of type {type(value).__name__}.",
            "A checkpoint cannot save it, and a restored program would continue with another value.",
            "Give Keras models, layers, optimizers, metrics, variables, seed generators, or objects with get_state "
            "and set_state. Dictionaries and lists may hold these, numbers and strings. Put an array into a "
            "keras.Variable(array, trainable=False).",
        )
    return value


def _layer_parts(layer: Any) -> dict[str, Any]:
    """Return a layer's sublayers and the like by attribute, and its own variables by their names."""
    parts: dict[str, Any] = {}
    functional, bookkeeping = _references()
    if isinstance(layer, (keras.Sequential, functional)):
        stateful = [sublayer for sublayer in layer.layers if not isinstance(sublayer, keras.layers.InputLayer)]
        parts.update({f"layers/{index}": sublayer for index, sublayer in enumerate(stateful)})
    for name, value in vars(layer).items():
        if name not in bookkeeping:
            parts.update(tracked(name, value, keras.Layer | keras.Metric | keras.Optimizer))
    elsewhere = {id(v) for part in parts.values() if isinstance(part, keras.Layer) for v in part.variables}
    own = _named([variable for variable in layer.variables if id(variable) not in elsewhere])
    return {**own, **parts}


def tracked(name: str, value: Any, kinds: Any) -> Iterator[tuple[str, Any]]:
    """Yield the objects of some kinds that an attribute holds, under its name and the way into its containers.

    Args:
        name: The attribute.
        value: What it holds.
        kinds: The classes that count.
    """
    if isinstance(value, kinds):
        yield name, value
    elif isinstance(value, Mapping | list | tuple):
        entries = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, entry in entries:
            yield from tracked(f"{name}/{str(key).replace('/', '%2F')}", entry, kinds)


def _optimizer_parts(optimizer: Any) -> dict[str, Any]:
    """Return an optimizer's variables; its slots by number, as their names repeat those of the model's variables."""
    scalars, slots = {}, []
    for variable in optimizer.variables:
        if slot_of(variable) is not None:  # what compression left out: a checkpoint opens without it too
            continue
        if variable.name in _OPTIMIZER_SCALARS and variable.name not in scalars:
            scalars[variable.name] = variable
        else:
            slots.append(variable)
    # The end of the name says what the slot is for (momentum, velocity): another optimizer's must not fit.
    return {**scalars, **{f"slots/{i}/{slot.name.rpartition('_')[2]}": slot for i, slot in enumerate(slots)}}


def _named(variables: Iterable[Any]) -> dict[str, Any]:
    """Name variables as their layer's author did, and by number where that says nothing."""
    named: dict[str, Any] = {}
    count: Counter[str] = Counter()
    for variable in variables:
        name = "variable" if _AUTOMATIC_NAME.fullmatch(variable.name) else variable.name
        named[f"{name}-{count[name]}" if count[name] else name] = variable
        count[name] += 1
    return named


@functools.cache
def _references() -> tuple[type, frozenset[str]]:
    """Return the class of functional models, and what layers have before a program adds to them: Keras's attributes."""
    # Names are given, so that Keras's counters, and with them the names of the program's models, stay as they are.
    tensor = keras.Input((1,), name="reference")
    functional = keras.Model(tensor, keras.layers.Identity(name="same")(tensor), name="reference")
    others = [kind(name="reference") for kind in (keras.Model, keras.Sequential, keras.Layer)]
    return type(functional), frozenset(name for layer in (functional, *others) for name in dir(layer))
