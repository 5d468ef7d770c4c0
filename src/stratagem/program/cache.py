"""Programs of functions: which one belongs to a call.

A program is looked up by what its function refers to (`program.captured_names`), by the signature of the call, and by
the numbers and arrays that the function refers to. One of these that is seen to change becomes an input of the program,
so that a counter, a schedule or the batch of the moment does not cost a tracing at each step. A number among the
arguments is an input from the first call. Where the function needs a number in Python (`if step > 10`, `range(n)`, a
shape) it is none: each of its values has a program.

Functions count as equal when their code is the same and they refer to the same things: a lambda written inside the loop
is traced once.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType, MethodType
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from jax.core import Tracer

from stratagem.core.log import announce_once
from stratagem.program.call import Call
from stratagem.program.captured_names import captured_by
from stratagem.program.guards import Guards, Path, Place, fact_of, is_watched, kind_of, reference_to

_MOST_FUNCTIONS: Final = 128
"""How many functions are remembered: a lambda that holds a new object at each step must not pile up."""

_MOST_IN_A_ROW: Final = 5
"""After so many calls in a row that each took a tracing, a line says what changes (TensorFlow says it after five)."""


class Usable(Protocol):
    """A program that may come to its end with what it was made of."""

    @property
    def alive(self) -> bool: ...


Program = TypeVar("Program", bound=Usable)


class Called(threading.local):
    """The call that a program is traced for.

    A program keeps neither its function nor what the function refers to. JAX may trace it at any run, and then calls
    the function of the run, which refers to the same things.
    """

    def __init__(self) -> None:
        self._calls: list[tuple[Call, Sequence[Place]]] = []

    @contextlib.contextmanager
    def by(self, call: Call, inputs: Sequence[Place]) -> Iterator[None]:
        """Let a call be the one that the program is traced for.

        Args:
            call: The call.
            inputs: Where its inputs stand.
        """
        self._calls.append((call, inputs))
        try:
            yield
        finally:
            self._calls.pop()

    @property
    def call(self) -> Call:
        """The call."""
        return self._calls[-1][0]

    def with_inputs(self, values: Sequence[Any]) -> contextlib.AbstractContextManager[None]:
        """Let values stand where the inputs of the call stand."""
        return standing_in(self._calls[-1][1], values)


class VariableList(Sequence[Any]):
    """Variables of a program, which it does not keep alive."""

    def __init__(self, variables: Sequence[Any]) -> None:
        self._references = [reference_to(variable) for variable in variables]

    def __len__(self) -> int:
        return len(self._references)

    def __getitem__(self, place: Any) -> Any:
        return self._references[place]()

    def __iter__(self) -> Iterator[Any]:
        return (reference() for reference in self._references)

    @property
    def alive(self) -> bool:
        """Whether all of them are still there."""
        return all(reference() is not None for reference in self._references)


@dataclass
class _Known(Generic[Program]):
    """What is known of one function that refers to certain things: its programs, and which of its numbers change."""

    identity: tuple[Hashable, ...]
    paths: list[Path]
    programs: dict[Any, Program] = field(default_factory=dict)
    last: dict[Hashable, Hashable] = field(default_factory=dict)
    changing: set[Hashable] = field(default_factory=set)
    fixed: set[Hashable] = field(default_factory=set)
    kept: list[Any] = field(default_factory=list)
    alive: bool = True

    def look_at(self, captured: Sequence[Place], arguments: Sequence[Place]) -> None:
        """Note which numbers and arrays have changed; those among the arguments are expected to."""
        for place in captured:
            if place.key not in self.changing:
                value = place.get()
                fact = fact_of(value)
                if self.last.setdefault(place.key, fact) != fact or isinstance(value, Tracer):
                    self.changing.add(place.key)
                self.last[place.key] = fact
        self.changing.update(place.key for place in arguments)
        self.changing -= self.fixed

    def fix(self, places: Sequence[Place]) -> None:
        """Let these numbers never be inputs again: each value has its program."""
        self.fixed.update(place.key for place in places)
        self.changing -= self.fixed

    def key(self, call: Call, signature: Hashable, places: Sequence[Place]) -> Hashable:
        """Return what the program of a call is known by."""
        chosen = [(place.key, place.get()) for place in places]
        constants = tuple([(key, fact_of(value)) for key, value in chosen if key not in self.changing])
        inputs = tuple([(key, kind_of(value)) for key, value in chosen if key in self.changing])
        return (call.signature, signature), constants, inputs


@dataclass(frozen=True)
class Found(Generic[Program]):
    """The program of a call.

    Args:
        program: It.
        inputs: Where numbers and arrays stand that are its inputs.
        values: What stands there.
        guards: What the function referred to.
        known: What was known of it.
        key: What the program is known by.
        signature: As given to `find`.
        is_new: Whether it was made for this call.
    """

    program: Program
    inputs: list[Place]
    values: list[Any]
    guards: Guards
    known: _Known[Program]
    key: Hashable
    signature: Hashable
    is_new: bool


class ProgramStore(Generic[Program]):
    """Programs of functions, for one strategy or one compiled function.

    Args:
        who: Who runs the functions, for messages.
    """

    def __init__(self, who: str) -> None:
        self._who = who
        self._functions: OrderedDict[Hashable, _Known[Program]] = OrderedDict()
        self._latest: OrderedDict[Hashable, tuple[Guards, _Known[Program]]] = OrderedDict()
        self._left_out: weakref.WeakKeyDictionary[Any, set[Path]] = weakref.WeakKeyDictionary()
        self._in_a_row = 0
        self._before: _Sighting | None = None

    def find(self, call: Call, signature: Hashable, make: Callable[[list[Place]], Program]) -> Found[Program]:
        """Return the program of a call, made if there is none.

        Args:
            call: The function and its arguments.
            signature: What the program depends on besides the function and the call's own signature.
            make: Makes a program, given which numbers and arrays are inputs.
        """
        guards, known = self._known(call)
        places = [*guards.places, *call.numbers]
        known.look_at(guards.places, call.numbers)
        while True:  # again where a number turns out to be needed in Python
            inputs = [place for place in places if place.key in known.changing]
            key = known.key(call, signature, places)
            program = known.programs.get(key)
            is_new = program is None or not program.alive
            self._watch_tracings(call, guards, key, is_new=is_new)
            if is_new:
                program = _made(make, inputs)
            if program is not None:
                known.programs[key] = program
                values = [place.get() for place in inputs]
                return Found(program, inputs, values, guards, known, key, signature, is_new)
            make([])  # with plain numbers: if this raises too, no number is to blame
            known.fix(_needed_in_python(make, inputs) or inputs)

    def settle(self, call: Call, found: Found[Program]) -> None:
        """Note what a function refers to after a new program has run: tracing the function may have changed that.

        It may have made a variable that was missing. Its program is that of a function which refers to what it left
        behind. A list that it has appended to is not looked into any more.
        """
        if not found.is_new:
            return
        before, code, grown = found.known, _code_of(call.fn), found.guards.changed_containers()
        if grown and code is not None:
            self._left_out.setdefault(code, set()).update(grown)
        guards, known = self._known(call)
        known.last = {**before.last, **known.last}
        known.changing |= before.changing
        known.fixed |= before.fixed
        for place in guards.places:
            fact = fact_of(place.get())
            if known.last.setdefault(place.key, fact) != fact and place.key not in known.changing:
                announce_once(
                    f"{call.name} changes {place.name!r}, a number or an array that it refers to. Its Python runs only "
                    f"while it is compiled, so {self._who} goes on with one value. Keep what changes at each step in "
                    "a Keras variable, or change it outside the function."
                )
                known.last[place.key] = fact
        key = known.key(call, found.signature, [*guards.places, *call.numbers])
        if before.programs.pop(found.key, None) is not None:
            known.programs[key] = found.program

    def _known(self, call: Call) -> tuple[Guards, _Known[Program]]:
        """Return what the function of a call refers to, and what is known of it."""
        root = _root(call.fn)
        latest = None if root is None or call.objects else self._latest.get(root)
        if latest is not None and latest[1].alive and latest[0].hold(call.fn):
            return latest
        code = _code_of(call.fn)
        left_out = frozenset() if code is None else self._left_out.get(code, frozenset())
        guards = captured_by(call.fn, call.objects, left_out)
        known = self._remembered(guards)
        _keep_latest(self._latest, root, (guards, known))
        return guards, known

    def _remembered(self, guards: Guards) -> _Known[Program]:
        identity = tuple(guards.identity)
        known = self._functions.get(identity)
        if known is None:
            known = _Known(identity, guards.paths)
            forget = _forgetting(weakref.ref(self), identity)
            # An identity holds ids, which mean something only as long as all of its objects live.
            known.kept = [weakref.ref(value, forget) if is_watched(value) else value for value in guards.objects]
        guards.objects.clear()
        _keep_latest(self._functions, identity, known)
        return known

    def forget(self, identity: Hashable) -> None:
        """Forget a function that referred to an object which is gone, and its programs."""
        known = self._functions.pop(identity, None)
        if known is not None:
            known.alive = False
        for root, (_, latest) in list(self._latest.items()):
            if latest is known:
                del self._latest[root]

    def _watch_tracings(self, call: Call, guards: Guards, key: Any, *, is_new: bool) -> None:
        """Say what changes where one call after another takes a tracing."""
        before, self._before = self._before, _Sighting(call.name, guards.identity, guards.paths, key)
        if not is_new or before is None or before.name != call.name:
            self._in_a_row = 0
            return
        self._in_a_row += 1
        if self._in_a_row == _MOST_IN_A_ROW:
            announce_once(
                f"{self._who} compiled {call.name} anew in {_MOST_IN_A_ROW} calls in a row: "
                f"{self._before.difference(before)}. Give what changes at each call as an argument: numbers, and "
                "arrays of one shape, are inputs of one program."
            )


class _Sighting(NamedTuple):
    """One call of a function: what it referred to, and what its program is known by. It keeps no object alive."""

    name: str
    identity: Sequence[Hashable]
    paths: Sequence[Path]
    key: Any

    def difference(self, before: _Sighting) -> str:
        """Say why this call has another program than the one before."""
        for token, earlier, path in zip(self.identity, before.identity, self.paths, strict=False):
            if token != earlier:
                return f"{'.'.join(path)} changes"
        if len(self.identity) != len(before.identity):
            return "what it refers to changes"
        (signature, constants, _), (old_signature, old_constants, _) = self.key, before.key
        if signature != old_signature:
            return "its arguments have other shapes or values"
        for (place, fact), (_, earlier) in zip(constants, old_constants, strict=False):
            if fact != earlier:
                return f"Python needs the value of {place[0]!r}, which changes"
        return "its inputs change"


def _keep_latest(known: OrderedDict[Hashable, Any], key: Hashable, value: Any) -> None:
    known[key] = value
    known.move_to_end(key)
    while len(known) > _MOST_FUNCTIONS:
        known.popitem(last=False)


def _forgetting(store: weakref.ref[ProgramStore[Any]], identity: Hashable) -> Callable[[Any], None]:
    def forget(_: Any) -> None:
        alive = store()
        if alive is not None:
            alive.forget(identity)

    return forget


def _root(fn: Any) -> Hashable:
    """Return what a look at a function is remembered by; None for what cannot be told by its code."""
    code = _code_of(fn)
    return (code, id(fn.__self__)) if code is not None and isinstance(fn, MethodType) else code


def _code_of(fn: Any) -> CodeType | None:
    return getattr(fn, "__code__", None) if isinstance(fn, FunctionType | MethodType) else None


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
