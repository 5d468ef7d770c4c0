"""Cache of programs: which one belongs to a call.

A program is looked up by what its function refers to (`program.captured_names`), by the signature of the call, and by
the numbers and arrays that the function refers to. One of these that is seen to change becomes an input of the program,
so that a counter, a schedule or the batch of the moment does not cost a tracing at each step. A number among the
arguments is an input from the first call. Where the function needs a number in Python (`if step > 10`, `range(n)`, a
shape) it is none: each of its values has a program.

Functions count as equal when their code is the same and they refer to the same things: a lambda written inside the loop
is traced once.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType, MethodType
from typing import Any, Final, NamedTuple

from stratagem.core.log import announce_once
from stratagem.mesh.mesh import Tree
from stratagem.program.assertions import are_numbers_checked
from stratagem.program.autograph import without_rewriting
from stratagem.program.call import Call
from stratagem.program.captured_names import captured_by
from stratagem.program.guards import CapturedValue, Guards, Path, fact_of, is_only_input, is_watched, kind_of
from stratagem.program.lru import LastUsed
from stratagem.program.program import Program
from stratagem.program.standing import Standing

_MOST_FUNCTIONS: Final = 128
"""Number of functions that are remembered: a lambda that holds a new object at each step must not pile up."""

_MOST_IN_A_ROW: Final = 5
"""After so many calls in a row that each took a tracing, a line says what changes (TensorFlow says it after five)."""


@dataclass
class _Known:
    """Record of one function that refers to certain things: its programs, and which of its numbers change."""

    programs: dict[Any, Program] = field(default_factory=dict)
    last: dict[Hashable, Hashable] = field(default_factory=dict)
    changing: set[Hashable] = field(default_factory=set)
    fixed: set[Hashable] = field(default_factory=set)
    kept: list[Any] = field(default_factory=list)
    alive: bool = True

    def look_at(self, captured: Sequence[CapturedValue], arguments: Sequence[CapturedValue]) -> None:
        """Note which numbers and arrays have changed; those among the arguments are expected to."""
        for place in captured:
            if place.key not in self.changing:
                value = place.get()
                fact = fact_of(value)
                if self.last.setdefault(place.key, fact) != fact or is_only_input(value):
                    self.changing.add(place.key)
                self.last[place.key] = fact
        self.changing.update(place.key for place in arguments)
        self.changing -= self.fixed

    def fix(self, places: Sequence[CapturedValue]) -> None:
        """Let these numbers never be inputs again: each value has its program."""
        self.fixed.update(place.key for place in places)
        self.changing -= self.fixed

    def key(self, call: Call, signature: Hashable, places: Sequence[CapturedValue]) -> Hashable:
        """Return the key of a call's program."""
        chosen = [(place.key, place.get()) for place in places]
        constants = tuple([(key, fact_of(value)) for key, value in chosen if key not in self.changing])
        inputs = tuple([(key, kind_of(value)) for key, value in chosen if key in self.changing])
        return (call.signature, signature, are_numbers_checked()), constants, inputs


