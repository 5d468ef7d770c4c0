"""Programs for the CPU, with faster equations where XLA:CPU is known to be slow.

Only steps of a strategy and compiled functions on CPU devices are changed, before XLA sees them; JAX itself is left as
it is.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import jax
from jax.extend.core import ClosedJaxpr, JaxprEqn, jaxpr_as_fun

from stratagem.core.environment import XLA_AS_IS
from stratagem.mesh.mesh import Tree
from stratagem.program.compat import parameters
from stratagem.program.interpret import replaced, shapes_of, trace
from stratagem.program.rules import (
    channels_last,
    depthwise,
    grouped,
    kernel_gradients,
    kernel_products,
    max_pool,
    pointwise,
    products,
    random_bits,
    small_images,
    transposed,
    unpadded,
)

_Rule = Callable[..., Callable[..., jax.Array] | None]
"""Function of an equation's (parameters, shapes of the operands, shape of the result).

It returns a faster function, or None where XLA is fast."""

_RULES: Final[Mapping[str, Sequence[_Rule]]] = {
    "select_and_scatter_add": [max_pool.quick_gradient],
    "dot_general": [products.quick_product],
    "conv_general_dilated": [
        pointwise.quick_convolution,
        small_images.quick_convolution,
        depthwise.quick_convolution,
        grouped.quick_convolution,
        transposed.quick_convolution,
        kernel_products.quick_convolution,
        kernel_gradients.quick_convolution,
        unpadded.quick_convolution,
        channels_last.quick_convolution,
    ],
    "random_bits": [random_bits.quick_bits],
}
"""Rules by the name of the primitive; the first that gives a function is taken."""


def suited_to_cpu(function: Callable[..., Tree]) -> Callable[..., Tree]:
    """Return a function that computes the same, with equations that are slow on XLA:CPU replaced by faster ones.

    Args:
        function: Function of one replica's arrays, which is compiled for the CPU.
    """
    if os.environ.get(XLA_AS_IS) == "1":
        return function

    @functools.wraps(function)
    def suited(*args: Tree) -> Tree:
        traced, structure = trace(function, args)
        quick = ClosedJaxpr(replaced(traced.jaxpr, _quick), traced.consts)
        return structure.unflatten(jaxpr_as_fun(quick)(*jax.tree.leaves(args)))

    return suited


def _quick(eqn: JaxprEqn) -> Callable[..., jax.Array] | None:
    shapes = shapes_of(eqn.invars), *shapes_of(eqn.outvars)
    functions = (rule(parameters(eqn), *shapes) for rule in _RULES.get(eqn.primitive.name, ()))
    return next((function for function in functions if function is not None), None)
