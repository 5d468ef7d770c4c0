"""Sums in shards without Gloo's own: the same sums, by an exchange of parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from stratagem.program.rules.sums_in_parts import with_sums_in_parts


def on_four(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs on four replicas, each with its row of the argument."""
    mesh, spec = Mesh(np.array(jax.devices()[:4]), ("replica",)), PartitionSpec("replica")
    own = jax.shard_map(lambda x: function(x[0])[None], mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    return jax.jit(own)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
@pytest.mark.parametrize("groups", [None, [[0, 1], [2, 3]], [[0, 1], [3, 2]]])
@pytest.mark.parametrize(("shape", "axis", "tiled"), [((8, 3), 0, True), ((3, 8), 1, True), ((0, 8), 1, True)])
def test_each_replica_gets_its_shard_of_the_sum(
    shape: tuple[int, ...], axis: int, tiled: bool, groups: Any, dtype: str
) -> None:
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, *shape), scale=9).round(1), dtype)

    def scattered(own: jax.Array) -> jax.Array:
        return lax.psum_scatter(own, "replica", scatter_dimension=axis, axis_index_groups=groups, tiled=tiled)

    found, wanted = on_four(with_sums_in_parts(scattered))(x), on_four(scattered)(x)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_allclose(np.float64(found), np.float64(wanted), rtol=1e-2 if dtype == "bfloat16" else 1e-6)
    assert "reduce_scatter" not in str(jax.make_jaxpr(on_four(with_sums_in_parts(scattered)))(x))


@pytest.mark.parametrize("axis", [0, 1])
def test_a_sum_that_loses_its_axis(axis: int) -> None:
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 4, 4)), jnp.float32)

    def scattered(own: jax.Array) -> jax.Array:
        return lax.psum_scatter(own, "replica", scatter_dimension=axis)

    found = on_four(with_sums_in_parts(scattered))(x)
    np.testing.assert_allclose(found, jnp.moveaxis(x.sum(0), axis, 0), rtol=1e-5, atol=1e-6)


def test_sums_in_loops_go_in_parts_too() -> None:
    def looped(own: jax.Array) -> jax.Array:
        def turn(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            count, total = state
            return count + 1, total + lax.psum_scatter(own, "replica", tiled=True)

        return lax.while_loop(lambda state: state[0] < 3, turn, (jnp.int32(0), jnp.zeros(2)))[1]

    x = jnp.arange(32.0).reshape(4, 8)
    program = on_four(with_sums_in_parts(looped))
    np.testing.assert_array_equal(np.ravel(program(x)), 3 * x.sum(0))
    assert "reduce_scatter" not in str(jax.make_jaxpr(program)(x))