class ProgramStore:
    """Programs of functions, for one strategy or one compiled function.

    Args:
        who: Who runs the functions, for messages.
    """

    def __init__(self, who: str) -> None:
        self._who = who
        self._functions: LastUsed[_Known] = LastUsed(_MOST_FUNCTIONS)
        self._latest: LastUsed[tuple[Guards, _Known]] = LastUsed(_MOST_FUNCTIONS)
        self._left_out: weakref.WeakKeyDictionary[Any, set[Path]] = weakref.WeakKeyDictionary()
        self._in_a_row = 0
        self._before: _Sighting | None = None

    def run(
        self,
        call: Call,
        signature: Hashable,
        make: Callable[[list[CapturedValue]], Program],
        arrays: Sequence[Any] | None,
    ) -> Tree:
        """Run the program of a call, made if there is none.

        Args:
            call: The function and its arguments.
            signature: What the program depends on besides the function and the call's own signature.
            make: Makes a program, given which numbers and arrays are inputs.
            arrays: The arrays of the call, where the program takes them; None to make the program alone.
        """
        guards, known = self._known(call)
        places = [*guards.places, *call.numbers]
        known.look_at(guards.places, call.numbers)
        standing: Standing | None = None

        def traced(inputs: list[CapturedValue]) -> Program:
            nonlocal standing
            standing = standing or Standing(guards)
            try:
                return make(inputs)
            finally:
                standing.put_back()

        while True:  # again where a number turns out to be needed in Python
            inputs = [place for place in places if place.key in known.changing]
            key = known.key(call, signature, places)
            program = known.programs.get(key)
            is_new = program is None or not program.alive
            self._watch_tracings(call, guards, key, is_new=is_new)
            if is_new:
                program = _made(traced, inputs)
            if program is not None:
                break
            traced([])  # with plain numbers: if this raises too, no number is to blame
            known.fix(_needed_in_python(traced, inputs) or inputs)
        known.programs[key] = program
        result = None if arrays is None else program.step(call, inputs, arrays)
        if is_new:
            guards, settled = self._settled(call, guards, known)
            if known.programs.pop(key, None) is not None:
                settled.programs[settled.key(call, signature, [*guards.places, *call.numbers])] = program
        return result

    def _settled(self, call: Call, guards: Guards, before: _Known) -> tuple[Guards, _Known]:
        """Return what a function refers to after a new program has run: tracing the function may have changed that.

        It may have made a variable that was missing. Its program is that of a function which refers to what it left
        behind. A list that it has appended to is not looked into any more.
        """
        code, grown = _code_of(call.fn), guards.changed_containers()
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
                    f"{call.name} changes {place.name!r}, a number or an array that it refers to. The Python code of "
                    f"the function runs only while it is compiled, so {self._who} continues with one value. Keep "
                    "values that change at each step in a Keras variable, or change them outside the function."
                )
                known.last[place.key] = fact
        return guards, known

    def _known(self, call: Call) -> tuple[Guards, _Known]:
        """Return the guards of a call's function, and the record of it."""
        root = _root(call.fn)
        latest = None if root is None or call.objects else self._latest.get(root)
        if latest is not None and latest[1].alive and latest[0].hold(call.fn):
            return latest
        code = _code_of(call.fn)
        left_out = frozenset() if code is None else self._left_out.get(code, frozenset())
        guards = captured_by(call.fn, call.objects, left_out)
        known = self._remembered(guards)
        return self._latest.keep(root, (guards, known))

    def _remembered(self, guards: Guards) -> _Known:
        identity = tuple(guards.identity)
        known = self._functions.get(identity)
        if known is None:
            known = _Known()
            forget = functools.partial(_forget, weakref.ref(self), identity)
            # An identity holds ids, which mean something only as long as all of its objects live.
            known.kept = [weakref.ref(value, forget) if is_watched(value) else value for value in guards.objects]
        guards.objects.clear()
        return self._functions.keep(identity, known)

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
        before, self._before = self._before, _Sighting(call.name, guards.identity, key)
        if not is_new or before is None or before.name != call.name:
            self._in_a_row = 0
            return
        self._in_a_row += 1
        if self._in_a_row == _MOST_IN_A_ROW:
            announce_once(
                f"{self._who} compiled {call.name} again in {_MOST_IN_A_ROW} calls in a row: "
                f"{self._before.difference(before)}. Give values that change at each call as arguments. Numbers, and "
                "arrays of one shape, are inputs of one program."
            )


class _Sighting(NamedTuple):
    """One call of a function: what it referred to, and what its program is known by. It keeps no object alive."""

    name: str
    identity: Sequence[tuple[Path, Hashable]]
    key: Any

    def difference(self, before: _Sighting) -> str:
        """Say why this call has another program than the one before."""
        for found, earlier in zip(self.identity, before.identity, strict=False):
            if found != earlier:
                return f"{'.'.join(found[0])} changes"
        if len(self.identity) != len(before.identity):
            return "what it refers to changes"
        (signature, constants, _), (old_signature, old_constants, _) = self.key, before.key
        if signature != old_signature:
            return "its arguments have other shapes or values"
        for (place, fact), (_, earlier) in zip(constants, old_constants, strict=False):
            if fact != earlier:
                return f"Python needs the value of {place[0]!r}, which changes"
        return "its inputs change"


def _forget(store: weakref.ref[ProgramStore], identity: Hashable, _: Any) -> None:
    alive = store()
    if alive is not None:
        alive.forget(identity)


def _root(fn: Any) -> Hashable:
    """Return the key for a look at a function; None for a callable that has no code of its own."""
    code = _code_of(fn)
    return (code, id(fn.__self__)) if code is not None and isinstance(fn, MethodType) else code


def _code_of(fn: Any) -> CodeType | None:
    return getattr(fn, "__code__", None) if isinstance(fn, FunctionType | MethodType) else None


def _made(make: Callable[[list[CapturedValue]], Program], inputs: Sequence[CapturedValue]) -> Program | None:
    """Return the program with these inputs; None where the function does not stand one of them.

    It may say so with any exception: JAX's own for `if step > 10`, a TypeError for `table[step]`, one of
    its own after `isinstance(step, int)`.
    """
    if not inputs:
        return make([])
    try:
        with without_rewriting():  # a number that is known decides in Python
            return make(list(inputs))
    except Exception:
        return None


def _needed_in_python(
    make: Callable[[list[CapturedValue]], Program], places: Sequence[CapturedValue]
) -> list[CapturedValue]:
    """Return which of the numbers, that cannot all be inputs, the function needs as Python values."""
    if len(places) == 1:
        return list(places)
    half = len(places) // 2
    parts = (places[:half], places[half:])
    return [place for part in parts if _made(make, part) is None for place in _needed_in_python(make, part)]
