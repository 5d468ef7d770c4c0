"""Programs for the CPU, with other equations where XLA:CPU is known to be slow.

Only programs that a strategy runs on CPU devices are changed, before XLA sees them; JAX itself is left as it is.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jax
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Var, jaxpr_as_fun

from stratagem.core.environment import XLA_AS_IS
from stratagem.mesh.mesh import Tree
from stratagem.program.compat import parameters
from stratagem.program.rules import max_pool, small_images

_RULES: Final[Mapping[Any, Callable[..., Callable[..., jax.Array] | None]]] = {
    lax.select_and_scatter_add_p: max_pool.quick_gradient,
    lax.conv_general_dilated_p: small_images.quick_convolution,
}
"""By primitive: a function of an equation's (parameters, shapes of the operands, shape of the result) that returns what
computes it quickly, or None where XLA does."""


def suited_to_cpu(function: Callable[..., Tree]) -> Callable[..., Tree]:
    """Return a function that computes the same, with the equations that XLA:CPU is slow at said in another way.

    Args:
        function: Function of one replica's arrays, which is compiled for the CPU.
    """
    if os.environ.get(XLA_AS_IS) == "1":
        return function

    @functools.wraps(function)
    def rewritten(*args: Tree) -> Tree:
        traced, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
        run = jaxpr_as_fun(ClosedJaxpr(_rewritten(traced.jaxpr), traced.consts))
        return jax.tree.structure(shapes).unflatten(run(*jax.tree.leaves(args)))

    return rewritten


def _rewritten(program: Jaxpr) -> Jaxpr:
    """Return a program with the slow equations replaced, also those in programs inside its equations.

    What has none stays the very object: XLA is given a function that is called twice once.
    """
    replaced = [_replaced(eqn) for eqn in program.eqns]
    if all(len(new) == 1 and new[0] is eqn for new, eqn in zip(replaced, program.eqns, strict=True)):
        return program
    return program.replace(eqns=[eqn for new in replaced for eqn in new])


def _replaced(eqn: JaxprEqn) -> list[JaxprEqn]:
    rule = _RULES.get(eqn.primitive)
    quick = rule and rule(parameters(eqn), _shapes(eqn.invars), *_shapes(eqn.outvars))
    if quick is not None:
        return _in_its_place(eqn, quick)
    inside = {name: _with_rewritten(value) for name, value in eqn.params.items()}
    changed = any(inside[name] is not value for name, value in eqn.params.items())
    return [eqn.replace(params=inside)] if changed else [eqn]


def _with_rewritten(value: Any) -> Any:
    """Rewrite a program, or a tuple of programs, that an equation has for a parameter."""
    if isinstance(value, ClosedJaxpr):
        program = _rewritten(value.jaxpr)
        return value if program is value.jaxpr else ClosedJaxpr(program, value.consts)
    if isinstance(value, Jaxpr):
        return _rewritten(value)
    if isinstance(value, tuple):
        items = tuple(map(_with_rewritten, value))
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    return value


def _in_its_place(eqn: JaxprEqn, quick: Callable[..., jax.Array]) -> list[JaxprEqn]:
    """Return the equations of a function, with the operands and the result of the equation that they replace."""
    program = jax.make_jaxpr(quick)(*_shapes(eqn.invars)).jaxpr
    names = dict(zip([*program.invars, *program.outvars], [*eqn.invars, *eqn.outvars], strict=True))

    def renamed(atoms: Sequence[Any]) -> list[Any]:
        return [names.get(atom, atom) if isinstance(atom, Var) else atom for atom in atoms]

    return [e.replace(invars=renamed(e.invars), outvars=renamed(e.outvars)) for e in program.eqns]


def _shapes(atoms: Sequence[Any]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype) for atom in atoms]
