"""Guards of a compiled program: the state it was made for, and a quick test whether that still holds.

Nothing here keeps the objects of a program alive: a model that its user has dropped must be freed.
"""

from __future__ import annotations

import enum
import itertools
import operator
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CellType, FunctionType, MappingProxyType, MethodType
from typing import Any, Final

import jax
import numpy as np
from jax.core import Tracer

from stratagem.mesh.values import DistributedValues
from stratagem.program.compat import is_left_by_a_trace

Path = tuple[str, ...]
"""The names that lead from a function to something: ("self", "model")."""

MISSING: Final = object()
"""Stands for the content of a name that is not there."""

MOST_ITEMS: Final = 1000
"""A longer container is not looked into: its items count by identity."""

_MOST_BYTES: Final = 1 << 20
"""A larger array of NumPy is not compared by its content: that of 1 MiB takes 0.1 ms at each call."""


@dataclass(frozen=True)
class CapturedValue:
    """A number or an array that a function refers to, or gets as an argument: it may become an input of a program.

    Args:
        key: Equal for the same place of equal functions. The name comes first: a structure of JAX 0.7 refuses to be
            compared with a code.
        holder: A cell, a dictionary, a list, or a reference to an object or a class.
        name: The key, index or attribute in the holder; not for a cell.
    """

    key: Hashable
    holder: Any = field(compare=False)
    name: Any = field(compare=False, default=None)

    def get(self) -> Any:
        """Return its value now."""
        if isinstance(self.holder, CellType):
            return self.holder.cell_contents
        return names_of(self.holder)[self.name]

    def put(self, value: Any) -> None:
        """Put another value in its place."""
        if isinstance(self.holder, CellType):
            self.holder.cell_contents = value
            return
        names = names_of(self.holder)
        if isinstance(names, MappingProxyType):  # of a class
            setattr(self.holder(), self.name, value)
        else:
            names[self.name] = value


def names_of(holder: Any) -> Any:
    """Return what a holder holds by name: the attributes of what it refers to, none if that is gone; or itself."""
    return getattr(holder(), "__dict__", {}) if isinstance(holder, weakref.ref) else holder


def is_hashable(value: Any) -> bool:
    """Whether a value can be looked up."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def is_number(value: object) -> bool:
    """Whether a value is a Python number that JAX's default integer can hold."""
    if isinstance(value, int):
        return not isinstance(value, bool | enum.Enum) and -(2**31) <= value < 2**31
    return isinstance(value, float)


def is_array(value: object) -> bool:
    """Whether a value is an array of numbers that an input can be, or stands for one in a function that is traced."""
    if isinstance(value, jax.Array):
        return isinstance(value, Tracer) or value.is_fully_addressable
    return isinstance(value, np.ndarray) and value.dtype.kind in "biufc"


def may_be_input(value: object) -> bool:
    """Whether a value can be an input of a program."""
    return is_number(value) or is_array(value) or isinstance(value, DistributedValues)


def is_only_input(value: object) -> bool:
    """Whether a value can be nothing but an input: traced, or spread over devices of which some may be elsewhere."""
    return isinstance(value, Tracer | DistributedValues)


def kind_of(value: Any) -> Hashable:
    """Return the kind of an input, on which a program depends: 1 and 1.0 give programs of different dtypes."""
    if isinstance(value, DistributedValues):
        return "per replica", value.stacked.dtype, value.stacked.shape, value.mesh, value.shapes, value.empty
    return ("array", value.dtype, value.shape) if is_array(value) else type(value)


def fact_of(value: Any) -> Hashable:
    """Return a key for a number or an array: equal keys mean equal values."""
    if isinstance(value, DistributedValues):
        return kind_of(value), id(value.stacked)
    if not is_array(value):
        return type(value), value
    if isinstance(value, jax.Array) or value.nbytes > _MOST_BYTES:
        return kind_of(value), id(value)
    return kind_of(value), value.tobytes()


