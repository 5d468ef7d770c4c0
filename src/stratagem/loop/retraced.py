"""The record of a tape inside functions that are traced.

It cannot look back at what JAX has traced. So when `tape.gradient` is reached, the function is
traced again from its start up to that call, with the values that the tape watches as inputs; that is
a function JAX can differentiate, and the first tracing goes on with the result. XLA finds the two
forward passes equal and keeps one. A tape that begins in a branch or loop of the function, which JAX
traces by itself, is `recorded` instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import keras

from stratagem.core.errors import UsageError
from stratagem.loop.added_losses import give_back
from stratagem.loop.partial import Traced, mark
from stratagem.mesh.exchange import Exchange
from stratagem.program.tracing import Replayable
from stratagem.replica.context import current_replica_context


class _Reached(BaseException):
    """Ends a replay at the gradient call it was made for. Not an `Exception`: user code must not catch it."""

    def __init__(self, targets: list[Any], tensors: list[Any], watched: list[Any], links: list[set[int]]) -> None:
        super().__init__("a replay reached its gradient call")
        self.reached = targets, tensors, watched
        self.is_linked = [all(id(tensor) in linked for linked in links) for tensor in tensors]


class _Replay(Replayable):
    """A tracing that stops at one gradient call, with substitutes for what tapes watch.

    Args:
        origin: The tracing in which the gradient is wanted.
        call: Number of the gradient call.
        tape: Number of the tape it is a call of.
        substitutes: For each tape under differentiation, values by variable.
        whole: Whether that tape holds everything since the function began.
    """

    def __init__(
        self, origin: Replayable, call: int, tape: int, substitutes: dict[int, dict[int, Any]], *, whole: bool
    ) -> None:
        super().__init__(origin.body, origin.values)
        self.again = True
        self.call = call
        self.tape = tape
        self.whole = whole
        self.substitutes = substitutes
        self.answers = list(_gradients(origin))
        self.links: list[set[int]] = []
        """For each gradient found meanwhile under the tape, the tensors that it depends on as they stand here."""

    def run(self) -> Any:
        """Trace the function from its start, up to the call."""
        if self.whole:
            mark("enter")
        return super().run()

    @property
    def recorded(self) -> bool:
        """Whether what is computed at this point is under the tape."""
        tapes = _tapes(self)
        return self.whole or (self.tape < len(tapes) and tapes[self.tape].recording)


class _Gradient(NamedTuple):
    """Result of a gradient call.

    Args:
        answer: The gradients, one for each source.
        crossings: How many exchanges between replicas it took: the derivative of a sum over replicas is one.
    """

    answer: list[Any]
    crossings: int


def _exchange() -> Exchange:
    context = current_replica_context()
    return Exchange() if context is None else context.exchange


def _tapes(tracing: Replayable) -> list[Retraced]:
    return tracing.notes.setdefault("tapes", [])


def _gradients(tracing: Replayable) -> list[_Gradient]:
    return tracing.notes.setdefault("gradients", [])


class Retraced:
    """Record of a tape in a function that is being traced: where it begins and ends, and what it watches.

    Args:
        tracing: The tracing.
        watches_variables: Whether trainable variables that are read are watched by themselves.
        whole: Whether it holds everything since the function began, and no variables.
    """

    def __init__(self, tracing: Replayable, watches_variables: bool, *, whole: bool = False) -> None:
        self._tracing = tracing
        self._whole = whole
        self._number = len(_tapes(tracing))
        _tapes(tracing).append(self)
        self._watches_variables = watches_variables
        self._read: dict[int, tuple[Any, Any]] = {}
        self._explicit: set[int] = set()
        self._watched: list[Any] = []
        self.recording = False
        self._substitutes: dict[int, Any] = {}
        if isinstance(tracing, _Replay):
            self._substitutes = tracing.substitutes.get(self._number, {})

    def begin(self) -> None:
        """Record from here on."""
        self.recording = True
        self._tracing.scope.hooks.append(self._on_read)
        self._mark("enter")

    def end(self) -> None:
        """Record no more."""
        self._mark("exit")
        self.recording = False
        self._tracing.scope.hooks.remove(self._on_read)

    def release(self) -> None:
        """Nothing is kept beyond the tracing."""

    def _mark(self, what: str) -> None:
        if isinstance(self._tracing, _Replay) and self._tracing.tape == self._number:
            mark(what)

    def watch(self, leaf: Any) -> None:
        """Watch a tensor or a variable."""
        if isinstance(leaf, keras.Variable):
            self._explicit.add(id(leaf))
        else:
            self._watched.append(leaf)

    def watched_variables(self) -> tuple[Any, ...]:
        """Return the variables read so far that are watched."""
        return tuple(variable for variable, _ in self._read.values())

    def _on_read(self, variable: Any, value: Any) -> Any:
        """Note a variable's value; while this tape is differentiated, give the value that stands for it."""
        watched = id(variable) in self._explicit or (self._watches_variables and variable.trainable)
        if not watched:
            return value
        _, first = self._read.setdefault(id(variable), (variable, value))
        substitute = self._substitutes.get(id(variable))
        if substitute is None:
            return value
        # Assigned since the tape began: the assignment is no part of the derivative, the read is.
        return substitute if value is first else value + (substitute - jax.lax.stop_gradient(substitute))

    def gradients(
        self, targets: Sequence[Any], sources: Sequence[Any], weights: Sequence[Any], *, several: bool
    ) -> list[Any]:
        """Return the gradients of weighted targets by each source, None where there is no connection.

        Args:
            targets: Floating-point tensors.
            sources: Variables and tensors.
            weights: Of the targets' shapes.
            several: Whether the weights have one more axis in front; then gradients have it too.
        """
        tracing, number, exchange = self._tracing, len(_gradients(self._tracing)), _exchange()
        before = exchange.position
        if isinstance(tracing, _Replay):
            if number == tracing.call:
                raise _Reached(list(targets), _tensors(sources), list(self._watched), tracing.links)
            if not tracing.recorded:
                # Not under the tape that is differentiated: what the first tracing found is a constant.
                known = tracing.answers[number]
                _gradients(tracing).append(known)
                exchange.skip(known.crossings)
                return known.answer
        if tracing.discovering:
            outer = weights[0].shape[:1] if several else ()
            found: list[Any] = [jnp.zeros((*outer, *leaf.shape), leaf.dtype) for leaf in sources]
        else:
            found = self._differentiate(number, sources, weights, several)
        _gradients(tracing).append(_Gradient(found, exchange.position - before))
        return found

    def _differentiate(
        self, number: int, sources: Sequence[Any], weights: Sequence[Any], several: bool
    ) -> list[jax.Array | None]:
        wanted = {id(leaf) for leaf in sources if isinstance(leaf, keras.Variable)}
        read = sorted(self._read.values(), key=lambda each: id(each[0]) not in wanted)
        outer = self._tracing.substitutes if isinstance(self._tracing, _Replay) else {}

        is_linked: list[bool] = []

        def prefix(values: list[jax.Array]) -> tuple[list[jax.Array], list[jax.Array], list[jax.Array]]:
            own = {id(variable): value for (variable, _), value in zip(read, values, strict=True)}
            replay = _Replay(self._tracing, number, self._number, {**outer, self._number: own}, whole=self._whole)
            try:
                replay.run()
            except _Reached as end:
                give_back(self._tracing, replay)
                is_linked[:] = end.is_linked
                targets, tensors, watched = end.reached
                return targets, [jnp.asarray(leaf) for leaf in tensors], [jnp.asarray(leaf) for leaf in watched]
            raise UsageError(
                "The function did not reach tape.gradient when it was traced again.",
                "It does something else each time it runs, so its gradient is not defined.",
                "Move random numbers and counters of Python out of the function if they change what it computes.",
            )

        tensors = _tensors(sources)
        traced = Traced(prefix, [value for _, value in read])
        if any(traced.is_computed(place) and not linked for place, linked in enumerate(is_linked)):
            raise UsageError(
                "In a compiled function a tape was asked for the gradient by a tensor that was computed inside it, "
                "of a target that another tape's gradient went into.",
                "The part of the gradient that goes through the other tape's would be missing.",
                "Start the inner tape after the tensor is computed, and let it watch the tensor: inner.watch(tensor).",
            )
        variables = [variable for variable, _ in read if id(variable) in wanted]
        actual = [*tensors, *self._watched]
        by_variable, by_tensor, linked = traced.gradients(len(variables), actual, weights, several)
        if isinstance(self._tracing, _Replay):
            self._tracing.links.append(
                {id(tensor) for tensor, is_linked in zip(actual, linked, strict=True) if is_linked}
            )
        of_variable = {id(variable): gradient for variable, gradient in zip(variables, by_variable, strict=True)}
        of_tensor = iter(by_tensor)
        return [of_variable.get(id(leaf)) if isinstance(leaf, keras.Variable) else next(of_tensor) for leaf in sources]


def _tensors(sources: Sequence[Any]) -> list[Any]:
    return [leaf for leaf in sources if not isinstance(leaf, keras.Variable)]
