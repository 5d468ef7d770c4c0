"""`Program`: a function that reads and assigns variables, as one that takes their values and returns new ones."""

from __future__ import annotations

import abc
import contextlib
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from stratagem.core.freed_memory import StepMemory
from stratagem.core.progress import Phase, Progress
from stratagem.mesh.changing import ChangingWorld
from stratagem.mesh.crossings import as_number
from stratagem.mesh.mesh import ReplicaMesh, Tree
from stratagem.program.assertions import Assertions
from stratagem.program.autograph import tracing_anew
from stratagem.program.call import Call
from stratagem.program.discover import discover
from stratagem.program.guards import CapturedValue, reference_to
from stratagem.program.remote_values import assign_all
from stratagem.program.rules.streams import Streams
from stratagem.program.tracing import Replayable, current_tracing, read


class Called(threading.local):
    """The call that a program is traced for.

    A program keeps neither its function nor what the function refers to. JAX may trace it at any run, and then calls
    the function of the run, which refers to the same things.
    """

    def __init__(self) -> None:
        self._calls: list[tuple[Call, Sequence[CapturedValue]]] = []

    @contextlib.contextmanager
    def by(self, call: Call, inputs: Sequence[CapturedValue]) -> Iterator[None]:
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

    @contextlib.contextmanager
    def with_inputs(self, values: Sequence[Any]) -> Iterator[None]:
        """Let values stand where the inputs of the call stand, while the function is traced."""
        places = self._calls[-1][1]
        before = [place.get() for place in places]
        for place, value in zip(places, values, strict=True):
            place.put(value)
        try:
            yield
        finally:
            for place, value in zip(places, before, strict=True):
                place.put(value)


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


class Program(abc.ABC):
    """A function for one signature of arguments: the variables that it touches, and the structure of its result.

    A subclass compiles it.

    Attributes:
        called: The call that it runs for.
        assertions: Those that it makes; a subclass runs the program while they are watched.
        progress: Told of its runs, which are steps; None where they are not.
        world: The workers that run it together, where these may change.
        variables: Those that it reads or assigns.
        assigned: Which of them it assigns, by their place.
        structure: How its outputs are arranged, once it has been traced.
        streams: The random streams among them that lie elsewhere, once it is compiled.
        is_joint: Whether it surely ends on no worker before all have run it.
    """

    variables: VariableList
    assigned: list[int]

    def __init__(self) -> None:
        self.called = Called()
        self.progress: Progress | None = None
        self.world: ChangingWorld | None = None
        self._phase = Phase.COMPILING  # the first run compiles
        self._step_memory = StepMemory(0)
        self.structure: Any = None
        self.is_joint = False
        self.streams = Streams(None, (), ())
        self.assertions = Assertions()
        self._held: Sequence[Any] = ()

    @abc.abstractmethod
    def run(self, arrays: Sequence[Any], numbers: list[Any]) -> Tree:
        """Run it: read the variables, assign their new values, return the outputs.

        Args:
            arrays: The arrays among the arguments, where the program takes them.
            numbers: The values of the inputs.
        """

    def step(self, call: Call, inputs: Sequence[CapturedValue], arrays: Sequence[Any]) -> Tree:
        """Run it for a call: a step, unless it is a part of a function that is being traced.

        Args:
            call: The call.
            inputs: The numbers and arrays that are inputs.
            arrays: The arrays among the arguments, where the program takes them.
        """
        numbers = [place.get() for place in inputs]
        with self.called.by(call, inputs):
            if self.progress is None or current_tracing() is not None:
                return tracing_anew(lambda: self.run(arrays, numbers))
            if self.world is not None:
                self.world.begin_program()
            if self._phase is Phase.COMPILING:
                self._step_memory = StepMemory(sum(4 * math.prod(variable.shape) for variable in self.variables))
                self._step_memory.tidy()
            with self.progress.during(self._phase, 1, f"the function `{call.name}`", self.is_joint):
                result = tracing_anew(lambda: self.run(arrays, numbers))
                self._step_memory.tidy((result,))
        self._phase = Phase.STEP
        return result

    @property
    def alive(self) -> bool:
        """Whether the variables are still there."""
        return self.variables.alive

    def discover(
        self,
        body: Callable[[Sequence[Any]], Callable[[], Tree]],
        call: Call,
        inputs: Sequence[CapturedValue],
        arrays: Sequence[Any],
        mesh: ReplicaMesh | None = None,
    ) -> Replayable:
        """Trace the function once, to learn which variables it touches. They are held until the program has run.

        Args:
            body: Function of the arrays that returns the function to trace.
            call: A call like those to come.
            inputs: The numbers and arrays that are inputs.
            arrays: The arrays of the call, or their shapes.
            mesh: The replicas, where it is the function of one.
        """

        def run(own: Sequence[Any], numbers: Sequence[Any]) -> Replayable:
            tracing = Replayable(_valued(body(own)), discovering=True)
            with self.called.with_inputs(numbers):
                tracing.run()
            return tracing

        with self.called.by(call, inputs):
            tracing = discover(run, [list(arrays), [each.get() for each in inputs]], mesh)
        touched = tracing.scope.touched
        self.variables, self._held = VariableList(touched), touched
        self.assigned = [i for i, variable in enumerate(touched) if id(variable) in tracing.scope.assigned]
        return tracing

    def traced(
        self, body: Callable[[], Tree], values: Sequence[jax.Array], *, again: bool = False
    ) -> tuple[list[jax.Array], list[jax.Array]]:
        """Trace the function with values in the place of the variables.

        Args:
            body: The function, with its arguments filled in.
            values: One for each variable.
            again: Whether to leave out what a program tells its own process (`Replayable.again`).

        Returns:
            (its outputs, the new values of the variables that it assigns).
        """
        tracing = Replayable(_valued(body), list(zip(self.variables, values, strict=True)))
        tracing.again = again
        leaves, self.structure = jax.tree.flatten(tracing.run())
        new = [tracing.scope.get_current_value(self.variables[i]) for i in self.assigned]
        return [as_number(f"What {self.called.call.name} returned", leaf) for leaf in leaves], new

    def assign(self, changed: Sequence[Any]) -> None:
        """Give the variables that it assigns new values; streams that have gone on already, no others."""
        gone_on = self.streams.taken if current_tracing() is None else ()
        new = [(self.variables[i], value) for i, value in zip(self.assigned, changed, strict=True) if i not in gone_on]
        assign_all([variable for variable, _ in new], [value for _, value in new])
        self._held = ()


def _valued(body: Callable[[], Tree]) -> Callable[[], Tree]:
    """Return a function whose result has the values of variables in their places, as they are at its end."""
    return lambda: read(body())