class Guards:
    """The things that a function referred to when it was looked at.

    Attributes:
        identity: Equal for functions with the same code that refer to the same things. Objects stand in it by `id`,
            behind the path on which they were found.
        places: Where numbers and arrays stand.
        left: Where earlier tracings left tensors: the function puts others there before it reads them.
        objects: The objects that stand in the identity by `id`. When one of them is gone, the identity means nothing.
        modules: The program's own modules that were met, and the names that are read of each as `module.name`.

    Args:
        function: The function.
    """

    def __init__(self, function: Any) -> None:
        self._of = reference_to(getattr(function, "__func__", function))
        self.identity: list[tuple[Path, Hashable]] = []
        self.places: list[CapturedValue] = []
        self.left: list[CapturedValue] = []
        self.objects: list[Any] = []
        self.modules: dict[str, set[str]] = {}
        self._names: dict[int, tuple[Any, list[str], list[int]]] = {}
        self._settings: list[tuple[Any, Callable[[Any], Any], list[int]]] = []
        self._containers: list[tuple[Any, list[int], Path]] = []
        self._functions: list[tuple[Callable[[], Any], list[int]]] = []
        self._trained: list[tuple[Sequence[Any], list[bool]]] = []
        self._kept: list[Any] = []

    def hold(self, function: Any) -> bool:
        """Whether a look at a function would find the same; numbers and arrays may have changed.

        Quick, as it compares identities of what was seen. All objects must be alive.

        Args:
            function: What was looked at, or another function of the same code.
        """
        try:
            return self._holds(getattr(function, "__func__", function))
        except (AttributeError, LookupError, ValueError):  # something is no longer there
            return False

    def _holds(self, function: Any) -> bool:
        if self._of() is not function and not self._is_alike(function):
            return False
        for holder, names, contents in self._names.values():
            if list(map(id, map(names_of(holder).get, names, itertools.repeat(MISSING)))) != contents:
                return False
        for holder, chosen, contents in self._settings:
            if list(map(id, chosen(holder().__dict__))) != contents:
                return False
        for variables, flags in self._trained:
            if [variable.trainable for variable in variables] != flags:
                return False
        for container, contents, _ in self._containers:
            if _identities(container) != contents:
                return False
        for inner, contents in self._functions[0 if self._of() is function else 1 :]:
            if _surface(inner()) != contents:
                return False
        if not all(is_left_by_a_trace(place.get()) for place in self.left):
            return False
        return all(may_be_input(place.get()) for place in self.places)

    def _is_alike(self, function: FunctionType) -> bool:
        """Whether another function than the one that was looked at has the same things in its cells."""
        if not self._functions:  # of a library, and not looked into
            return False
        if any(may_be_input(content_of(cell)) for cell in function.__closure__ or ()):
            return False  # the places are cells of the other
        return _surface(function) == self._functions[0][1]

    def changed_containers(self) -> list[Path]:
        """Return where containers stand whose content has changed."""
        return [path for path, _ in self.changed_contents()]

    def changed_contents(self) -> list[tuple[Path, Any]]:
        """Return where containers stand whose content has changed, and the containers."""
        return [
            (path, container) for container, contents, path in self._containers if _identities(container) != contents
        ]

    def looked_at(self) -> Iterator[CapturedValue]:
        """Yield each name, attribute and cell that was looked at."""
        for holder, names, _ in self._names.values():
            yield from (CapturedValue(name, holder, name) for name in names)
        for function, _ in self._functions:
            yield from (CapturedValue((), cell) for cell in getattr(function(), "__closure__", None) or ())
        yield from (place for place in self.places if not isinstance(place.holder, list))

    def containers(self) -> list[Any]:
        """Return the containers that were looked into."""
        return [container for container, _, _ in self._containers]

    def facts(self) -> list[Hashable]:
        """Return a key for each number and array as it is now."""
        return [fact_of(place.get()) for place in self.places]

    def note(self, token: Hashable, path: Path, *objects: Any) -> None:
        """Add something to the identity, and the objects that stand in it by `id`."""
        self.identity.append((path, token))
        self.objects.extend(objects)

    def saw_name(self, holder: Any, name: str, content: Any) -> None:
        """Remember what a name of a module, a class or an object meant."""
        _, names, contents = self._names.setdefault(id(holder), (holder, [], []))
        names.append(name)
        contents.append(self._remembered(content))

    def saw_container(self, container: Any, path: Path) -> None:
        """Remember what a container held; numbers and arrays in it may not change."""
        self._kept.append(list(container.items() if isinstance(container, Mapping) else container))
        self._containers.append((container, _identities(container), path))

    def saw_settings(self, owner: Any, names: Sequence[str]) -> Sequence[Any]:
        """Remember what attributes of an object were that it always has, and return it."""
        chosen = operator.itemgetter(*names)
        contents = chosen(owner.__dict__)
        self._settings.append((weakref.ref(owner), chosen, list(map(self._remembered, contents))))
        return contents

    def saw_variables(self, variables: Sequence[Any]) -> list[bool]:
        """Remember which of some variables are trained, and return it."""
        flags = [variable.trainable for variable in variables]
        self._trained.append((variables, flags))
        return flags

    def saw_function(self, function: FunctionType) -> None:
        """Remember a function's code, defaults and closure. The first is the one that calls are of."""
        defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        for content in (function.__code__, *defaults, *map(content_of, function.__closure__ or ())):
            self._remembered(content)
        self._functions.append((reference_to(function), _surface(function)))

    def _remembered(self, content: Any) -> int:
        """Return the identity of a content; one that nobody watches is kept alive, as long as it counts."""
        if not is_watched(content):
            self._kept.append(content)
        return id(content)


def is_watched(value: Any) -> bool:
    """Whether a reference can tell when an object is gone. A bound method is made anew by each look at it."""
    return type(value).__weakrefoffset__ != 0 and not isinstance(value, MethodType)


def content_of(cell: CellType) -> Any:
    """Return the content of a cell of a closure, `MISSING` if it is not filled yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def reference_to(value: Any) -> Callable[[], Any]:
    """Return a function that returns an object as long as it lives; always if it takes no weak reference."""
    return weakref.ref(value) if is_watched(value) else lambda: value


def _identities(container: Any) -> list[int]:
    if isinstance(container, list) or not isinstance(container, Mapping):
        return list(map(id, container))
    return [*map(id, container), *map(id, container.values())]


def _surface(function: Any) -> list[int]:
    """Return the identities of what a function is made of, but for numbers and arrays in its closure."""
    if function is None:
        return []
    surface = [id(function.__code__)]
    if function.__closure__ is not None:
        contents = [content_of(cell) for cell in function.__closure__]
        surface += [0 if may_be_input(content) else id(content) for content in contents]
    if function.__defaults__ is not None:
        surface += map(id, function.__defaults__)
    if function.__kwdefaults__ is not None:
        surface += map(id, function.__kwdefaults__.values())
    return surface
