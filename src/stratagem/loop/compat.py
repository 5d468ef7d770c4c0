"""The only file of this folder that touches private parts of JAX and Keras: arrays that remember what they came from.

JAX differentiates functions, by running them under a trace of its own: `LinearizeTrace` computes every operation at
once and keeps the derivative of each in a linear program. `Recording` is that trace, begun and ended by hand: what runs
between need be no function. Its arrays have their values at any time, and after its end they are ordinary ones.

Checked on Keras 3.12.0 and 3.15.1, JAX 0.7.2 and 0.10.2.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import keras
from jax._src import core, source_info_util
from jax._src.api_util import debug_info
from jax._src.array import ArrayImpl
from jax._src.dtypes import canonicalize_value_handlers
from jax._src.interpreters.ad import LinearizeTrace, LinearizeTracer, Zero
from jax._src.interpreters.partial_eval import DynamicJaxprTrace
from jax._src.interpreters.pxla import shard_arg_handlers
from jax.extend.core import Literal
from keras.src.backend.common import global_state

from stratagem.replica.compat import run_equation


class RecordedArray(LinearizeTracer):
    """An array made under a recording: a value that is known, and the tangent that leads to its derivative."""

    __slots__: Sequence[str] = []
    _trace: Any

    def full_lower(self) -> Any:
        return super().full_lower() if self._trace.recording else core.full_lower(self.primal)


_METHODS: Final = [
    "__array__",
    "__complex__",
    "__dlpack__",
    "__float__",
    "__format__",
    "__reduce__",
    "__repr__",
    "__str__",
    "addressable_data",
    "block_until_ready",
    "copy_to_host_async",
    "devices",
    "is_deleted",
    "item",
    "on_device_size_in_bytes",
    "tobytes",
    "tolist",
    "unsafe_buffer_pointer",
]
_FACTS: Final = [
    "addressable_shards",
    "committed",
    "device",
    "global_shards",
    "is_fully_addressable",
    "is_fully_replicated",
    "sharding",
]


def _give_known_values() -> None:
    """Let recorded arrays answer what only arrays with values can; JAX's tracers refuse."""

    def method(name: str) -> Callable[..., Any]:
        def call(array: Any, *args: Any, **kwargs: Any) -> Any:
            known = concrete(array)
            if isinstance(known, core.Tracer):  # in a function of JAX's own: no values yet, and JAX's error
                return getattr(core.Tracer, name)(array, *args, **kwargs)
            return getattr(known, name)(*args, **kwargs)

        return call

    for name in _METHODS:
        setattr(RecordedArray, name, method(name))
    canonicalize_value_handlers[RecordedArray] = lambda array: array
    shard_arg_handlers[RecordedArray] = lambda arrays, *args: shard_arg_handlers[ArrayImpl](
        [concrete(array) for array in arrays], *args
    )
    for name in _FACTS:
        setattr(RecordedArray, name, property(lambda array, name=name: getattr(concrete(array), name)))


def concrete(value: Any) -> Any:
    """Return a value without what recordings keep of it."""
    while isinstance(value, RecordedArray):
        value = value.primal
    return value


_give_known_values()


