"""Fingerprint of a program that JAX has traced: the same in every process that has traced the same.

Each equation has a digest, made of its operation, its parameters and the digests of its operands; that of a program is
made of what it returns. So names of variables, the order of equations that do not need each other, and equations whose
results nobody needs (a print on one worker) count for nothing. Of two programs the first equations whose digests differ
are where the difference begins. Objects that only one process knows (functions, devices, addresses) are left out.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
import numpy as np
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

from stratagem.mesh.mesh import AXIS
from stratagem.program.compat import line_of
from stratagem.program.rules.exchanges import TARGET

_BYTES: Final = 8
"""Length of the digest of an equation."""

_LABELS: Final = frozenset({"name", "debug_info"})
"""Parameters that say what a program is called, not what it computes."""


@dataclass(frozen=True)
class Line:
    """An equation of a program, or what a program returns.

    Args:
        digest: Of all that goes into it.
        equation: The equation; None for what a program returns.
        constants: By operand, the digests of those that are constants of the program.
    """

    digest: str
    equation: JaxprEqn | None
    constants: Mapping[Var, str]

    def __str__(self) -> str:
        if self.equation is None:
            return "what it returns, of its inputs"
        operands = ", ".join(self._operand(atom) for atom in self.equation.invars)
        results = ", ".join(_kind(var.aval) for var in self.equation.outvars)
        line = line_of(self.equation)
        return f"{results} = {self.equation.primitive.name}({operands}){f' at {line}' if line else ''}"

    def _operand(self, atom: Any) -> str:
        if isinstance(atom, Literal):
            return str(np.asarray(atom.val))  # of a class of JAX in some releases
        constant = self.constants.get(atom)
        return _kind(atom.aval) if constant is None else f"constant {_kind(atom.aval)} {constant}"


@dataclass(frozen=True)
class Fingerprint:
    """What is compared of a program.

    Args:
        digest: Of all that it computes.
        lines: Its equations in order, those inside an equation before it.
        crosses: Whether values of all replicas meet in it, so that all workers run it together.
    """

    digest: str
    lines: Sequence[Line]
    crosses: bool


def fingerprint(traced: ClosedJaxpr) -> Fingerprint:
    """Return the fingerprint of a program.

    Example:
        >>> import jax.numpy as jnp
        >>> def program(rate):
        ...     return fingerprint(jax.make_jaxpr(lambda x: jnp.sin(x) * rate)(1.0))
        >>> program(0.5).digest == program(0.5).digest, program(0.5).digest == program(0.25).digest
        (True, False)
        >>> str(program(0.5).lines[1]).partition(" at")[0]
        'float32[] = mul(float32[], 0.5)'
    """
    reading = _Reading()
    digest = reading.program(traced)
    return Fingerprint(digest, reading.lines, any(map(_crosses, reading.lines)))


class _Reading:
    """Reads programs, each once."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self._known: dict[int, str] = {}

    def program(self, program: ClosedJaxpr | Jaxpr) -> str:
        """Return the digest of what a program returns; its equations become lines."""
        known = self._known.get(id(program))
        if known is None:
            known = self._known[id(program)] = self._read(program)
        return known

    def _read(self, program: ClosedJaxpr | Jaxpr) -> str:
        closed = isinstance(program, ClosedJaxpr)
        inner = program.jaxpr if closed else program
        values = program.consts if closed else ()
        constants = {var: _content(value) for var, value in zip(inner.constvars, values, strict=closed)}
        made = {var: f"constant {_kind(var.aval)} {constants.get(var)}" for var in inner.constvars}
        made |= {var: f"input {i} {_kind(var.aval)}" for i, var in enumerate(inner.invars)}
        for equation in inner.eqns:
            parameters = sorted(equation.params.items())
            settings = [f"{name}={self._setting(value)}" for name, value in parameters if name not in _LABELS]
            results = [_kind(var.aval) for var in equation.outvars]
            digest = _hash([equation.primitive.name, *settings, *results, *_operands(equation.invars, made)])
            made.update({var: f"{digest} {i}" for i, var in enumerate(equation.outvars)})
            self.lines.append(Line(digest, equation, constants))
        result = _hash(_operands(inner.outvars, made))
        self.lines.append(Line(result, None, constants))
        return result

    def _setting(self, value: Any) -> str:
        """Return a parameter of an equation as text that is the same in every process."""
        if isinstance(value, ClosedJaxpr | Jaxpr):
            return self.program(value)
        if isinstance(value, list | tuple):
            return f"({', '.join(map(self._setting, value))})"
        if isinstance(value, Mapping):
            return f"({', '.join(f'{key}: {self._setting(each)}' for key, each in value.items())})"
        if isinstance(value, bool | int | float | complex | str | bytes | np.dtype | enum.Enum) or value is None:
            return str(value)
        return _content(value)


def _operands(atoms: Iterable[Any], made: Mapping[Any, str]) -> Iterator[str]:
    for atom in atoms:
        yield f"{_kind(atom.aval)} {_content(atom.val)}" if isinstance(atom, Literal) else made[atom]


def _content(value: Any) -> str:
    """Return a digest of an array; only the kind of anything else, and of what this worker does not hold whole."""
    is_number = isinstance(value, int | float | complex) or hasattr(value, "__array__")  # of NumPy, JAX, or JAX's own
    if isinstance(value, Tracer) or not is_number:
        return type(value).__name__
    if isinstance(value, jax.Array):
        if not (value.is_fully_addressable or value.is_fully_replicated):
            return "shares"
        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = jax.random.key_data(value)
    array = np.asarray(value)
    return _hash([f"{array.dtype}{array.shape}".encode(), np.ascontiguousarray(array).tobytes()])


def _kind(aval: Any) -> str:
    return f"{aval.dtype}{list(aval.shape)}" if hasattr(aval, "shape") else type(aval).__name__


def _crosses(line: Line) -> bool:
    if line.equation is None:
        return False
    parameters, name = line.equation.params, line.equation.primitive.name
    axes = parameters.get("axes", parameters.get("axis_name", ()))
    return parameters.get("target_name") == TARGET or (
        name != "axis_index" and AXIS in (axes if isinstance(axes, tuple) else (axes,))
    )


def _hash(parts: Iterable[str | bytes]) -> str:
    digest = hashlib.blake2b(digest_size=_BYTES)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()
