"""The arithmetic of a traced step: floating-point operations of its matrix products and convolutions, by dtype."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn


def flops(traced: ClosedJaxpr | Jaxpr) -> Counter[str]:
    """Return the number of operations of a replica, by the dtype that is multiplied. A sum and a product are one each.

    Inside a `shard_map` sizes are those of a replica. A loop counts once for each turn, if the number of turns is
    known. Of several branches, the longest counts.

    Args:
        traced: The step.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> dict(flops(jax.make_jaxpr(lambda a, b: a @ b)(jnp.ones((2, 3)), jnp.ones((3, 4)))))
        {'float32': 48}
    """
    jaxpr = traced.jaxpr if isinstance(traced, ClosedJaxpr) else traced
    total: Counter[str] = Counter()
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name == "dot_general":
            total += _of_product(equation)
        elif name == "conv_general_dilated":
            total += _of_convolution(equation)
        elif name == "cond":
            branches = [flops(branch) for branch in equation.params["branches"]]
            total += max(branches, key=Counter.total)
        else:
            turns = equation.params["length"] if name == "scan" else 1
            for inner in _inside(equation):
                total += Counter({dtype: turns * number for dtype, number in flops(inner).items()})
    return total


def _inside(equation: JaxprEqn) -> Iterator[ClosedJaxpr | Jaxpr]:
    for value in equation.params.values():
        for each in value if isinstance(value, tuple | list) else (value,):
            if isinstance(each, ClosedJaxpr | Jaxpr):
                yield each


def _of_product(equation: JaxprEqn) -> Counter[str]:
    left: Any = equation.invars[0].aval
    (contracting, _), _ = equation.params["dimension_numbers"]
    depth = math.prod(left.shape[axis] for axis in contracting)
    return Counter({str(left.dtype): 2 * depth * _size(equation)})


def _of_convolution(equation: JaxprEqn) -> Counter[str]:
    kernel: Any = equation.invars[1].aval
    # One value of the result takes one product with each value of the kernel of its output channel.
    channels = kernel.shape[equation.params["dimension_numbers"].rhs_spec[0]]
    positions = _size(equation) / _stretch(equation)
    return Counter({str(kernel.dtype): int(2 * positions * math.prod(kernel.shape) / channels)})


def _stretch(equation: JaxprEqn) -> int:
    """Return which part of the values that a kernel meets are zeros that were put between others (a transposed one)."""
    return math.prod(equation.params["lhs_dilation"])


def _size(equation: JaxprEqn) -> int:
    result: Any = equation.outvars[0].aval
    return math.prod(result.shape)
