"""Updates in shards: every kind of equation of an optimizer gives the numbers of whole variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec

from stratagem.mesh.mesh import ReplicaMesh
from stratagem.mesh.shards import Sharding, Stage, shard_of
from stratagem.program.rules.sharded_update import in_shards

SHARDING = Sharding(Stage.OPTIMIZER, 8, 2)
W = jnp.asarray(np.random.default_rng(1).normal(size=(6, 8)), jnp.float32)
G = jnp.asarray(np.random.default_rng(2).normal(size=(6, 8)), jnp.float32)
RATE = jnp.float32(0.1)


@pytest.fixture(scope="module")
def mesh() -> ReplicaMesh:
    return ReplicaMesh(jax.devices()[:2])


def updated(mesh: ReplicaMesh, update: Callable[..., Any], *args: Any) -> tuple[Any, str]:
    """Run an update in shards; return its result, and the program."""

    def step(*args: Any) -> Any:
        return in_shards(update, SHARDING.axis_of, args, before=jax.tree.map(lambda _: args[0], update(*args)))

    spmd = jax.shard_map(step, mesh=mesh.mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec(), check_vma=False)
    return jax.jit(spmd)(*args), str(jax.make_jaxpr(spmd)(*args))


def adam(w: jax.Array, g: jax.Array, rate: jax.Array) -> jax.Array:
    mean = 0.1 * g
    variance = 0.001 * jnp.square(g)
    return w - rate * mean / (jnp.sqrt(variance) + 1e-7) + jnp.zeros_like(w)


@jax.custom_vjp
def doubled(g: jax.Array) -> jax.Array:
    return 2 * g


doubled.defvjp(lambda g: (2 * g, None), lambda _, ct: (ct,))


@pytest.mark.parametrize(
    "update",
    [
        pytest.param(adam, id="adam"),
        pytest.param(lambda w, g, rate: jnp.where(g > 0, w, -w) * jnp.clip(g, -0.1, rate), id="where and clip"),
        pytest.param(lambda w, g, rate: (w * jnp.ones((6, 8)) + jnp.arange(8.0)).astype(jnp.bfloat16), id="constants"),
        pytest.param(lambda w, g, rate: jax.jit(lambda w: w * 2)(w) + rate, id="a function"),
        pytest.param(lambda w, g, rate: jax.nn.relu(w) + g, id="a function with a derivative of its own"),
        pytest.param(lambda w, g, rate: lax.cond(rate > 0, lambda: w + g, lambda: w), id="a branch"),
        pytest.param(lambda w, g, rate: lax.cond(rate > 1, lambda: jnp.ones_like(w), lambda: w), id="made in a branch"),
    ],
)
def test_element_by_element_it_has_every_bit(mesh: ReplicaMesh, update: Callable[..., Any]) -> None:
    found, program = updated(mesh, update, W, G, RATE)
    np.testing.assert_array_equal(found, jax.jit(update)(W, G, RATE))
    assert "psum" not in program
    assert program.count("all_gather[") == 1  # of the new weight, at the end


@pytest.mark.parametrize(
    ("update", "crossings"),
    [
        pytest.param(lambda w, g, rate: w - g / jnp.linalg.norm(g), "psum", id="norm"),
        pytest.param(lambda w, g, rate: w - g / jnp.sum(g * g, axis=0), "psum", id="sum over the axis"),
        pytest.param(lambda w, g, rate: w / jnp.max(jnp.abs(g)), "pmax", id="max"),
        pytest.param(lambda w, g, rate: w * jnp.min(g), "pmin", id="min"),
        pytest.param(lambda w, g, rate: jnp.where(jnp.all(jnp.isfinite(g)), w, g), "pmin", id="all"),
        pytest.param(lambda w, g, rate: jnp.where(jnp.any(g > 2), w, g), "pmax", id="any"),
        pytest.param(lambda w, g, rate: w - jnp.sum(g, axis=1, keepdims=True), "all_gather", id="the other axis"),
        pytest.param(lambda w, g, rate: w - (g @ g.T) @ g, "all_gather", id="products"),
        pytest.param(lambda w, g, rate: w - doubled(g), "all_gather", id="a function with a derivative backwards"),
        pytest.param(lambda w, g, rate: w - jax.checkpoint(jnp.sin)(g), "all_gather", id="a function to run again"),
        pytest.param(lambda w, g, rate: w[::-1] - lax.cumsum(g, axis=0), "all_gather", id="anything else"),
    ],
)
def test_what_combines_elements_does_so_over_replicas(
    mesh: ReplicaMesh, update: Callable[..., Any], crossings: str
) -> None:
    found, program = updated(mesh, update, W, G, RATE)
    np.testing.assert_allclose(found, update(W, G, RATE), rtol=2e-6, atol=2e-6)
    assert crossings in program


def test_small_variables_are_updated_whole(mesh: ReplicaMesh) -> None:
    small = jnp.arange(3.0)
    found, program = updated(mesh, adam, small, small, RATE)
    np.testing.assert_array_equal(found, jax.jit(adam)(small, small, RATE))
    assert "all_gather" not in program


def test_a_sum_along_another_axis_than_the_shards_stays_in_shards(mesh: ReplicaMesh) -> None:
    def step(g: jax.Array) -> jax.Array:
        def rows(g: jax.Array) -> jax.Array:
            return jnp.sum(g, axis=1)  # 8 of 6 rows are no shape that rests in shards, but the value is one

        return in_shards(rows, SHARDING.axis_of, [g], before=jnp.zeros(16))

    wide = jnp.arange(64.0).reshape(16, 4)
    spmd = jax.shard_map(step, mesh=mesh.mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec(), check_vma=False)
    np.testing.assert_array_equal(jax.jit(spmd)(wide), wide.sum(axis=1))
    assert "psum" not in str(jax.make_jaxpr(spmd)(wide))


def test_the_shard_of_a_new_weight_is_there_without_any_exchange(mesh: ReplicaMesh) -> None:
    from stratagem.program.rules.gathers import gathering

    def step(w: jax.Array, g: jax.Array) -> jax.Array:
        new = in_shards(lambda w, g: w - g, SHARDING.axis_of, [w, g], before=w)
        return shard_of(new, 0)

    spmd = jax.shard_map(
        gathering(step), mesh=mesh.mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec("replica"), check_vma=False
    )
    np.testing.assert_array_equal(jax.jit(spmd)(W, G), W - G)
    assert "all_gather" not in str(jax.make_jaxpr(spmd)(W, G))
