"""Sums in shards between processes of CPUs: each replica sends all others their parts, and adds up its own.

XLA:CPU lets Gloo's `ReduceScatterHalvingDoubling` do it, which returns wrong sums where arrays are larger than what a
socket holds (gloo/reduce_scatter.h): a replica moves its part to the front of its array, from where it may still be
sending the front half. The same bytes cross in an exchange of parts, and each sum is made in the order of the replicas.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, JaxprEqn, jaxpr_as_fun

from stratagem.mesh.mesh import Tree
from stratagem.program.compat import parameters
from stratagem.program.interpret import replaced, shapes_of, trace

_SHORT = ("bfloat16", "float16")
"""Added as float32, as XLA does, so that a sum of many is rounded once."""


def with_sums_in_parts(function: Callable[..., Tree]) -> Callable[..., Tree]:
    """Return a function that computes the same, without Gloo's sums in shards.

    Args:
        function: Function of one replica's arrays, which is compiled for CPUs of several processes.
    """

    @functools.wraps(function)
    def in_parts(*args: Tree) -> Tree:
        traced, structure = trace(function, args)
        program = replaced(traced.jaxpr, _in_parts)
        return structure.unflatten(jaxpr_as_fun(ClosedJaxpr(program, traced.consts))(*jax.tree.leaves(args)))

    return in_parts


def _in_parts(eqn: JaxprEqn) -> Callable[[jax.Array], jax.Array] | None:
    return functools.partial(_sum_in_parts, eqn) if eqn.primitive.name == "reduce_scatter" else None


def _sum_in_parts(eqn: JaxprEqn, value: jax.Array) -> jax.Array:
    given = parameters(eqn)
    axis, [result] = given["scatter_dimension"], shapes_of(eqn.outvars)
    front = jnp.moveaxis(value, axis, 0)
    rows = result.shape[axis] if given["tiled"] else 1
    parts = front.reshape(front.shape[0] // max(rows, 1), rows, *front.shape[1:])
    parts = lax.all_to_all(parts, given["axis_name"], 0, 0, axis_index_groups=given["axis_index_groups"])
    wide = parts.astype(jnp.float32) if value.dtype.name in _SHORT else parts
    total = functools.reduce(operator.add, wide).astype(value.dtype)
    return jnp.moveaxis(total, 0, axis) if given["tiled"] else total[0]
