"""`GradientTape` inside functions that are traced.

A tape cannot look back at what JAX has traced. So when `tape.gradient` is reached, the function is
traced again from its start up to that call, with the values that the tape watches as inputs; that is
a function JAX can differentiate, and the first tracing goes on with the result. XLA finds the two
forward passes equal and keeps one.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import keras

from stratagem.core.errors import InputError, UsageError, explain
from stratagem.loop.partial import Traced, mark
from stratagem.replica.context import current_replica_context
from stratagem.replica.exchange import Exchange
from stratagem.replica.mesh import Tree
from stratagem.replica.tracing import Replayable, current_tracing

NONE: Final = "none"
ZERO: Final = "zero"


class UnconnectedGradients:
    """What stands for the gradient of something that the target does not depend on (`tf.UnconnectedGradients`)."""

    NONE = NONE
    ZERO = ZERO


class _Reached(BaseException):
    """Ends a replay at the gradient call it was made for. Not an `Exception`: user code must not catch it."""

    def __init__(self, targets: list[Any], watched: list[Any]) -> None:
        super().__init__("a replay reached its gradient call")
        self.targets = targets
        self.watched = watched


class _Replay(Replayable):
    """A tracing that stops at one gradient call, with substitutes for what tapes watch.

    Args:
        origin: The tracing in which the gradient is wanted.
        call: Number of the gradient call.
        tape: Number of the tape it is a call of.
        substitutes: For each tape under differentiation, values by variable.
    """

    def __init__(self, origin: Replayable, call: int, tape: int, substitutes: dict[int, dict[int, Any]]) -> None:
        super().__init__(origin.body, origin.values)
        self.call = call
        self.tape = tape
        self.substitutes = substitutes
        self.answers = list(_gradients(origin))


class _Gradient(NamedTuple):
    """What a gradient call found.

    Args:
        answer: The gradients, as the caller gets them.
        crossings: How many exchanges between replicas it took: the derivative of a sum over replicas is one.
    """

    answer: Tree
    crossings: int


def _exchange() -> Exchange:
    context = current_replica_context()
    return Exchange() if context is None else context.exchange


def _tapes(tracing: Replayable) -> list[GradientTape]:
    return tracing.notes.setdefault("tapes", [])


def _gradients(tracing: Replayable) -> list[_Gradient]:
    return tracing.notes.setdefault("gradients", [])


class GradientTape:
    """Record operations for differentiation (`tf.GradientTape`).

    Limits, first: a tape works inside functions given to `strategy.run` or `stratagem.function`, which are
    traced; and the function must do the same each time it is traced (no unseeded Python randomness, no
    counters that decide what it computes), because `gradient` traces it again up to the call.
    Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/GradientTape

    Args:
        persistent: Whether `gradient` may be called more than once.
        watch_accessed_variables: Whether trainable variables that are read are watched by themselves.

    Raises:
        UsageError: No function is being traced.

    Example:
        >>> import keras, stratagem
        >>> w = keras.Variable(3.0)
        >>> def slope():
        ...     with stratagem.GradientTape() as tape:
        ...         loss = w * w
        ...     return tape.gradient(loss, w)
        >>> float(stratagem.OneDeviceStrategy("cpu:0").run(slope))
        6.0
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        tracing = current_tracing()
        if tracing is None:
            raise UsageError(
                explain(
                    "A GradientTape was made outside strategy.run and stratagem.function.",
                    "Nothing is traced there, so there is nothing to differentiate.",
                    "Put the training step into a function and call strategy.run(step, args=(batch,)), or decorate "
                    "it with @stratagem.function.",
                )
            )
        self._tracing = tracing
        self._number = len(_tapes(tracing))
        _tapes(tracing).append(self)
        self._persistent = persistent
        self._watches_variables = watch_accessed_variables
        self._read: dict[int, tuple[Any, Any]] = {}
        self._explicit: set[int] = set()
        self._watched: list[Any] = []
        self._recording = False
        self._used = False
        self._substitutes: dict[int, Any] = {}
        if isinstance(tracing, _Replay):
            self._substitutes = tracing.substitutes.get(self._number, {})

    def __enter__(self) -> GradientTape:
        self._recording = True
        self._tracing.scope.hooks.append(self)
        self._mark("enter")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._recording:
            self._mark("exit")
            self._recording = False
            self._tracing.scope.hooks.remove(self)

    def _mark(self, what: str) -> None:
        if isinstance(self._tracing, _Replay) and self._tracing.tape == self._number:
            mark(what)

    def watch(self, tensor: Tree) -> None:
        """Watch a tensor, so that gradients with respect to it can be had.

        Args:
            tensor: A structure of tensors or variables. A tensor counts from here on, inside the tape.
        """
        for leaf in keras.tree.flatten(tensor):
            if isinstance(leaf, keras.Variable):
                self._explicit.add(id(leaf))
            else:
                self._watched.append(leaf)

    def watched_variables(self) -> tuple[Any, ...]:
        """Return the variables read so far that the tape watches."""
        return tuple(variable for variable, _ in self._read.values())

    def on_read(self, variable: Any, value: Any) -> Any:
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

    def gradient(
        self,
        target: Tree,
        sources: Tree,
        output_gradients: Tree | None = None,
        unconnected_gradients: str = NONE,
    ) -> Tree:
        """Return the gradient of a target with respect to sources.

        Args:
            target: A tensor or a structure of tensors; gradients of several are added up. A target that is
                no scalar counts as its sum.
            sources: A structure of variables and watched tensors.
            output_gradients: Weights of the targets, of their shapes; ones when None.
            unconnected_gradients: What to return for a source that no target depends on: "none" or "zero".

        Returns:
            A structure like `sources`.

        Raises:
            UsageError: The tape is not persistent and was asked before.
            InputError: A target is no floating-point tensor.
        """
        if self._used and not self._persistent:
            raise UsageError(
                explain(
                    "gradient was called twice on a tape that is not persistent.",
                    "In TensorFlow the tape has given up what it recorded.",
                    "Write GradientTape(persistent=True), or ask for all gradients in one call.",
                )
            )
        self._used = True
        tracing, number, exchange = self._tracing, len(_gradients(self._tracing)), _exchange()
        before = exchange.position
        targets = [_checked(leaf) for leaf in keras.tree.flatten(target)]
        if isinstance(tracing, _Replay):
            if number == tracing.call:
                raise _Reached(targets, list(self._watched))
            tapes = _tapes(tracing)
            if not (tracing.tape < len(tapes) and tapes[tracing.tape]._recording):
                # Not under the tape that is differentiated: what the first tracing found is a constant.
                known = tracing.answers[number]
                _gradients(tracing).append(known)
                exchange.skip(known.crossings)
                return known.answer
        flat_sources = keras.tree.flatten(sources)
        if tracing.discovering:
            found = [jnp.zeros(leaf.shape, leaf.dtype) for leaf in flat_sources]
        else:
            weights = None if output_gradients is None else keras.tree.flatten(output_gradients)
            found = self._differentiate(number, flat_sources, weights)
        if str(unconnected_gradients).lower() == ZERO:
            found = [
                jnp.zeros(leaf.shape, leaf.dtype) if gradient is None else gradient
                for gradient, leaf in zip(found, flat_sources, strict=True)
            ]
        answer = keras.tree.pack_sequence_as(sources, found) if keras.tree.is_nested(sources) else found[0]
        _gradients(tracing).append(_Gradient(answer, exchange.position - before))
        return answer

    def _differentiate(
        self, number: int, sources: Sequence[Any], weights: Sequence[Any] | None
    ) -> list[jax.Array | None]:
        wanted = {id(leaf) for leaf in sources if isinstance(leaf, keras.Variable)}
        read = [(variable, value) for key, (variable, value) in self._read.items() if key in wanted]
        outer = self._tracing.substitutes if isinstance(self._tracing, _Replay) else {}

        def prefix(values: list[jax.Array]) -> tuple[list[jax.Array], list[jax.Array]]:
            own = {id(variable): value for (variable, _), value in zip(read, values, strict=True)}
            replay = _Replay(self._tracing, number, self._number, {**outer, self._number: own})
            try:
                replay.run()
            except _Reached as reached:
                return reached.targets, [jnp.asarray(leaf) for leaf in reached.watched]
            raise UsageError(
                explain(
                    "The function did not come to tape.gradient when it was traced again.",
                    "It does something else each time it runs, so its gradient is not defined.",
                    "Keep Python randomness and counters that change what it computes out of the function.",
                )
            )

        watched = {id(leaf): i for i, leaf in enumerate(self._watched)}
        traced = Traced(prefix, [value for _, value in read])
        chosen = [watched[id(leaf)] for leaf in sources if id(leaf) in watched]
        by_variable, by_tensor = traced.gradients(chosen, [self._watched[i] for i in chosen], weights)
        of_variable = {id(variable): g for (variable, _), g in zip(read, by_variable, strict=True)}
        of_tensor = {id(self._watched[i]): g for i, g in zip(chosen, by_tensor, strict=True)}
        return [of_variable.get(id(leaf), of_tensor.get(id(leaf))) for leaf in sources]


def _checked(target: Any) -> jax.Array:
    array = jnp.asarray(target.value if isinstance(target, keras.Variable) else target)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise InputError(
            explain(
                f"A target of tape.gradient has dtype {array.dtype}.",
                "Integers have no gradient.",
                "Give the loss as a floating-point tensor: keras.ops.cast(loss, 'float32').",
            )
        )
    return array
