"""Programs that draw from random streams which lie elsewhere, and that count there.

A program draws by reading the position of a stream and assigning a later one. Several workers that did that would draw
the same numbers. So the program is given a position that nobody else is given: how far it goes on is found before it
runs, and the stream goes on as far at the moment at which the position is read.

| how far it goes on                                | how that is found                                           |
| ------------------------------------------------- | ----------------------------------------------------------- |
| is known when it is traced: the usual             | once; the position is taken with the values of all variables |
| depends on what it is given, or on what it draws  | at each run, by the part of the program that says so         |
| nowhere: it assigns a position that it was given  | not at all: it is assigned like any other value              |

A number to which a program adds, and which it returns, is taken in the same way: `count.assign_add(1)` returns each
number once, to whichever worker, as in TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn, jaxpr_as_fun

from stratagem.program.compat import needed_part, stored_dtype
from stratagem.program.interpret import replaced
from stratagem.program.remote_values import Known, Taken, values_of

_ELSEWHERE: Final = (8191, 127)
"""A position at which a program that goes on by a number goes on by the same number."""


class Streams:
    """The streams of a program, and the numbers that it returns when it has added to them.

    Args:
        compiled: A jitted function of the values of variables, arrays, and numbers. It returns outputs, and new
            values of some variables.
        variables: The variables.
        assigned: Which of them get new values.

    Attributes:
        taken: Which of them are not assigned, by their place among the variables: what they would say has happened when
            the variables were read.
    """

    def __init__(self, compiled: Any, variables: Sequence[Any], assigned: Sequence[int]) -> None:
        self._compiled = compiled
        self._variables = variables
        self._assigned = list(assigned)
        self.taken = {i for i in assigned if getattr(variables[i], "is_stream", False)}
        self._sums = _numbers_added_to(variables, assigned)
        self._steps: dict[int, np.ndarray] = {}
        """Steps by which streams go on at each run, where they are always the same."""
        self._ends: dict[int, tuple[list[int], Callable[..., Any]]] = {}
        """Inputs that tell where the other streams stand in the end, and a function of these."""
        self._prepared = False

    def wanted(self, arrays: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
        """Return what `values_of` is to read for the next run: the variables, with the streams as this run has them.

        Args:
            arrays: The arrays of the program.
            numbers: Its numbers.
        """
        wanted = list(self._variables)
        if not self._prepared and (self.taken or self._sums):
            self._prepare(arrays, numbers)
            self._prepared = True
        for place, step in self._steps.items():
            if step.any():
                wanted[place] = Taken(wanted[place], step)
        for place in self._ends:
            wanted[place] = Known(self._moved(place, [*self._variables, *map(Known, arrays), *map(Known, numbers)]))
        return wanted

    def _prepare(self, arrays: Sequence[Any], numbers: Sequence[Any]) -> None:
        values = [jax.ShapeDtypeStruct(v.shape, jnp.dtype(stored_dtype(v))) for v in self._variables]
        traced = self._compiled.trace(values, list(arrays), list(numbers))
        program = ClosedJaxpr(replaced(traced.jaxpr.jaxpr, _without_notes), traced.jaxpr.consts)
        first = len(traced.out_info[0])
        streams = sorted(self.taken)
        self._steps = self._always(program, first, streams) or {}
        for place in (place for place in streams if place not in self._steps):
            inputs, end = self._part(program, first, [place])
            if place not in inputs:
                self.taken.discard(place)
                continue
            self._steps.update(self._always(program, first, [place]) or {})
            if place not in self._steps:
                self._ends[place] = inputs, end
        self._take_sums(program, first)

    def _take_sums(self, program: ClosedJaxpr, first: int) -> None:
        """Find the numbers that results are computed from, and to which each run adds the same."""
        results = [place < first for place in range(len(program.jaxpr.outvars))]
        _, needed = needed_part(program.jaxpr, results)
        for place, number in self._sums.items():
            inputs, end = self._part(program, first, [place])
            if needed[number] and set(inputs) <= {place}:
                zero = np.zeros((), stored_dtype(self._variables[place]))
                self._steps[number] = np.asarray(end(*[zero for _ in inputs])[0])
                self.taken.add(place)

    def _part(self, program: ClosedJaxpr, first: int, places: Sequence[int]) -> tuple[list[int], Callable[..., Any]]:
        """Return which inputs tell where streams stand in the end, and the function that does."""
        used = [False] * len(program.jaxpr.outvars)
        for place in places:
            used[first + self._assigned.index(place)] = True
        part, needed = needed_part(program.jaxpr, used)
        return [i for i, is_needed in enumerate(needed) if is_needed], jax.jit(
            jaxpr_as_fun(ClosedJaxpr(part, program.consts))
        )

    def _always(self, program: ClosedJaxpr, first: int, places: Sequence[int]) -> dict[int, np.ndarray] | None:
        """Return how far streams go on at each run; None where that is not always the same."""
        inputs, ends = self._part(program, first, places)
        if inputs != sorted(places):
            return None
        steps = []
        for begin in (0, 0), _ELSEWHERE:
            given = [np.array(begin).astype(stored_dtype(self._variables[place])) for place in places]
            steps.append([np.asarray(end) - start for start, end in zip(given, ends(*given), strict=True)])
        same = all(np.array_equal(one, other) for one, other in zip(*steps, strict=True))
        return dict(zip(places, steps[0], strict=True)) if same else None

    def _moved(self, place: int, inputs: Sequence[Any]) -> Any:
        """Take what a run will draw from a stream; return the position at which it begins to draw."""
        stream = self._variables[place]
        needed, end = self._ends[place]
        while True:
            given = values_of([inputs[i] for i in needed])
            before = given[needed.index(place)]
            if stream.residence.exchange(stream, np.asarray(before), np.asarray(end(*given)[0])):
                return before


def _numbers_added_to(variables: Sequence[Any], assigned: Sequence[int]) -> dict[int, int]:
    """Return the numbers that lie elsewhere and are only added to: by the place of what is added, their own place."""
    own = {id(variable): place for place, variable in enumerate(variables)}
    numbers = {place: own.get(id(getattr(variables[place], "adds_to", None))) for place in assigned}
    return {place: number for place, number in numbers.items() if number is not None and number not in assigned}


def _without_notes(equation: JaxprEqn) -> Callable[..., Any] | None:
    """Leave out what only tells Python something: prints, assertions. It happens when the whole program runs."""
    return (lambda *operands: []) if equation.effects and not equation.outvars else None