class Recording(LinearizeTrace):
    """Operations between `begin` and `end` compute at once, and can be differentiated."""

    tangent_trace: Any

    def __init__(self) -> None:
        info = debug_info("GradientTape", lambda: None, (), {})
        self._info = info.with_unknown_names()
        tangents = DynamicJaxprTrace(info, auto_dce=True)
        tangents.tag = tag = core.TraceTag()
        # JAX before 0.10 takes the tag itself; since then, whether cotangents are what is wanted
        super().__init__(core.trace_ctx.trace, tangents, True if hasattr(LinearizeTrace, "tag") else tag)
        self.recording = False
        self._outside: Any = None
        self._stand_ins: dict[int, tuple[Any, RecordedArray]] = {}
        self._made: list[weakref.ref[RecordedArray]] = []

    def begin(self) -> None:
        """Record from here on, in what is recorded or traced already."""
        self.parent_trace = self._outside = core.trace_ctx.trace
        core.trace_ctx.set_trace(self)
        self.recording = True

    def end(self) -> None:
        """Record no more: the arrays are ordinary ones from here on, of which `pull` still knows how they were made."""
        core.trace_ctx.set_trace(self._outside)
        self.recording = False

    def release(self) -> None:
        """Forget how arrays were made."""
        for reference in self._made:
            array = reference()
            if array is not None:
                array.tangent = Zero(core.typeof(array.primal).to_tangent_aval())
        self._made.clear()
        self._stand_ins.clear()
        self.tangent_trace.invalidate()

    def source(self, value: Any, like: RecordedArray | None = None) -> RecordedArray:
        """Return an array of this value to differentiate by.

        Args:
            value: The value.
            like: An earlier one: the derivatives by both add up.
        """
        if like is not None:
            return self._kept(RecordedArray(self, value, like.tangent))
        tangent = core.typeof(value).to_tangent_aval()
        return self._kept(RecordedArray(self, value, self.tangent_trace.new_arg(tangent, source_info_util.current())))

    def watch(self, value: Any) -> None:
        """Differentiate by this very array: from here on, a source stands for it where operations meet it."""
        if not _belongs_to(value, self):
            self._stand_ins[id(value)] = value, self.source(value)

    def stand_in(self, value: Any) -> Any:
        """Return the source that stands for an array, or the array."""
        _, source = self._stand_ins.get(id(value), (None, value))
        return source

    def _kept(self, array: RecordedArray) -> RecordedArray:
        self._made.append(weakref.ref(array))
        return array

    def _given(self, values: Sequence[Any]) -> list[Any]:
        return [self.stand_in(_lowered(value)) for value in values]

    def _returned(self, result: Any) -> Any:
        if isinstance(result, list | tuple):
            return [self._returned(each) for each in result]
        if type(result) is LinearizeTracer and result._trace is self:
            return self._kept(RecordedArray(self, result.primal, result.tangent))
        return result

    def process_primitive(self, primitive: Any, tracers: Any, params: Any, /) -> Any:
        return self._returned(super().process_primitive(primitive, self._given(tracers), params))

    def process_custom_jvp_call(self, primitive: Any, fun: Any, jvp: Any, tracers: Any, /, **kwargs: Any) -> Any:
        return self._returned(super().process_custom_jvp_call(primitive, fun, jvp, self._given(tracers), **kwargs))

    def process_custom_vjp_call(
        self, primitive: Any, fun: Any, fwd: Any, bwd: Any, tracers: Any, /, *args: Any, **kwargs: Any
    ) -> Any:
        given = self._given(tracers)
        return self._returned(super().process_custom_vjp_call(primitive, fun, fwd, bwd, given, *args, **kwargs))

    def pull(self, targets: Sequence[Any], sources: Sequence[Any]) -> tuple[Callable[..., Any], list[bool]]:
        """Return what takes weights of the targets to derivatives by the sources.

        Args:
            targets: Arrays.
            sources: Arrays.

        Returns:
            (function of a list of weights that returns a list with an array for each connected source, whether each
            source is connected).
        """
        tangents = [self._tangent(target) for target in targets]
        places = [place for place, tangent in enumerate(tangents) if tangent is not None]
        jaxpr, constants = self.tangent_trace.to_jaxpr(
            [tangents[place] for place in places], self._info, source_info_util.current()
        )
        known = dict(zip(jaxpr.constvars, constants, strict=True))
        of_sources = [getattr(self._tangent(source), "val", None) for source in sources]
        starts = [var for var in dict.fromkeys(of_sources) if var is not None]
        useful = _between(jaxpr, starts)
        starts = [var for var in starts if var in useful]

        def forward(*changes: Any) -> list[Any]:
            return _evaluated(jaxpr, known, useful, dict(zip(starts, changes, strict=True)))

        transposed = jax.linear_transpose(forward, *(jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in starts))

        def pulled(weights: Sequence[Any]) -> list[Any]:
            found = dict(zip(starts, transposed([weights[place] for place in places]) if starts else (), strict=True))
            return [found[var] for var in of_sources if var in found]

        return pulled, [var in starts for var in of_sources]

    def _tangent(self, array: Any) -> Any:
        array = self.stand_in(array)
        while isinstance(array, RecordedArray):
            if array._trace is self:
                if isinstance(array.tangent, Zero):
                    return None
                return self.tangent_trace.to_jaxpr_tracer(array.tangent, source_info_util.current())
            array = self.stand_in(array.primal)
        return None


def _lowered(value: Any) -> Any:
    """Return a value without what recordings that ended keep of it."""
    while isinstance(value, RecordedArray) and not value._trace.recording:
        value = value.primal
    return value


def _belongs_to(value: Any, recording: Recording) -> bool:
    return isinstance(value, RecordedArray) and value._trace is recording


def _between(jaxpr: Any, starts: Sequence[Any]) -> set[Any]:
    """Return the variables of a linear program that depend on the starts, and that its results depend on."""
    reached = set(starts)
    for equation in jaxpr.eqns:
        if any(var in reached for var in _variables(equation.invars)):
            reached.update(equation.outvars)
    needed = set(_variables(jaxpr.outvars)) & reached
    for equation in reversed(jaxpr.eqns):
        if any(var in needed for var in equation.outvars):
            needed.update(reached.intersection(_variables(equation.invars)))
    return needed


def _variables(atoms: Sequence[Any]) -> list[Any]:
    return [atom for atom in atoms if not isinstance(atom, Literal)]


def _evaluated(jaxpr: Any, known: dict[Any, Any], useful: set[Any], changes: dict[Any, Any]) -> list[Any]:
    """Run a linear program. A start in its middle changes by what is given, besides what it depends on."""

    def value(atom: Any) -> Any:
        if isinstance(atom, Literal):
            return atom.val
        if atom in changes:
            return changes[atom]
        return known[atom] if atom in known else jnp.zeros(atom.aval.shape, atom.aval.dtype)

    for equation in jaxpr.eqns:
        if not useful.isdisjoint(equation.outvars) and any(var in changes for var in _variables(equation.invars)):
            results = run_equation(equation, [value(atom) for atom in equation.invars])
            for var, result in zip(equation.outvars, results, strict=True):
                changes[var] = result + changes[var] if var in changes else result
    return [value(atom) for atom in jaxpr.outvars]


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
