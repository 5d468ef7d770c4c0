"""Captures of a function: what it refers to besides its arguments.

A function that is traced once keeps what it saw: the model that a global name stood for, the attribute of an object,
a number of the enclosing function. TensorFlow runs a step as Python at each call, so a name means what it means at the
call. Here the program of a call is looked up by all that its names mean then:

| a name leads to                           | two calls share a program where                                      |
| ----------------------------------------- | -------------------------------------------------------------------- |
| a number or an array                      | always, once it was seen to change: it is an input then              |
| text, a boolean, None, an equal object    | they are equal                                                       |
| a list, tuple, dictionary or set          | their items do                                                       |
| a function of the program                 | their code is the same, and what it refers to                        |
| a layer, optimizer, or the like of Keras  | they are one object, with the settings it had                        |
| another object                            | they are one object, and so are its attributes that are read         |

Names are followed where functions of the program read them (`program.bytecode`): globals, closures, defaults, `self`,
their attributes, and the functions that they lead to. Of libraries only Keras's objects are looked into. What a
program reaches by names that it puts together (`getattr(x, prefix + "rate")`) is not seen, nor is a change inside an
array of NumPy of more than 1 MiB.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import BuiltinFunctionType, CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, Final

import keras

from stratagem.program.bytecode import ITEM, Chain, merge, reads_of, words
from stratagem.program.compat import is_keras_object, is_left_by_a_trace, names_of_settings
from stratagem.program.guards import (
    MISSING,
    MOST_ITEMS,
    CapturedValue,
    Guards,
    Path,
    content_of,
    is_hashable,
    is_number,
    is_watched,
    may_be_input,
)

_CALLED: Final = ("__call__", "call", "update_state", "result", "update_step")
"""Methods that a library calls on objects whose classes the user has written."""

_PLAIN: Final = (str, bytes, bool, type(None), complex, int, float)
_CONTAINERS: Final = (list, tuple, deque, set, frozenset, Mapping)
_LIBRARIES: Final = (*{sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")},)
_OURS: Final = f"{os.path.dirname(os.path.dirname(__file__))}{os.sep}"


def captured_by(
    fn: Callable[..., Any], arguments: Sequence[Any] = (), left_out: AbstractSet[Path] = frozenset()
) -> Guards:
    """Look at what a function refers to now.

    Args:
        fn: The function.
        arguments: Objects among its arguments that are no inputs of its program.
        left_out: Where containers stand that are not looked into.
    """
    inner = fn
    while isinstance(inner, functools.partial):
        inner = inner.func
    look = _Look(fn, _package_of(inner), left_out)
    look.value(fn, (getattr(fn, "__name__", type(fn).__name__),), {})
    chain = _read_of_arguments(inner) if arguments else {}
    for number, argument in enumerate(arguments):
        look.value(argument, (f"argument {number}",), chain)
    look.loose_attributes()
    return look.guards


class _Look:
    """One look at a function.

    Args:
        fn: The function.
        package: The top package that is no library, wherever it is installed; may be empty.
        left_out: Where containers stand that are not looked into.
    """

    def __init__(self, fn: Any, package: str, left_out: AbstractSet[Path]) -> None:
        self.guards = Guards(fn)
        self._package = package
        self._left_out = left_out
        self._seen: set[Hashable] = set()
        self._loose: set[str] = set()
        self._owners: dict[int, tuple[Any, Path]] = {}

    def value(self, value: Any, path: Path, chain: Chain) -> None:
        """Look at something, and at what is read of it. A number that comes here is as constant as a text."""
        guards = self.guards
        if isinstance(value, FunctionType):
            self._function(value, path, ())
        elif isinstance(value, MethodType):
            self._function(value.__func__, path, (value.__self__,))
            self.value(value.__self__, path, {})
        elif isinstance(value, functools.partial):
            guards.note((functools.partial, tuple(value.keywords)), path)
            for number, part in enumerate((value.func, *value.args, *value.keywords.values())):
                self.value(part, (*path, str(number)), {})
        elif isinstance(value, type):
            self._class(value, path, chain)
        elif isinstance(value, ModuleType):
            self._module(value, path, chain)
        elif is_equal_by_value(value):
            guards.note((type(value), value), path)
        elif isinstance(value, _CONTAINERS):
            self._container(value, path, chain)
        else:
            self._object(value, path, chain)

    def _named(self, owner: Any, holder: Any, name: str, content: Any, path: Path, chain: Chain) -> None:
        """Look at what a name of a module, a class or an object means."""
        if not may_be_input(content):
            self.guards.saw_name(holder, name, content)
        self._standing(CapturedValue((name, id(owner)), holder, name), content, path, chain)

    def _standing(self, place: CapturedValue, content: Any, path: Path, chain: Chain) -> None:
        """Look at the content of a place, which becomes an input where it can be one."""
        if is_left_by_a_trace(content):
            self.guards.note("left by a tracing", path)
            self.guards.left.append(place)
        elif may_be_input(content):
            self.guards.places.append(place)
        else:
            self.value(content, path, chain)

    # Functions ---------------------------------------------------------------------------------------

    def _function(self, function: FunctionType, path: Path, bound: Sequence[Any]) -> None:
        """Look at a function, and at what it reads; `bound` are its first arguments."""
        visit = (id(function), *map(id, bound))
        if visit in self._seen:
            return
        self._seen.add(visit)
        guards, code = self.guards, function.__code__
        if not self._is_of_the_program(code):
            guards.note(id(function), path, function)
            return
        guards.note(code, path)
        guards.saw_function(function)
        guards.modules.setdefault(function.__module__, set()).update(reads_of(code).globals)
        for number, default in enumerate((*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())):
            self.value(default, (*path, f"default {number}"), {})
        reads = reads_of(code)
        self._loose |= reads.loose
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            content = content_of(cell)
            if content is not MISSING:
                self._standing(CapturedValue((name, code), cell), content, (name,), reads.cells.get(name, {}))
        for name, chain in reads.globals.items():
            self._name(function.__globals__, name, (name,), chain)
        for name, chain in reads.modules.items():
            for module in {name, name.partition(".")[0]}:
                if module in sys.modules:
                    self._module(sys.modules[module], (module,), chain)
        for name, argument in zip(code.co_varnames, bound, strict=False):
            self.value(argument, (name,), reads.locals.get(name, {}))
        given = code.co_varnames[: len(bound)]
        for name, chain in reads.locals.items():
            if name not in given:  # some object: it may be one that is met elsewhere
                self._loose.update(words(chain))

    def _name(self, names: dict[str, Any], name: str, path: Path, chain: Chain) -> None:
        """Look at what a name of a module means."""
        content = names.get(name, MISSING)
        if content is not MISSING and not isinstance(content, BuiltinFunctionType):
            self._named(names, names, name, content, path, chain)

    def _module(self, module: ModuleType, path: Path, chain: Chain) -> None:
        self.guards.note(id(module), path, module)
        if self._is_library(getattr(module, "__file__", None), module.__name__):
            return
        self.guards.modules.setdefault(module.__name__, set()).update(chain)
        for name, below in chain.items():
            self._name(vars(module), name, (*path, name), below)

    # Containers and objects --------------------------------------------------------------------------

    def _container(self, container: Any, path: Path, chain: Chain) -> None:
        guards = self.guards
        if id(container) in self._seen or path in self._left_out:
            return
        self._seen.add(id(container))
        guards.saw_container(container, path)
        items = list(container.items() if isinstance(container, Mapping) else enumerate(_in_order(container)))
        keys = tuple(key for key, _ in items) if isinstance(container, Mapping) else len(items)
        if len(items) > MOST_ITEMS:
            guards.note((type(container), tuple([id(item) for _, item in items])), path, *(item for _, item in items))
            return
        guards.note((type(container), keys), path)
        for key, item in items:
            own = (*path[:-1], f"{path[-1]}[{key!r}]")
            if isinstance(container, list | dict):
                self._standing(CapturedValue((key, own), container, key), item, own, chain.get(ITEM, {}))
            else:
                self.value(item, own, {})
        self._attributes(container, path, chain)

    def _class(self, kind: type, path: Path, chain: Chain) -> None:
        self.guards.note(id(kind), path, kind)
        for name, below in chain.items():
            self._of_class(kind, name, None, (*path, name), below)

    def _object(self, value: Any, path: Path, chain: Chain) -> None:
        if id(value) not in self._seen:
            self._seen.add(id(value))
            if isinstance(value, keras.Variable):
                self.guards.note((id(value), *self.guards.saw_variables([value])), path, value)
            elif is_keras_object(value):
                self._keras_object(value, path)
            else:
                self.guards.note(id(value), path, value)
            if hasattr(type(value), "python_function"):  # compiled by `stratagem.function`
                self.value(value.python_function, path, {})
            for name in _CALLED:
                self._of_class(type(value), name, value, path, {})
        self._attributes(value, path, chain)

    def _keras_object(self, value: Any, path: Path) -> None:
        """Look at a layer, an optimizer or the like: what it computes with, and what it is made of."""
        held = value.__dict__
        names = [name for name in names_of_settings(type(value)) if name in held]
        if len(names) < 2:  # nothing but what it is
            self.guards.note(id(value), path, value)
            return
        token: list[Hashable] = [id(value)]
        objects = [value]
        for name, content in zip(names, self.guards.saw_settings(value, names), strict=True):
            if isinstance(content, _PLAIN):
                token.append((type(content), content))
                continue
            token.append(id(content))
            objects.append(content)
            if isinstance(content, list):
                self._parts(content, path, name, trains=isinstance(value, keras.Layer))
            elif is_keras_object(content) or isinstance(content, FunctionType):
                self.value(content, (*path, name), {})
        self.guards.note(tuple(token), path, *objects)

    def _parts(self, parts: list[Any], path: Path, name: str, *, trains: bool) -> None:
        """Look at the variables of one of Keras's objects, and which are trained, or at layers and metrics in it."""
        if not parts or id(parts) in self._seen:
            return
        self._seen.add(id(parts))
        own = (*path, name)
        self.guards.saw_container(parts, own)
        self.guards.note(tuple(map(id, parts)), own, *parts)
        if trains and isinstance(parts[0], keras.Variable):
            self.guards.note(tuple(self.guards.saw_variables(parts)), own)
        for number, part in enumerate(parts):
            if not isinstance(part, keras.Variable):
                self.value(part, (*path, f"{name}[{number}]"), {})

    def _attributes(self, value: Any, path: Path, chain: Chain) -> None:
        """Look at the attributes of an object that are read."""
        held = getattr(value, "__dict__", None)
        if isinstance(held, dict) and not isinstance(value, keras.Variable):
            self._owners[id(value)] = value, path
        for name, below in chain.items():
            visit = (id(value), name)
            if name == ITEM or (visit in self._seen and not below):
                continue
            self._seen.add(visit)
            self._attribute(value, held, name, (*path, name), below)

    def _attribute(self, value: Any, held: Any, name: str, path: Path, chain: Chain) -> None:
        if isinstance(held, dict):
            holder = weakref.ref(value) if is_watched(value) else held
            content = held.get(name, MISSING)
            if content is not MISSING:
                self._named(value, holder, name, content, path, chain)
                return
            self.guards.saw_name(holder, name, MISSING)
        if not self._of_class(type(value), name, value, path, chain):
            self.guards.note((name, "missing"), path)

    def _of_class(self, kind: type, name: str, value: Any, path: Path, chain: Chain) -> bool:
        """Look at what a class of the program says of an attribute; return whether a class has it."""
        for owner in kind.__mro__:
            content = vars(owner).get(name, MISSING)
            if content is MISSING:
                continue
            if self._is_library(None, owner.__module__):
                return True
            bound, holder = () if value is None else (value,), weakref.ref(owner)
            if not may_be_input(content):
                self.guards.saw_name(holder, name, content)
            if isinstance(content, staticmethod):
                content, bound = content.__func__, ()
            elif isinstance(content, classmethod):
                content, bound = content.__func__, (kind,)
            elif isinstance(content, property | functools.cached_property):
                content = getattr(content, "fget", None) or getattr(content, "func", None)
            if isinstance(content, FunctionType):
                self._function(content, path, bound)
            elif isinstance(content, MemberDescriptorType):
                if value is not None and hasattr(value, name):
                    self.value(getattr(value, name), path, {})
            elif content is not None:
                self._standing(CapturedValue((name, id(owner)), holder, name), content, path, chain)
            return True
        return False

    def loose_attributes(self) -> None:
        """Look at attributes whose object is not known, in all objects that were met; not at arrays and containers.

        They would be looked at wherever some object has an attribute of that name: a history that grows at each step
        would cost a tracing at each step.
        """
        met = 0
        while met < len(self._owners):  # functions that are found bring more
            for value, path in list(self._owners.values())[met:]:
                met += 1
                held = value.__dict__
                for name in sorted(self._loose.intersection(held)):
                    content = held[name]
                    if (id(value), name) in self._seen or isinstance(content, _CONTAINERS):
                        continue
                    if is_number(content) or not may_be_input(content):
                        self._seen.add((id(value), name))
                        self._attribute(value, held, name, (*path, name), {})

    # What is the program's ---------------------------------------------------------------------------

    def _is_of_the_program(self, code: CodeType) -> bool:
        file = code.co_filename
        is_in_package = self._package != "" and f"{os.sep}{self._package}{os.sep}" in file
        return is_in_package or not is_in_library(file)

    def _is_library(self, file: str | None, module: str) -> bool:
        if module.partition(".")[0] == self._package:
            return False
        if file is None:
            file = getattr(sys.modules.get(module), "__file__", None)
            if file is None:  # `__main__` of a notebook; a module made in C
                return module in sys.builtin_module_names
        return is_in_library(file)


