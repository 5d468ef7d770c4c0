"""The only file of this folder that touches private parts of JAX and Keras: arrays that remember what they came from.

JAX hands each operation to the trace that is current. `Recording` is such a trace: it computes the operation at once,
and notes it where it depends on what is differentiated by. A gradient runs the noted operations again as a function,
which JAX differentiates by public means (`jax.vjp`). Arrays made under a recording have their values at any time, and
after its end they are ordinary ones.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import keras
from jax._src import core
from jax._src.array import ArrayImpl
from jax._src.dtypes import canonicalize_value_handlers
from jax._src.interpreters.pxla import shard_arg_handlers
from jax.core import Tracer
from jax.extend.core import jaxpr_as_fun
from keras.src.backend.common import global_state

from stratagem.core import patches
from stratagem.core.patches import Entry
from stratagem.loop.replay import Operation, Replay


class RecordedArray(Tracer):
    """An array made under a recording: a value that is known, and the number that the recording knows it by."""

    __slots__ = ("number", "primal")
    _trace: Any

    def __init__(self, recording: Recording, value: Any, number: int) -> None:
        self._trace = recording
        self.primal = value
        self.number = number

    @property
    def aval(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return jax.typeof(self.primal)

    @property
    def dimension_as_value(self) -> Callable[[], Any]:
        """What JAX asks of an operand for the value to trace in its place.

        A tape in a branch or loop of a compiled function, once it has ended, leaves what that part computed itself. JAX
        would take the array for a constant from outside, of which it finds that it comes from the part.
        """
        value = _lowered(self)
        if value is self or not isinstance(value, Tracer):
            raise AttributeError("dimension_as_value")
        return lambda: value

    def full_lower(self) -> Any:
        return self if self._trace.recording else core.full_lower(self.primal)

    def to_concrete_value(self) -> Any:
        return core.to_concrete_value(self.primal)

    def get_referent(self) -> Any:
        return core.get_referent(self.primal)


_METHODS: Final = (
    *("__array__", "__complex__", "__dlpack__", "__float__", "__format__", "__reduce__", "__repr__", "__str__"),
    *("addressable_data", "block_until_ready", "copy_to_host_async", "devices", "is_deleted", "item"),
    *("on_device_size_in_bytes", "tobytes", "tolist", "unsafe_buffer_pointer"),
)
_FACTS: Final = (
    *("addressable_shards", "committed", "device", "global_shards", "is_fully_addressable"),
    *("is_fully_replicated", "sharding"),
)


def _give_known_values() -> None:
    """Let recorded arrays answer what only arrays with values can; JAX's tracers refuse."""

    def method(name: str) -> Callable[..., Any]:
        def call(array: Any, *args: Any, **kwargs: Any) -> Any:
            known = concrete(array)
            if isinstance(known, Tracer):  # in a function of JAX's own: no values yet, and JAX's error
                return getattr(Tracer, name)(array, *args, **kwargs)
            return getattr(known, name)(*args, **kwargs)

        return call

    for name in _METHODS:
        setattr(RecordedArray, name, method(name))
    for name in _FACTS:
        setattr(RecordedArray, name, property(lambda array, name=name: getattr(concrete(array), name)))


def concrete(value: Any) -> Any:
    """Return a value without what recordings keep of it."""
    while isinstance(value, RecordedArray):
        value = value.primal
    return value


_give_known_values()


def _as_it_is(array: Any) -> Any:
    return array


def _as_arrays(arrays: Sequence[Any], *args: Any) -> Any:
    return shard_arg_handlers[ArrayImpl]([concrete(array) for array in arrays], *args)


def install() -> None:
    """Let compiled functions take recorded arrays. A second call does nothing."""
    by_class = isinstance(canonicalize_value_handlers, dict)  # newer releases ask nothing
    patches.install(
        __name__,
        {
            "shard_arg_handlers.RecordedArray": Entry(RecordedArray, _as_arrays),
            "canonicalize_value_handlers.RecordedArray": Entry(RecordedArray, _as_it_is if by_class else None),
        },
    )


