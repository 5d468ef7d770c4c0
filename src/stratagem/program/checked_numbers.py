"""Checks of every number that a compiled program computes, for NaN and infinity.

Where they are wanted, a program tells which of its equations was the first that computed one, also in loops and
branches, and an assertion raises when it has run. Elsewhere a program stays as it is.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/debugging/enable_check_numerics
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxpr_as_fun

from stratagem.core.errors import InputError
from stratagem.mesh.mesh import AXIS, ReplicaMesh, Tree
from stratagem.program.assertions import are_numbers_checked, check
from stratagem.program.compat import line_of, operation_of, parameters, run_equation, scan_operands, scopes_of
from stratagem.program.interpret import Values, shapes_of, trace

_State = tuple[jax.Array, list[Any]]
"""The number of the equation that was found first, 0 for none, and values."""

_MOVING: Final = frozenset(["broadcast_in_dim", "copy", "reshape", "rev", "squeeze", "stop_gradient", "transpose"])
"""Primitives whose result holds the numbers of their operand."""

_CROSSING: Final = frozenset(
    ["all_gather", "all_to_all", "pmax", "pmin", "ppermute", "psum", "psum_invariant", "reduce_scatter"]
)
"""Primitives whose result has numbers of other replicas, which these look at."""

_NONE: Final = np.iinfo(np.int32).max


@dataclass(frozen=True)
class Computed:
    """The first equation of a program that computed NaN or infinity.

    Args:
        operation: What it computes, as "log"; "" where the program was given NaN.
        result: Shape and dtype of what it computes, as "float32[4, 3]".
        scope: The layers, losses or optimizers that it was made in, as "sequential/dense"; "" if none.
        line: The line of the user's program that asked for it, as "train.py:31 (call)"; "" if none.
        replica: The number of the replica that computed it.
    """

    operation: str
    result: str
    scope: str
    line: str
    replica: int


class NonFiniteError(InputError):
    """A program computed NaN or infinity, or was given NaN.

    Args:
        computed: Where.
        found: What was found, in words.
        remedy: What to do.
    """

    def __init__(self, computed: Computed, found: str, remedy: str) -> None:
        super().__init__(found, remedy)
        self.computed = computed


def with_checked_numbers(function: Callable[..., Tree], mesh: ReplicaMesh | None = None) -> Callable[..., Tree]:
    """Return a function that computes the same and, where checks are wanted, asserts that all numbers are finite.

    Infinity that comes from infinity is no fault: programs mask with it. NaN always is one.

    Args:
        function: Function of arrays, of one replica where there are replicas.
        mesh: The replicas that run it; None where there are none.
    """

    @functools.wraps(function)
    def checked(*args: Tree) -> Tree:
        if not are_numbers_checked():
            return function(*args)
        traced, structure = trace(function, args)
        checking = _Checking()
        first, results = checking.run(traced, jax.tree.leaves(args), excuse=np.inf)
        replica = 0 if mesh is None or mesh.size == 1 else lax.axis_index(AXIS)
        place = None if mesh is None or mesh.size == 1 else f"replica {{}} of {mesh.size}".format
        check(first == 0, [first, jnp.asarray(replica)], checking.describe, replica, place, line="")
        return structure.unflatten(results)

    return checked


class _Checking:
    """Runs traced programs, and numbers their equations."""

    def __init__(self) -> None:
        self._noted: list[list[JaxprEqn]] = []  # each within those before it; none is what the program was given
        self._within: list[JaxprEqn] = []

    def note(self, equation: JaxprEqn | None) -> int:
        """Return the number of the equation that comes next; None for what the program was given."""
        self._noted.append([] if equation is None else [*self._within, equation])
        return len(self._noted)

    def describe(self, found: Sequence[Any], where: str) -> NonFiniteError:
        """Return the error for the numbers of an equation and of a replica."""
        number, replica = (int(np.min(each)) for each in found)
        equations = self._noted[number - 1]
        advice = "Look at its inputs: a batch, a variable, a division by zero, a logarithm of zero."
        if not equations:
            nothing = Computed("", "", "", "", replica)
            return NonFiniteError(
                nothing, f"NaN is among the arrays or variables that a step was given{where}.", advice
            )
        results = " and ".join(f"{shape.dtype}{list(shape.shape)}" for shape in shapes_of(equations[-1].outvars))
        layer = "/".join(filter(None, map(scopes_of, equations)))
        line = next(filter(None, map(line_of, reversed(equations))), "")
        computed = Computed(operation_of(equations[-1]), results, layer, line, replica)
        return NonFiniteError(
            computed,
            f"`{computed.operation}` computed NaN or infinity in {results}{where}"
            f"{f', in {layer}' if layer else ''}{f', at {line}' if line else ''}.",
            advice,
        )

    def run(self, traced: ClosedJaxpr, args: Sequence[Any], excuse: float = np.nan) -> _State:
        """Run a program.

        Args:
            traced: The program.
            args: Its arguments.
            excuse: What may be among them unnoticed: infinity, or NaN too, where another program has looked at them.
        """
        values, found = Values(traced, args), _Found(self.note)
        for variable, value in zip(traced.jaxpr.constvars, traced.consts, strict=True):
            found.know(variable, value)
        for variable, value in zip(traced.jaxpr.invars, args, strict=True):
            found.look(None, variable, value, excuse=excuse)
        self._continue(traced.jaxpr, values, found)
        return found.first(), values.read(traced.jaxpr.outvars)

    def _continue(self, program: Jaxpr, values: Values, found: _Found) -> None:
        for equation in program.eqns:
            operands = values.read(equation.invars)
            kind = equation.primitive.name
            if kind in ("jit", "pjit"):
                with self._inside(equation):
                    results = self._inlined(equation, operands, found)
            elif kind in _NESTED:
                with self._inside(equation):
                    inside, results = _NESTED[kind](self, equation, operands)
                found.inside.append(inside)
                for variable, result in zip(equation.outvars, results, strict=True):
                    found.look(None, variable, result, excuse=np.nan)
            else:
                results = list(run_equation(equation, operands))
                for variable, result in zip(equation.outvars, results, strict=True):
                    found.look(equation, variable, result)
            values.write(equation.outvars, results)

    @contextlib.contextmanager
    def _inside(self, equation: JaxprEqn) -> Iterator[None]:
        self._within.append(equation)
        try:
            yield
        finally:
            self._within.pop()

    def _inlined(self, equation: JaxprEqn, operands: list[Any], found: _Found) -> list[Any]:
        """Run the program of a `jax.jit` as a part of the one that calls it."""
        inner: ClosedJaxpr = parameters(equation)["jaxpr"]
        for variable, value in zip(inner.jaxpr.constvars, inner.consts, strict=True):
            found.know(variable, value)
        found.rename(equation.invars, inner.jaxpr.invars)
        values = Values(inner, operands)
        self._continue(inner.jaxpr, values, found)
        found.rename(inner.jaxpr.outvars, equation.outvars)
        return values.read(inner.jaxpr.outvars)

    def _branch(self, equation: JaxprEqn, operands: list[Any]) -> _State:
        index, *given = operands
        branches = [functools.partial(self.run, branch) for branch in parameters(equation)["branches"]]
        return lax.switch(index, branches, given)

    def _scan(self, equation: JaxprEqn, operands: list[Any]) -> _State:
        fixed, carry, rows = scan_operands(equation, operands)
        given, carried = parameters(equation), len(carry)

        def body(state: _State, row: list[Any]) -> tuple[_State, list[Any]]:
            found, results = self.run(given["jaxpr"], [*fixed, *state[1], *row])
            return (_earlier(state[0], found), results[:carried]), results[carried:]

        (first, last), stacked = lax.scan(
            body, (_nothing(), carry), rows, given["length"], reverse=given["reverse"], unroll=given["unroll"]
        )
        return first, [*last, *stacked]

    def _while(self, equation: JaxprEqn, operands: list[Any]) -> _State:
        given = parameters(equation)
        start = given["cond_nconsts"] + given["body_nconsts"]
        of_condition, of_body = operands[: given["cond_nconsts"]], operands[given["cond_nconsts"] : start]
        goes_on = jaxpr_as_fun(given["cond_jaxpr"])

        def body(state: _State) -> _State:
            found, results = self.run(given["body_jaxpr"], [*of_body, *state[1]])
            return _earlier(state[0], found), results

        return lax.while_loop(lambda state: goes_on(*of_condition, *state[1])[0], body, (_nothing(), operands[start:]))


_NESTED: Final[Mapping[str, Callable[[_Checking, JaxprEqn, list[Any]], _State]]] = {
    "cond": _Checking._branch,
    "scan": _Checking._scan,
    "while": _Checking._while,
}


class _Found:
    """The largest number of each result of a program, which is NaN or infinite where any of its numbers is.

    All are compared with those of the operands at once, at the end: XLA compiles that several times as fast as a test
    behind each equation.

    Args:
        note: Returns the number of an equation.
    """

    def __init__(self, note: Callable[[JaxprEqn | None], int]) -> None:
        self.inside: list[jax.Array] = []
        self._note = note
        self._largest: list[jax.Array] = []
        self._numbers: list[int] = []
        self._excuses: list[tuple[float, list[int]]] = []  # a known number, and places of the operands
        self._of: dict[Any, int | float] = {}  # a place, or a number that is known before the program runs

    def know(self, variable: Any, value: Any) -> None:
        """Note a constant: infinity in it is meant, NaN is not."""
        if _is_inexact(value):
            self._of[variable] = float(np.inf if np.isinf(np.asarray(value)).any() else 0)

    def rename(self, atoms: Iterable[Any], others: Iterable[Any]) -> None:
        """Note that variables hold what others hold."""
        for atom, other in zip(atoms, others, strict=True):
            self._of[other] = self._at(atom)

    def look(self, equation: JaxprEqn | None, variable: Any, value: Any, excuse: float = 0.0) -> None:
        """Look at a value.

        Args:
            equation: What computed it; None for an argument.
            variable: The variable that holds it.
            value: The value.
            excuse: What may be in it unnoticed, beside what the operands have.
        """
        self._of.pop(variable, None)
        if not _is_inexact(value):
            return
        operands = [] if equation is None else [self._at(atom) for atom in equation.invars]
        kind = "" if equation is None else equation.primitive.name
        # NaN is among JAX's constants where it stands for what is not there: it counts where it is chosen.
        if kind in _MOVING or (kind == "convert_element_type" and isinstance(operands[0], float)):
            self._of[variable] = operands[0]
            return
        self._of[variable] = len(self._largest)
        self._largest.append(_largest(value))
        self._numbers.append(self._note(equation))
        known = np.nan if kind in _CROSSING else max([excuse, *(each for each in operands if isinstance(each, float))])
        self._excuses.append((known, [each for each in operands if isinstance(each, int)]))

    def first(self) -> jax.Array:
        """Return the number of the first equation that computed NaN or infinity, 0 if none did."""
        found = [jnp.where(inside > 0, inside, _NONE) for inside in self.inside]
        if self._largest:
            most = max(len(places) for _, places in self._excuses)
            nowhere = len(self._largest)
            places = [[*own, *[nowhere] * (most - len(own))] for _, own in self._excuses]
            largest = jnp.stack([*self._largest, np.float32(0)])
            excuse = jnp.maximum(
                jnp.asarray([known for known, _ in self._excuses], np.float32),
                jnp.max(largest[np.asarray(places, np.int32).reshape(len(places), most)], axis=1, initial=0),
            )
            own = largest[:-1]
            faulty = (jnp.isnan(own) & ~jnp.isnan(excuse)) | (jnp.isinf(own) & jnp.isfinite(excuse))
            found.append(jnp.min(jnp.where(faulty, np.asarray(self._numbers, np.int32), _NONE)))
        least = functools.reduce(jnp.minimum, found, jnp.asarray(_NONE, jnp.int32))
        return jnp.where(least == _NONE, 0, least)

    def _at(self, atom: Any) -> int | float:
        if isinstance(atom, Literal):
            return float(np.inf if _is_inexact(atom.val) and np.isinf(atom.val).any() else 0)
        return self._of.get(atom, 0.0)


def _largest(value: jax.Array) -> jax.Array:
    largest = lax.reduce_max(lax.abs(value), range(value.ndim)) if value.size else jnp.zeros((), jnp.float32)
    if largest.dtype.itemsize > 4:  # it may be infinite as float32
        largest = jnp.where(jnp.isfinite(largest), 1, largest)
    return largest.astype(jnp.float32)


def _is_inexact(value: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(value), jnp.inexact)


def _nothing() -> jax.Array:
    return jnp.zeros((), jnp.int32)


def _earlier(before: jax.Array, now: jax.Array) -> jax.Array:
    return jnp.where(before > 0, before, now)
