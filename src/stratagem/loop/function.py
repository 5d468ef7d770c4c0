"""`function`: compile a function that reads and assigns Keras variables."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import Any

import jax
import jax.numpy as jnp

from stratagem.core.advancing import AdvancedByPython
from stratagem.core.errors import InputError, OutOfRangeError
from stratagem.core.log import announce_once
from stratagem.data.transforms import in_element_function
from stratagem.loop.seen import Arguments, SeenArguments
from stratagem.loop.signature import InputSignature, arguments_in_order
from stratagem.mesh.described import DescribedMesh
from stratagem.mesh.mesh import Tree
from stratagem.mesh.placing import placed
from stratagem.program.autograph import without_rewriting
from stratagem.program.cache import ProgramStore
from stratagem.program.call import Call, TextArgument
from stratagem.program.checked_numbers import with_checked_numbers
from stratagem.program.compared import ComparedProgram
from stratagem.program.described import DescribedProgram, trained
from stratagem.program.guards import CapturedValue, is_array
from stratagem.program.options import jitted, options_for
from stratagem.program.program import Program
from stratagem.program.python_values import NeedsPython
from stratagem.program.remote_values import values_of
from stratagem.program.rules.cpu import suited_to_cpu
from stratagem.program.rules.row_changes import RowProgram
from stratagem.program.rules.streams import Streams
from stratagem.program.tracing import current_tracing
from stratagem.replica.context import StrategyLike


def function(
    func: Callable[..., Any] | None = None,
    input_signature: Sequence[Any] | None = None,
    autograph: bool = True,
    **options: Any,
) -> Any:
    """Compile a function into one program (`tf.function`).

    The function may read and assign Keras variables, and call `strategy.run` and `strategy.reduce`. All of it becomes
    one program, which is traced once for each signature of arguments. Arrays and Python numbers are inputs. Other
    values are part of the signature, and so is a number that the function needs in Python (`if step > 5`, `range(n)`, a
    shape).

    Two kinds of functions run as Python. One iterates over a distributed dataset; the functions that it calls are
    compiled. The other is given text; a message says so.

    Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/function

    Args:
        func: The function.
        input_signature: A `TensorSpec` for each argument, or a structure of them. Numbers, lists and NumPy arrays are
            converted to the dtype; a tensor of another dtype or shape is an error. If a size is None, each size still
            has its own program, because XLA compiles for fixed sizes.
        autograph: Whether to rewrite functions in which a condition or a loop on a tensor stops the tracing: `if`,
            `while` and `for i in range(n)`, also with `break`, `continue` and `return`.
        options: TensorFlow's other options (`jit_compile`, `reduce_retracing`); accepted without effect.

    Returns:
        The compiled function. `.python_function` is the original function. `.get_concrete_function(*specs)` returns the
        compiled function for arguments of these specs only.

    Raises:
        InputError: `func` is not a function.

    Example:
        >>> import keras, stratagem
        >>> count = keras.Variable(0.0, trainable=False)
        >>> @stratagem.function
        ... def add(x):
        ...     count.assign_add(x)
        ...     return count * 2.0
        >>> float(add(3.0)), float(add(4.0))
        (6.0, 14.0)
    """
    if func is None:
        return functools.partial(function, input_signature=input_signature, autograph=autograph, **options)
    if not callable(func):
        raise InputError(
            f"stratagem.function was given {func!r}, of type {type(func).__name__}.",
            "Write @stratagem.function above a function, or stratagem.function(step).",
        )
    signature = None if input_signature is None else InputSignature(func, input_signature)
    compiled = Function(func, signature, autograph=autograph)
    return functools.wraps(func)(compiled)


class Function:
    """A function and its programs.

    Args:
        fn: The function.
        signature: What its arguments must be, if that is given.
        autograph: Whether functions may be rewritten.
    """

    def __init__(
        self, fn: Callable[..., Any], signature: InputSignature | None = None, *, autograph: bool = True
    ) -> None:
        self._fn = fn
        self._autograph = autograph
        self._signature = signature
        self._programs = ProgramStore("stratagem.function")
        self._runs_as_python = False
        self._seen = SeenArguments()

    def __reduce__(self) -> Any:
        specs = None if self._signature is None else self._signature.specs
        return function, (self._fn, specs, self._autograph)  # to another process, which compiles programs of its own

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else _Method(self, instance)

    @property
    def python_function(self) -> Callable[..., Any]:
        """The function that is compiled (`tf.function`'s `python_function`)."""
        return self._fn

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> Any:
        """Return the compiled function for arguments of given shapes and dtypes alone.

        Args:
            args: A `TensorSpec` for each argument, or a structure of such; or tensors, whose shapes and dtypes count.
            kwargs: The same, by name.
        """
        self.see(args, kwargs)
        if not args and not kwargs:
            return self
        return function(self._fn, arguments_in_order(self._fn, args, kwargs), self._autograph)

    @property
    def has_signature(self) -> bool:
        """Whether an `input_signature` restricts its arguments."""
        return self._signature is not None

    def see(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Note arguments for `seen_arguments`, `TensorSpec`s in the place of tensors."""
        self._seen.add(args, kwargs)

    def seen_arguments(self, owner: Any = None) -> list[Arguments]:
        """Return the arguments that programs were asked for, or those that `input_signature` restricts it to.

        Args:
            owner: The object whose method it is; None for a function.
        """
        return self._seen.of(owner) if self._signature is None else [(tuple(self._signature.specs), {})]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program for arguments like these; make it first where there is none."""
        if self._signature is not None:
            args, kwargs = tuple(self._signature.fitted(args, kwargs)), {}
        if current_tracing() is not None or in_element_function():  # of a dataset, whose values NumPy computes
            self.see(args, kwargs)
            return self._fn(*args, **kwargs)
        if self._runs_as_python:
            return self._as_python(args, kwargs)
        try:
            call = Call(self._fn, args, kwargs)
        except TextArgument:
            name = getattr(self._fn, "__qualname__", type(self._fn).__name__)
            announce_once(
                f"{name} was given text, and devices cannot hold text. So it runs as Python, operation by operation. "
                "Use text outside, or in dataset.map, and the function is compiled."
            )
            return self._as_python(args, kwargs)
        if any(isinstance(leaf, AdvancedByPython) for leaf in call.plain):
            self._runs_as_python = True
            return self._as_python(args, kwargs)
        arrays = [array if isinstance(array, jax.Array) else jnp.asarray(array) for array in call.arrays]
        try:
            with contextlib.nullcontext() if self._autograph else without_rewriting():
                return self._programs.run(call, (), lambda inputs: self._compiled(call, arrays, inputs), arrays)
        except NeedsPython:
            self._runs_as_python = True
            return self._as_python(args, kwargs)

    def _compiled(self, call: Call, arrays: Sequence[jax.Array], inputs: Sequence[CapturedValue]) -> _CompiledFunction:
        compiled = _CompiledFunction(call, arrays, inputs)
        self.see(*call.given)
        return compiled

    def _as_python(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the function, which asks an iterator for elements, as Python.

        Raises:
            OutOfRangeError: The iterator has no more.
        """
        try:
            return self._fn(*args, **kwargs)
        except StopIteration as end:
            name = getattr(self._fn, "__qualname__", type(self._fn).__name__)
            raise OutOfRangeError(
                f"{name} asked an iterator for its next element, and there are no more.",
                "Catch stratagem.errors.OutOfRangeError (tf.errors.OutOfRangeError) where the function is called; or "
                "ask iterator.get_next_as_optional().has_value() in it.",
            ) from end


class _Method(functools.partial):
    """A compiled function of a class, of one object."""

    @property
    def python_function(self) -> Callable[..., Any]:
        """The method that is compiled."""
        compiled: Any = self.func
        return MethodType(compiled.python_function, *self.args)

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> Any:
        """Return the compiled method for arguments of given shapes and dtypes alone, as of a function.

        Args:
            args: As of a function; not the object.
            kwargs: The same, by name.
        """
        compiled: Any = self.func
        compiled.see((*self.args, *args), kwargs)
        if not args and not kwargs:
            return self
        return function(self.python_function).get_concrete_function(*args, **kwargs)

    @property
    def has_signature(self) -> bool:
        """Whether an `input_signature` restricts its arguments."""
        compiled: Any = self.func
        return compiled.has_signature

    def seen_arguments(self) -> list[Arguments]:
        """Return the arguments that programs were asked for, as of a function; not the object."""
        compiled: Any = self.func
        return compiled.seen_arguments(*self.args)


def is_compiled(value: Any) -> bool:
    """Return whether `stratagem.function` has made a value: a compiled function, or such a method of an object."""
    return isinstance(value, Function | _Method)


class _CompiledFunction(Program):
    """One traced and compiled function, for one signature of arguments."""

    def __init__(self, call: Call, arrays: Sequence[jax.Array], inputs: Sequence[CapturedValue]) -> None:
        super().__init__()
        tracing = self.discover(self._body, call, inputs, arrays)
        strategies = tracing.notes.get("strategies", [])
        self._strategy: StrategyLike | None = strategies[0] if strategies else None
        mesh = None if self._strategy is None else self._strategy.mesh
        if mesh is not None:
            self.progress, self.world = mesh.progress, mesh.world
        self._devices = None if mesh is None else mesh.mesh
        alone = mesh is None or not mesh.multi_process
        pure = with_checked_numbers(self._pure) if alone else self._pure
        if (jax.default_backend() if mesh is None else mesh.devices[0].platform) == "cpu":
            pure = suited_to_cpu(pure)
        program = jitted(pure, options_for(mesh))
        compares = not alone and self.world is None
        self._compiled: Callable[..., Any] = ComparedProgram(call.name, program) if compares else program
        if isinstance(mesh, DescribedMesh):
            assigned = trained(self.variables, self.assigned)
            self._compiled = DescribedProgram(mesh, self._pure, None, name=call.name, trained=assigned)
        self._with_rows = RowProgram(program, self.variables, self.assigned)
        self.streams = Streams(program, self.variables, self.assigned)

    @property
    def alive(self) -> bool:
        """Whether its variables are still there, and its devices those of the strategy: workers may come and go."""
        return super().alive and (self._strategy is None or self._strategy.mesh.mesh is self._devices)

    def _body(self, arrays: Sequence[jax.Array]) -> Callable[[], Tree]:
        return lambda: self.called.call.on(arrays)

    def _pure(
        self, values: list[jax.Array], arrays: list[jax.Array], numbers: list[Any]
    ) -> tuple[list[jax.Array], list[jax.Array]]:
        with self.called.with_inputs(numbers):
            return self.traced(self._body(arrays), values)

    def run(self, arrays: Sequence[jax.Array], numbers: list[Any]) -> Tree:
        numbers = [jnp.asarray(number) if is_array(number) else number for number in numbers]
        with self.assertions.watched(None if self._strategy is None else self._strategy.mesh):
            wanted = self.streams.wanted(arrays, numbers)
            outputs, changed = self._with_rows.run(arrays, numbers, wanted) or self._with_all(arrays, numbers, wanted)
        self.assign(changed)
        return self.structure.unflatten(outputs)

    def _with_all(
        self, arrays: Sequence[jax.Array], numbers: list[Any], wanted: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        values = values_of(wanted)
        if self._strategy is None:
            return self._compiled(values, arrays, numbers)
        mesh = self._strategy.mesh
        values = placed(self._strategy, values, self.variables)
        arrays = [array if len(array.sharding.device_set) > 1 else mesh.replicate(array) for array in arrays]
        numbers = [mesh.replicate(number) if is_array(number) else number for number in numbers]
        results = self._compiled(values, arrays, numbers)
        mesh.wait(results)
        return results