@functools.lru_cache(maxsize=4096)
def is_in_library(file: str) -> bool:
    """Whether a file is of Python, of an installed package, or ours."""
    return file.startswith((*_LIBRARIES, _OURS, "<frozen"))


def _package_of(fn: Any) -> str:
    """Return the top package of a function. Nothing for a single file."""
    package, _, rest = str(getattr(fn, "__module__", None) or "").partition(".")
    return package if rest and package != "stratagem" else ""


def is_equal_by_value(value: Any) -> bool:
    """Whether equal objects mean the same: text, a boolean, an enumeration, a frozen dataclass, a dtype."""
    if isinstance(value, _PLAIN):
        return True
    kind = type(value)
    if kind.__hash__ in (None, object.__hash__) or isinstance(value, MethodType | type) or is_keras_object(value):
        return False
    return not isinstance(value, _CONTAINERS) and is_hashable(value)


def _read_of_arguments(fn: Any) -> Chain:
    """Return the attributes that a function reads from any of its arguments, and from items in them."""
    code = getattr(fn, "__code__", None)
    merged: Chain = {}
    for chain in reads_of(code).locals.values() if isinstance(code, CodeType) else ():
        while chain is not None:
            merge(merged, chain)
            chain = chain.get(ITEM)
    return merged


def _in_order(container: Any) -> Iterator[Any]:
    """Return the items of a container; of a set in an order that does not depend on how it was filled."""
    return iter(sorted(container, key=id) if isinstance(container, set | frozenset) else container)
