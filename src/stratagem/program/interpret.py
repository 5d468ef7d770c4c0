"""Interpreter of programs that JAX has traced (jaxprs): runs their equations one by one, and replaces some of them.

Whatever changes a step after it is traced stands on this file: a rule says what becomes of an equation, and the values
of the program's variables are kept here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

from stratagem.mesh.mesh import Tree
from stratagem.program.compat import context_of

Rule = Callable[[JaxprEqn, list[Any]], Sequence[Any]]
"""Function of an equation and its operands that returns its results."""

Replacement = Callable[[JaxprEqn], Callable[..., Any] | None]
"""Function of an equation that returns a function to stand in its place, or None."""


class Values(dict[Var, Any]):
    """The values of a program's variables, as far as they are known.

    Args:
        traced: The program.
        args: One for each of its inputs.
    """

    def __init__(self, traced: ClosedJaxpr, args: Sequence[Any]) -> None:
        program = traced.jaxpr
        super().__init__(zip([*program.constvars, *program.invars], [*traced.consts, *args], strict=True))

    def read(self, atoms: Iterable[Any]) -> list[Any]:
        """Return the values of variables and literals."""
        return [atom.val if isinstance(atom, Literal) else self[atom] for atom in atoms]

    def write(self, variables: Iterable[Var], values: Iterable[Any]) -> None:
        """Note the values of variables."""
        self.update(zip(variables, values, strict=True))

    def know(self, atoms: Iterable[Any]) -> bool:
        """Whether all of some atoms have values."""
        return all(var in self for var in variables_of(atoms))


def variables_of(atoms: Iterable[Any]) -> Iterator[Var]:
    """Yield those atoms that are no literals."""
    return (atom for atom in atoms if not isinstance(atom, Literal))


def trace(function: Callable[..., Tree], args: Sequence[Tree], axes: Any = None) -> tuple[ClosedJaxpr, Any]:
    """Trace a function.

    Args:
        function: The function.
        args: Its arguments, or their shapes.
        axes: Named axes that it may use: pairs of a name and a size.

    Returns:
        (its program, the structure of its result).
    """
    traced, shapes = jax.make_jaxpr(function, axis_env=axes, return_shape=True)(*args)
    return traced, jax.tree.structure(shapes)


def interpret(traced: ClosedJaxpr, args: Sequence[Any], rule: Rule) -> list[Any]:
    """Run a program by a rule.

    Args:
        traced: The program.
        args: One for each of its inputs.
        rule: Runs an equation.

    Returns:
        Its results.

    Example:
        >>> import jax.numpy as jnp
        >>> from stratagem.program.compat import run_equation
        >>> def doubled(eqn, operands):
        ...     return [2 * result for result in run_equation(eqn, operands)]
        >>> float(interpret(jax.make_jaxpr(lambda x: jnp.sin(x) + 1)(0.0), [0.0], doubled)[0])
        2.0
    """
    values = Values(traced, args)
    for eqn in traced.jaxpr.eqns:
        values.write(eqn.outvars, rule(eqn, values.read(eqn.invars)))
    return values.read(traced.jaxpr.outvars)


def replaced(program: Jaxpr, replacement: Replacement) -> Jaxpr:
    """Return a program with some equations replaced, also those in programs inside its equations.

    What has none stays the very object: XLA is given a function that is called twice once.

    Args:
        program: The program.
        replacement: What stands in the place of an equation.
    """
    groups = [_replaced(eqn, replacement) for eqn in program.eqns]
    if all(len(group) == 1 and group[0] is eqn for group, eqn in zip(groups, program.eqns, strict=True)):
        return program
    return program.replace(eqns=[eqn for group in groups for eqn in group])


def _replaced(eqn: JaxprEqn, replacement: Replacement) -> list[JaxprEqn]:
    function = replacement(eqn)
    if function is not None:
        return _in_its_place(eqn, function)
    inside = {name: _replaced_inside(value, replacement) for name, value in eqn.params.items()}
    changed = any(inside[name] is not value for name, value in eqn.params.items())
    return [eqn.replace(params=inside)] if changed else [eqn]


def _replaced_inside(value: Any, replacement: Replacement) -> Any:
    """Replace equations of a program, or a tuple of programs, that an equation has for a parameter."""
    if isinstance(value, ClosedJaxpr):
        program = replaced(value.jaxpr, replacement)
        return value if program is value.jaxpr else ClosedJaxpr(program, value.consts)
    if isinstance(value, Jaxpr):
        return replaced(value, replacement)
    if isinstance(value, tuple):
        items = tuple([_replaced_inside(item, replacement) for item in value])
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    return value


def _in_its_place(eqn: JaxprEqn, function: Callable[..., Any]) -> list[JaxprEqn]:
    """Return the equations of a function, with the operands and the results of the equation that they replace."""
    with context_of(eqn):
        program = jax.make_jaxpr(function)(*shapes_of(eqn.invars)).jaxpr
    names = dict(zip([*program.invars, *program.outvars], [*eqn.invars, *eqn.outvars], strict=True))

    def renamed(atoms: Sequence[Any]) -> list[Any]:
        return [names.get(atom, atom) if isinstance(atom, Var) else atom for atom in atoms]

    return [each.replace(invars=renamed(each.invars), outvars=renamed(each.outvars)) for each in program.eqns]


def shapes_of(atoms: Iterable[Any]) -> list[jax.ShapeDtypeStruct]:
    """Return the shapes and dtypes of variables and literals."""
    return [jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype) for atom in atoms]