class Recording(core.Trace):
    """Operations between `begin` and `end` compute at once, and can be differentiated."""

    def __init__(self) -> None:
        install()
        super().__init__()
        self.recording = False
        self.parent_trace: Any = None  # as JAX's own traces call it
        self._stand_ins: dict[int, tuple[Any, RecordedArray]] = {}
        self._operations: list[Operation] = []
        self._numbers = itertools.count()

    def begin(self) -> None:
        """Record from here on, in what is recorded or traced already."""
        self.parent_trace = core.trace_ctx.trace
        core.trace_ctx.set_trace(self)
        self.recording = True

    def end(self) -> None:
        """Record no more: the arrays are ordinary ones from here on, of which `pull` still knows how they were made."""
        core.trace_ctx.set_trace(self.parent_trace)
        self.recording = False

    def release(self) -> None:
        """Forget how arrays were made."""
        self._operations.clear()
        self._stand_ins.clear()

    def source(self, value: Any, like: RecordedArray | None = None) -> RecordedArray:
        """Return an array of this value to differentiate by.

        Args:
            value: The value.
            like: An earlier one: the derivatives by both add up.
        """
        return RecordedArray(self, value, next(self._numbers) if like is None else like.number)

    def watch(self, value: Any) -> None:
        """Differentiate by this very array: from here on, a source stands for it where operations meet it."""
        if not (isinstance(value, RecordedArray) and value._trace is self):
            self._stand_ins[id(value)] = value, self.source(value)

    # What JAX calls ----------------------------------------------------------------------------------

    def stage_value(self, val: Any) -> Any:
        return val if isinstance(val, jax.Array) else self.parent_trace.stage_value(val)

    def process_primitive(self, primitive: Any, tracers: Any, params: Any, /) -> Any:
        def function(*operands: Any) -> list[Any]:
            results = primitive.bind(*operands, **params)
            return list(results) if primitive.multiple_results else [results]

        results = self._ran(function, (primitive, *sorted(params.items())), self._given(tracers))
        return results if primitive.multiple_results else results[0]

    def process_call(self, primitive: Any, fun: Any, tracers: Any, params: Any, /) -> Any:
        return self._traced("process_call", (primitive, fun), tracers, (params,), {})

    def process_custom_jvp_call(self, primitive: Any, fun: Any, jvp: Any, tracers: Any, /, **kwargs: Any) -> Any:
        return self._traced("process_custom_jvp_call", (primitive, fun, jvp), tracers, (), kwargs)

    def process_custom_vjp_call(
        self, primitive: Any, fun: Any, fwd: Any, bwd: Any, tracers: Any, /, *args: Any, **kwargs: Any
    ) -> Any:
        return self._traced("process_custom_vjp_call", (primitive, fun, fwd, bwd), tracers, args, kwargs)

    def _traced(self, process: str, head: Sequence[Any], tracers: Sequence[Any], tail: Any, kwargs: Any) -> list[Any]:
        """Run an operation that holds functions, which can be called once only: trace it, and run the trace."""

        def function(*operands: Any) -> Any:
            return getattr(core.trace_ctx.trace, process)(*head, operands, *tail, **kwargs)

        given = self._given(tracers)
        with core.set_current_trace(self.parent_trace):
            traced = jax.make_jaxpr(function)(*map(self._operand, given))
        # What JAX wraps functions in is made anew at each call; and constants that a function closes over may change.
        rule = getattr(head[-1], "f", None) if process == "process_custom_jvp_call" else None
        is_known = rule is not None and not traced.consts
        what = (*head[:-1], rule, *sorted(kwargs.items())) if is_known else None
        return self._ran(jaxpr_as_fun(traced), what, given)

    def _ran(
        self, function: Callable[..., Sequence[Any]], what: tuple[Any, ...] | None, given: Sequence[Any]
    ) -> list[Any]:
        """Run an operation, and note it if it depends on a source."""
        operands = list(map(self._operand, given))
        with core.set_current_trace(self.parent_trace):
            values = list(function(*operands))
        numbers = [array.number if self._has_made(array) else None for array in given]
        if all(number is None for number in numbers):
            return values
        results = [next(self._numbers) if jnp.issubdtype(value.dtype, jnp.inexact) else None for value in values]
        self._operations.append(Operation(function, what, operands, numbers, results))
        pairs = zip(values, results, strict=True)
        return [value if number is None else RecordedArray(self, value, number) for value, number in pairs]

    def _given(self, tracers: Sequence[Any]) -> list[Any]:
        return [self._stand_in(_lowered(tracer)) for tracer in tracers]

    def _stand_in(self, value: Any) -> Any:
        """Return the source that stands for an array, or the array."""
        return self._stand_ins.get(id(value), (None, value))[1]

    def _has_made(self, value: Any) -> bool:
        return isinstance(value, RecordedArray) and value._trace is self

    def _operand(self, value: Any) -> Any:
        return value.primal if self._has_made(value) else value

    # Derivatives ---------------------------------------------------------------------------------------

    def pull(self, targets: Sequence[Any], sources: Sequence[Any]) -> tuple[Callable[..., Any], list[bool]]:
        """Return a function from weights of the targets to derivatives by the sources.

        Args:
            targets: Arrays.
            sources: Arrays; None for what was not read.

        Returns:
            (function of a list of weights that returns a list with an array for each connected source, whether each
            source is connected).
        """
        wanted = [self._number_of(target) for target in targets]
        numbers = [self._number_of(source) for source in sources]
        values = {n: concrete(source) for n, source in zip(numbers, sources, strict=True) if n is not None}
        replay = Replay(self._operations, wanted, list(values))
        given = [concrete(target) for target in targets]

        def pulled(weights: Sequence[Any]) -> list[Any]:
            found = replay.gradients(given, values, weights)
            return [found[number] for number in numbers if number in found]

        return pulled, [number in replay.sources for number in numbers]

    def _number_of(self, array: Any) -> int | None:
        array = self._stand_in(array)
        while isinstance(array, RecordedArray):
            if array._trace is self:
                return array.number
            array = self._stand_in(array.primal)
        return None


def _lowered(value: Any) -> Any:
    """Return a value without what recordings that ended keep of it."""
    while isinstance(value, RecordedArray) and not value._trace.recording:
        value = value.primal
    return value


def loss_ids(layer: Any) -> set[int]:
    """Return the set in which a layer keeps which of the losses of a stateless scope it has added."""
    return layer._loss_ids


def losses_outside(layer: Any) -> list[Any]:
    """Return the list of the losses that a layer has added, as it counts outside stateless scopes."""
    return layer._losses


@contextlib.contextmanager
def in_scope(scope: keras.StatelessScope | None) -> Iterator[None]:
    """Read and assign Keras variables as in another stateless scope; None for none."""
    before = global_state.get_global_attribute("stateless_scope")
    global_state.set_global_attribute("stateless_scope", scope)
    try:
        yield
    finally:
        global_state.set_global_attribute("stateless_scope", before)


def initialise(variable: Any) -> None:
    """Give a variable that was made in a stateless scope its first value."""
    with in_scope(None), jax.ensure_compile_time_eval():
        variable._deferred_initialize()
    waiting: Any = global_state.get_global_attribute("uninitialized_variables", [])
    waiting[:] = [each for each in waiting if each is not variable]
