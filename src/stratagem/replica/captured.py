"""Which program belongs to a call of a traced function.

A function that is traced once keeps what it saw of its surroundings: a number from an enclosing function
or from the module would silently stay what it was. So the numbers that a function refers to are part
of what its program is looked up by. A number that is seen to change becomes an input of the program,
so that a counter or a schedule does not cost a tracing at each step.

Functions count as equal when their code is the same and they refer to the same objects: a lambda
written inside the loop is traced once.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CellType, FunctionType, MethodType
from typing import Any, Final, Generic, TypeVar

import jax

Program = TypeVar("Program")

_MOST_FUNCTIONS: Final = 128
"""How many functions are remembered: a lambda that holds a new object at each step must not pile up."""

DECIDES_IN_PYTHON: Final = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)
"""What JAX raises where a function uses an input as a Python value: `if step > 10`, `range(steps)`."""


@dataclass(frozen=True)
class Place:
    """Where a number stands: a cell of a closure, or a name of a module.

    Args:
        key: The code or module it belongs to, and its name; the same for equal functions.
        holder: The cell, or the module's dictionary.
    """

    key: Hashable
    holder: Any = field(compare=False)

    def get(self) -> Any:
        """Return what stands there now."""
        if isinstance(self.holder, CellType):
            return self.holder.cell_contents
        return self.holder[self.key[1]]  # pyright: ignore[reportIndexIssue]

    def put(self, value: Any) -> None:
        """Let something else stand there."""
        if isinstance(self.holder, CellType):
            self.holder.cell_contents = value
        else:
            self.holder[self.key[1]] = value  # pyright: ignore[reportIndexIssue]


@dataclass
class Surroundings:
    """What a function refers to.

    Args:
        numbers: Where Python numbers stand.
        objects: Everything else: it is held so that an identity stays that of one object.
        identity: Equal for functions with the same code that refer to the same objects.
    """

    numbers: list[Place] = field(default_factory=list)
    objects: list[Any] = field(default_factory=list)
    identity: list[Hashable] = field(default_factory=list)

    @classmethod
    def of(cls, fn: Callable[..., Any]) -> Surroundings:
        """Look at a function, and at the functions of its module that it refers to."""
        found = cls()
        found._add(fn, set())
        return found

    def _add(self, value: Any, seen: set[int]) -> None:
        if isinstance(value, MethodType):
            self._add_object(value.__self__)
            value = value.__func__
        if not isinstance(value, FunctionType):
            self._add_object(value)
            return
        if id(value) in seen:
            return
        seen.add(id(value))
        code = value.__code__
        self.identity.append(code)
        self._add_object(value.__globals__)
        for default in (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()):
            self._add_object(default)
        for name, cell in zip(code.co_freevars, value.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # a cell that is not filled yet
                self._add_content(Place((code, name), cell), cell.cell_contents, value, seen)
        for name in code.co_names:
            if name in value.__globals__:
                content = value.__globals__[name]
                if _is_number(content) or isinstance(content, FunctionType):
                    self._add_content(Place((id(value.__globals__), name), value.__globals__), content, value, seen)

    def _add_content(self, place: Place, content: Any, owner: FunctionType, seen: set[int]) -> None:
        if _is_number(content):
            self.numbers.append(place)
        elif isinstance(content, FunctionType) and content.__module__ == owner.__module__:
            self._add(content, seen)
        else:
            self._add_object(content)

    def _add_object(self, value: Any) -> None:
        self.objects.append(value)
        self.identity.append(id(value))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass
class _Known(Generic[Program]):
    """What is known of one function: its programs, and which of its numbers change."""

    objects: list[Any]
    programs: dict[Hashable, Program] = field(default_factory=dict)
    last: dict[Place, Any] = field(default_factory=dict)
    changing: set[Place] = field(default_factory=set)
    fixed: set[Place] = field(default_factory=set)


class ProgramStore(Generic[Program]):
    """Programs of functions, looked up by function, signature and captured numbers."""

    def __init__(self) -> None:
        self._functions: OrderedDict[Hashable, _Known[Program]] = OrderedDict()

    def find(
        self, fn: Callable[..., Any], signature: Hashable, make: Callable[[list[Place]], Program]
    ) -> tuple[Program, list[Any]]:
        """Return the program of a call and the numbers that are its inputs.

        Args:
            fn: The function that is called.
            signature: What the program depends on besides.
            make: Makes a program, given which numbers are inputs.
        """
        around = Surroundings.of(fn)
        identity = tuple(around.identity)
        known = self._functions.setdefault(identity, _Known(around.objects))
        self._functions.move_to_end(identity)
        while len(self._functions) > _MOST_FUNCTIONS:
            self._functions.popitem(last=False)
        return self._of(known, around.numbers, signature, make)

    def _of(
        self, known: _Known[Program], places: list[Place], signature: Hashable, make: Callable[[list[Place]], Program]
    ) -> tuple[Program, list[Any]]:
        for place in places:
            value = place.get()
            if known.last.setdefault(place, value) != value and place not in known.fixed:
                known.changing.add(place)
            known.last[place] = value
        inputs = [place for place in places if place in known.changing]
        constants = tuple((place, place.get()) for place in places if place not in known.changing)
        key = (signature, constants, tuple(inputs))
        if key not in known.programs:
            try:
                known.programs[key] = make(inputs)
            except DECIDES_IN_PYTHON:
                if not inputs:
                    raise
                # The function decides by a number in Python (`if step > 10`): a program for each value.
                known.fixed.update(inputs)
                known.changing.clear()
                return self._of(known, places, signature, make)
        return known.programs[key], [place.get() for place in inputs]


def fact(leaf: Any) -> Hashable:
    """Return what of a plain argument a program depends on: its type and value, or which object it is.

    The program must hold the object, so that its identity stays its own.
    """
    try:
        hash(leaf)
    except TypeError:
        return (type(leaf), id(leaf))
    return (type(leaf), leaf)


@contextlib.contextmanager
def standing_in(places: Sequence[Place], values: Sequence[Any]) -> Iterator[None]:
    """Let values stand in the places while a function is traced."""
    before = [place.get() for place in places]
    for place, value in zip(places, values, strict=True):
        place.put(value)
    try:
        yield
    finally:
        for place, value in zip(places, before, strict=True):
            place.put(value)
