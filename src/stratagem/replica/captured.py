"""Which program belongs to a call of a traced function.

A function that is traced once keeps what it saw of its surroundings: a number from an enclosing function
or from the module would silently stay what it was. So the numbers that a function refers to are part
of what its program is looked up by. A number that is seen to change becomes an input of the program,
so that a counter or a schedule does not cost a tracing at each step. A number among the arguments is
an input from the first call. Where the function needs a number in Python (`if step > 10`, `range(n)`, a
shape) it is none: each of its values has a program.

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

Program = TypeVar("Program")

_MOST_FUNCTIONS: Final = 128
"""How many functions are remembered: a lambda that holds a new object at each step must not pile up."""


@dataclass(frozen=True)
class Place:
    """Where a number stands: a cell of a closure, a name of a module, or an argument.

    Args:
        key: Its name or number, and the code, module or structure of arguments that it belongs to; the same for
            equal functions. The name comes first: a structure of JAX 0.7 refuses to be compared with a code.
        holder: The cell, the module's dictionary, or the list of arguments.
    """

    key: Hashable
    holder: Any = field(compare=False)

    def get(self) -> Any:
        """Return what stands there now."""
        if isinstance(self.holder, CellType):
            return self.holder.cell_contents
        return self.holder[self.key[0]]  # pyright: ignore[reportIndexIssue]

    def put(self, value: Any) -> None:
        """Let something else stand there."""
        if isinstance(self.holder, CellType):
            self.holder.cell_contents = value
        else:
            self.holder[self.key[0]] = value  # pyright: ignore[reportIndexIssue]


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
                self._add_content(Place((name, code), cell), cell.cell_contents, value, seen)
        for name in code.co_names:
            if name in value.__globals__:
                content = value.__globals__[name]
                if is_number(content) or isinstance(content, FunctionType):
                    self._add_content(Place((name, id(value.__globals__)), value.__globals__), content, value, seen)

    def _add_content(self, place: Place, content: Any, owner: FunctionType, seen: set[int]) -> None:
        if is_number(content):
            self.numbers.append(place)
        elif isinstance(content, FunctionType) and content.__module__ == owner.__module__:
            self._add(content, seen)
        else:
            self._add_object(content)

    def _add_object(self, value: Any) -> None:
        self.objects.append(value)
        self.identity.append(id(value))


def is_number(value: object) -> bool:
    """Whether a value can be an input of a program: a Python number that JAX's default integer can hold."""
    if isinstance(value, int):
        return not isinstance(value, bool) and -(2**31) <= value < 2**31
    return isinstance(value, float)


@dataclass
class _Known(Generic[Program]):
    """What is known of one function: its programs, and which of its numbers change."""

    objects: list[Any]
    programs: dict[Hashable, Program] = field(default_factory=dict)
    last: dict[Place, Any] = field(default_factory=dict)
    changing: set[Place] = field(default_factory=set)
    fixed: set[Place] = field(default_factory=set)

    def look_at(self, captured: Sequence[Place], arguments: Sequence[Place]) -> None:
        """Note which numbers have changed; those among the arguments are expected to."""
        for place in captured:
            value = place.get()
            if self.last.setdefault(place, value) != value:
                self.changing.add(place)
            self.last[place] = value
        self.changing.update(arguments)
        self.changing -= self.fixed

    def fix(self, places: Sequence[Place]) -> None:
        """Let these numbers never be inputs again: each value has its program."""
        self.fixed.update(places)


class ProgramStore(Generic[Program]):
    """Programs of functions, looked up by function, signature and captured numbers."""

    def __init__(self) -> None:
        self._functions: OrderedDict[Hashable, _Known[Program]] = OrderedDict()

    def find(
        self,
        fn: Callable[..., Any],
        signature: Hashable,
        arguments: Sequence[Place],
        make: Callable[[list[Place]], Program],
    ) -> tuple[Program, list[Any]]:
        """Return the program of a call and the numbers that are its inputs.

        Args:
            fn: The function that is called.
            signature: What the program depends on besides.
            arguments: Where the numbers among the arguments stand.
            make: Makes a program, given which numbers are inputs.
        """
        around = Surroundings.of(fn)
        identity = tuple(around.identity)
        known = self._functions.setdefault(identity, _Known(around.objects))
        self._functions.move_to_end(identity)
        while len(self._functions) > _MOST_FUNCTIONS:
            self._functions.popitem(last=False)
        known.look_at(around.numbers, arguments)
        places = [*around.numbers, *arguments]
        inputs = [place for place in places if place in known.changing]
        key = _key(signature, places, inputs)
        if key not in known.programs:
            program = _made(make, inputs)
            if program is None:
                # A plain number in the place of each input; if this raises too, no number is to blame.
                known.programs[_key(signature, places, [])] = make([])
                known.fix(_needed_in_python(make, inputs) or inputs)
                return self.find(fn, signature, arguments, make)
            known.programs[key] = program
        return known.programs[key], [place.get() for place in inputs]


def _key(signature: Hashable, places: Sequence[Place], inputs: Sequence[Place]) -> Hashable:
    # 1 and 1.0 are equal, and give programs of different dtypes.
    constants = tuple((place, type(place.get()), place.get()) for place in places if place not in inputs)
    return (signature, constants, tuple((place, type(place.get())) for place in inputs))


def _made(make: Callable[[list[Place]], Program], inputs: Sequence[Place]) -> Program | None:
    """Return the program with these inputs; None where the function does not stand one of them.

    It may say so with any exception: JAX's own for `if step > 10`, a TypeError for `table[step]`, one of
    its own after `isinstance(step, int)`.
    """
    if not inputs:
        return make([])
    try:
        return make(list(inputs))
    except Exception:
        return None


def _needed_in_python(make: Callable[[list[Place]], Program], places: Sequence[Place]) -> list[Place]:
    """Return which of the numbers, that cannot all be inputs, the function needs as Python values."""
    if len(places) == 1:
        return list(places)
    half = len(places) // 2
    parts = (places[:half], places[half:])
    return [place for part in parts if _made(make, part) is None for place in _needed_in_python(make, part)]


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
