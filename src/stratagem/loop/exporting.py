"""Programs of compiled functions for files: StableHLO that takes the variables' values and returns the new ones.

They are traced as if there were no strategy, and run on any device, without the Python that they were made of.
See https://docs.jax.dev/en/latest/export/export.html.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import export as jax_export
from jax.dtypes import canonicalize_dtype

from stratagem.core import optional
from stratagem.core.errors import InputError, UsageError
from stratagem.data.specs import TensorSpec
from stratagem.loop.seen import Arguments, filled
from stratagem.mesh.mesh import Tree
from stratagem.program.call import Call
from stratagem.program.compat import stored_dtype
from stratagem.program.program import Program
from stratagem.program.python_values import NeedsPython
from stratagem.replica.on_read import OnReadVariable, as_one_value

PLATFORMS: Final = ("cpu", "cuda", "tpu")
"""Devices that a program in a file runs on."""

_MOST_AXES: Final = 5
"""A tensor of unknown rank has a program for each rank up to this one."""


@dataclass(frozen=True)
class ProgramForFile:
    """The program of a function for arguments of certain shapes.

    Args:
        arguments: The arguments, tensors as `TensorSpec`, whose sizes are None where they may be any.
        outputs: The result, tensors as `TensorSpec`.
        variables: The variables whose values it takes.
        assigned: Which of them it assigns, by their place.
        data: What `jax.export.deserialize` reads: a function of the variables' values and of the tensors among the
            arguments, that returns the tensors of the result and the new values of the assigned variables.
    """

    arguments: Arguments
    outputs: Tree
    variables: list[Any]
    assigned: list[int]
    data: bytes


def programs_for_file(function: Any) -> list[ProgramForFile]:
    """Return a program for each kind of arguments that a compiled function, or method, has seen or is restricted to.

    Args:
        function: What `stratagem.function` returned.

    Raises:
        InputError: There is none, as the function cannot run outside this process; the message says why.
    """
    optional.load("flatbuffers", "export", "tf.saved_model.save of a function")
    fn = function.python_function
    signature = inspect.signature(fn)
    found, failures = [], []
    for args, kwargs in function.seen_arguments():
        for arguments in _of_known_rank(filled(signature, args, kwargs)):
            try:
                found.append(_program(fn, arguments))
            except InputError as error:
                failures.append(error)
    if failures and not found:
        raise failures[0]
    return found


def _of_known_rank(arguments: Arguments) -> list[Arguments]:
    """Return arguments in which each tensor has a rank: XLA compiles for one."""
    leaves, structure = jax.tree.flatten(arguments)
    unknown = [isinstance(leaf, TensorSpec) and leaf.shape is None for leaf in leaves]
    if not any(unknown):
        return [arguments]
    of_rank = [
        [
            replace(leaf, shape=(None,) * rank) if any_rank else leaf
            for leaf, any_rank in zip(leaves, unknown, strict=True)
        ]
        for rank in range(_MOST_AXES + 1)
    ]
    return [structure.unflatten(each) for each in of_rank]


def _program(fn: Callable[..., Any], arguments: Arguments) -> ProgramForFile:
    """Return the program for sizes that are independent of each other, or, where that fails, of batches of one size.

    Raises:
        InputError: There is no such program.
    """
    failures: list[Exception] = []
    for rows_alike in (False, True):
        try:
            return _ForFile(fn, arguments).written(_sized(arguments, rows_alike=rows_alike))
        except NeedsPython:
            failures.append(UsageError("It needs Python at each call: it reads an iterator, or a table that changes."))
        except Exception as error:  # of the function itself, of JAX, or of ours
            failures.append(error)
    raise InputError(
        f"{getattr(fn, '__qualname__', fn)} cannot be written to a file for {_said(arguments)}: "
        f"{type(failures[-1]).__name__}: {failures[-1]}",
        "It would not run in another process.",
        "Let it compute from its arguments and variables only, without strategy.run. All shapes must follow from "
        "those of its arguments; or give the sizes: tf.TensorSpec([32, 3]).",
    ) from failures[-1]


def _said(arguments: Arguments) -> str:
    return ", ".join(str(leaf) for leaf in jax.tree.leaves(arguments)) or "no arguments"


def _sized(arguments: Arguments, *, rows_alike: bool) -> list[jax.ShapeDtypeStruct]:
    """Return the tensors among arguments, with a name for each size that may be any.

    Args:
        arguments: The arguments.
        rows_alike: Whether the first axes have one size.
    """
    scope = jax_export.SymbolicScope()

    def sized(number: int, spec: TensorSpec) -> jax.ShapeDtypeStruct:
        if spec.dtype.hasobject:
            raise InputError("It takes text.", "No device holds text.", "Let it take numbers.")
        names = [
            str(size) if size is not None else "rows" if rows_alike and not axis else f"size{number}_{axis}"
            for axis, size in enumerate(spec.shape or ())
        ]
        shape = jax_export.symbolic_shape(",".join(names), scope=scope)
        return jax.ShapeDtypeStruct(shape, canonicalize_dtype(spec.dtype))

    specs = [leaf for leaf in jax.tree.leaves(arguments) if isinstance(leaf, TensorSpec)]
    return [sized(number, spec) for number, spec in enumerate(specs)]


class _ForFile(Program):
    """A function, traced for a file.

    Args:
        fn: The function.
        arguments: The arguments.
    """

    def __init__(self, fn: Callable[..., Any], arguments: Arguments) -> None:
        super().__init__()
        self._arguments = arguments
        args, kwargs = jax.tree.map(_standing_in, arguments)
        self._call = Call(fn, args, kwargs)
        self._kept: list[int] = []

    def written(self, specs: Sequence[jax.ShapeDtypeStruct]) -> ProgramForFile:
        """Return the program for tensors of these shapes."""
        return self.step(self._call, [], specs)

    def run(self, arrays: Sequence[Any], numbers: list[Any]) -> ProgramForFile:
        tracing = self.discover(self._body, self._call, [], arrays)
        if tracing.notes.get("strategies"):
            raise InputError(
                f"{self._call.name} calls strategy.run.",
                "Its replicas are devices of this process.",
                "Let it compute for one device.",
            )
        variables = list(self.variables)
        beside = _beside(variables)
        self._kept = [place for place, variable in enumerate(variables) if id(variable) not in beside]
        kept = [variables[place] for place in self._kept]
        values = [jax.ShapeDtypeStruct(tuple(variable.shape), stored_dtype(variable)) for variable in kept]
        exported = jax_export.export(jax.jit(self._pure), platforms=PLATFORMS)(values, list(arrays))
        outputs = [TensorSpec(tuple(map(_number, leaf.shape)), leaf.dtype) for leaf in exported.out_avals]
        places = [self._kept.index(place) for place in self.assigned if place in self._kept]
        return ProgramForFile(
            self._arguments,
            self.structure.unflatten(outputs[: len(outputs) - len(places)]),
            kept,
            places,
            _data(exported),
        )

    def _body(self, arrays: Sequence[Any]) -> Callable[[], Tree]:
        def body() -> Tree:
            with as_one_value():
                return self._call.on(arrays)

        return body

    def _pure(self, values: list[Any], arrays: list[Any]) -> tuple[list[Any], list[Any]]:
        given = dict(zip(self._kept, values, strict=True))
        nothing = [jnp.zeros(variable.shape, stored_dtype(variable)) for variable in self.variables]
        outputs, new = self.traced(
            self._body(arrays), [given.get(place, zeros) for place, zeros in enumerate(nothing)], again=True
        )
        return outputs, [value for place, value in zip(self.assigned, new, strict=True) if place in given]


def _standing_in(leaf: Any) -> Any:
    if not isinstance(leaf, TensorSpec):
        return leaf
    return np.zeros([1 if size is None else size for size in leaf.shape or ()], leaf.dtype)


def _beside(variables: Sequence[Any]) -> set[int]:
    """Return what stands beside variables because of a strategy: values of replicas, changes for servers."""
    parts = [variable.parts for variable in variables if isinstance(variable, OnReadVariable)]
    companions = [each for variable in variables for each in getattr(variable, "companions", {}).values()]
    return {id(each) for each in (*parts, *companions)}


def _number(size: Any) -> int | None:
    return size if isinstance(size, int) else None


def _data(exported: Any) -> bytes:
    """Return a program as bytes, with that of its gradient where it has one."""
    try:
        return bytes(exported.serialize(vjp_order=1))
    except Exception:  # of any rule that a function has no gradient by
        return bytes(exported.serialize())
