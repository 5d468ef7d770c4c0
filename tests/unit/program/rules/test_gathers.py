"""Gathers of what rests in shards: when there is one, of what, and that it changes no number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec

from stratagem.mesh.mesh import ReplicaMesh, spec_of
from stratagem.mesh.shards import shard_of, whole_of
from stratagem.program.rules.gathers import gathering

REPLICAS = 2
W = jnp.arange(32.0).reshape(4, 8) / 32
V = jnp.arange(64.0).reshape(8, 8) / 64


@pytest.fixture(scope="module")
def mesh() -> ReplicaMesh:
    return ReplicaMesh(jax.devices()[:REPLICAS])


def spmd(mesh: ReplicaMesh, function: Callable[..., Any], in_specs: Any, out_specs: Any) -> Callable[..., Any]:
    return jax.shard_map(function, mesh=mesh.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)


def names(program: Any) -> list[str]:
    """Return the equations of a program, and of those inside them, in order."""
    found = []
    for eqn in program.eqns:
        inner = [value for value in eqn.params.values() if hasattr(value, "jaxpr") or hasattr(value, "eqns")]
        inner += [
            each
            for value in eqn.params.values()
            if isinstance(value, tuple)
            for each in value
            if hasattr(each, "jaxpr")
        ]
        found.append(eqn.primitive.name)
        for each in inner:
            found += names(getattr(each, "jaxpr", each))
    return found


def count(mesh: ReplicaMesh, function: Callable[..., Any], args: Any, in_specs: Any, out_specs: Any) -> int:
    return names(jax.make_jaxpr(spmd(mesh, function, in_specs, out_specs))(*args).jaxpr).count("all_gather")


def both(
    mesh: ReplicaMesh, function: Callable[..., Any], args: Any, in_specs: Any, out_specs: Any, **options: int
) -> int:
    """Compare the function as it is with its gathering one, and return how often that gathers."""
    gathered = gathering(function, **options)
    found = jax.jit(spmd(mesh, gathered, in_specs, out_specs))(*args)
    wanted = jax.jit(spmd(mesh, function, in_specs, out_specs))(*args)
    jax.tree.map(np.testing.assert_array_equal, found, wanted)
    return count(mesh, gathered, args, in_specs, out_specs)


def test_a_shard_of_a_whole_is_the_shard(mesh: ReplicaMesh) -> None:
    def step(w: jax.Array) -> jax.Array:
        return shard_of(whole_of(w, 0), 0)

    assert both(mesh, step, [W], (spec_of(0),), spec_of(0)) == 0


def test_a_shard_along_another_axis_needs_the_whole(mesh: ReplicaMesh) -> None:
    def step(w: jax.Array) -> jax.Array:
        return shard_of(whole_of(w, 0), 1)

    assert both(mesh, step, [W], (spec_of(0),), spec_of(1)) == 1


def test_what_nobody_needs_is_not_gathered(mesh: ReplicaMesh) -> None:
    def step(w: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
        slot = whole_of(v, 0)
        return whole_of(w, 0).sum(), shard_of(slot, 0) * 2

    assert both(mesh, step, [W, V], (spec_of(0), spec_of(0)), (PartitionSpec(), spec_of(0))) == 1


def trained(w: jax.Array, v: jax.Array, x: jax.Array) -> Any:
    """Two layers, the first one's weights in another form, and an update of the shards."""
    weights = [whole_of(w, 0), whole_of(v, 1)]

    def loss(weights: list[jax.Array]) -> jax.Array:
        hidden = jnp.tanh(x @ weights[0].astype(jnp.bfloat16).astype(jnp.float32))
        return jnp.sum((hidden @ weights[1].T) ** 2)

    value, gradients = jax.value_and_grad(loss)(weights)
    new = [weight - 0.1 * gradient for weight, gradient in zip(weights, gradients, strict=True)]
    return value, shard_of(new[0], 0), shard_of(new[1], 1)


TRAINED = ((spec_of(0), spec_of(1), PartitionSpec()), (PartitionSpec(), spec_of(0), spec_of(1)))


def test_one_group_is_gathered_once(mesh: ReplicaMesh) -> None:
    assert both(mesh, trained, [W, V, jnp.ones((3, 4))], *TRAINED) == 2


def test_groups_are_gathered_again_in_the_backward_pass(mesh: ReplicaMesh) -> None:
    assert both(mesh, trained, [W, V, jnp.ones((3, 4))], *TRAINED, group_bytes=1) > 2


def test_no_more_than_a_group_is_held(mesh: ReplicaMesh) -> None:
    """Eight layers: each whole is read for the last time before the next but one is gathered."""
    size, layers = 16, 8

    def step(weights: list[jax.Array], x: jax.Array) -> Any:
        def loss(wholes: list[jax.Array]) -> jax.Array:
            y = x
            for whole in wholes:
                y = jnp.tanh(y @ whole)
            return jnp.sum(y)

        gradients = jax.grad(loss)([whole_of(w, 0) for w in weights])
        return [lax.psum_scatter(g, "replica", scatter_dimension=0, tiled=True) for g in gradients]

    weights = [jnp.ones((size, size)) / size] * layers
    specs = ([spec_of(0)] * layers, PartitionSpec()), [spec_of(0)] * layers
    args = (weights, jnp.ones((4, size)))
    gathers = both(mesh, step, args, *specs, group_bytes=size * size * 4)
    # The last layer is still there when the backward pass begins, and that does not need the first.
    assert gathers == 2 * layers - 2

    spmd_program = jax.make_jaxpr(spmd(mesh, gathering(step, group_bytes=size * size * 4), *specs))(*args).jaxpr.eqns[0]
    eqns = spmd_program.params["jaxpr"].eqns
    made = {eqn.outvars[0]: i for i, eqn in enumerate(eqns) if eqn.primitive.name == "all_gather"}
    last = {var: max(i for i, eqn in enumerate(eqns) if var in eqn.invars) for var in made}
    held = [sum(made[var] <= i < last[var] for var in made) for i in range(len(eqns))]
    assert max(held) == 1


def test_gradients_are_summed_before_the_next_group_but_one_is_gathered(mesh: ReplicaMesh) -> None:
    """Eight layers, a group each; in the trace all sums stand behind the backward pass, as in a step of training."""
    size, layers = 16, 8

    def step(weights: list[jax.Array], x: jax.Array) -> Any:
        def loss(wholes: list[jax.Array]) -> jax.Array:
            y = x
            for whole in wholes:
                y = jnp.tanh(y @ whole)
            return jnp.sum(y)

        gradients = [0.5 * gradient for gradient in jax.grad(loss)([whole_of(w, 0) for w in weights])]
        return [lax.psum_scatter(g, "replica", scatter_dimension=0, tiled=True) for g in gradients]

    rng = np.random.default_rng(0)
    weights = [jnp.asarray(rng.normal(size=(size, size)) / size) for _ in range(layers)]
    specs = ([spec_of(0)] * layers, PartitionSpec()), [spec_of(0)] * layers
    args = (weights, jnp.ones((4, size)))
    assert both(mesh, step, args, *specs, group_bytes=size * size * 4) == 2 * layers - 2

    spmd_program = jax.make_jaxpr(spmd(mesh, gathering(step, group_bytes=size * size * 4), *specs))(*args).jaxpr.eqns[0]
    eqns = spmd_program.params["jaxpr"].eqns
    sums = [i for i, eqn in enumerate(eqns) if eqn.primitive.name == "reduce_scatter"]
    made = {eqn.outvars[0]: i for i, eqn in enumerate(eqns)}
    waiting = [sum(i < place for i in sums) for place, eqn in enumerate(eqns) if eqn.primitive.name == "all_gather"]
    # Where a layer is gathered in the backward pass, the sums of its gradient and of those behind it have begun.
    assert waiting == [0] * layers + list(range(2, layers))
    # Those that began before the gather before have ended.
    barriers = [eqn for eqn in eqns if eqn.primitive.name == "optimization_barrier"][layers - 1 :]
    known = [[made[var] for var in eqn.invars if made.get(var) in sums] for eqn in barriers]
    assert known == [[], sums[:2], *([place] for place in sums[2 : layers - 2])]


def test_a_gradient_that_reads_a_whole_is_summed_where_it_was(mesh: ReplicaMesh) -> None:
    """Its sum with a multiple of the weight, as a penalty has it, gathers nothing earlier."""

    def step(w: jax.Array, x: jax.Array) -> Any:
        weight = whole_of(w, 0)
        gradient = jax.grad(lambda whole: jnp.sum(jnp.tanh(x @ whole)) + 0.1 * jnp.sum(whole**2))(weight)
        return lax.psum_scatter(gradient, "replica", scatter_dimension=0, tiled=True)

    assert both(mesh, step, [W, jnp.ones((3, 4))], (spec_of(0), PartitionSpec()), spec_of(0)) == 1


def test_branches_hand_wholes_on_without_gathering_them(mesh: ReplicaMesh) -> None:
    def step(w: jax.Array, v: jax.Array, x: jax.Array) -> Any:
        weight, slot = whole_of(w, 0), whole_of(v, 0)

        def more(x: jax.Array) -> Any:
            return x + weight.sum(), slot

        def less(x: jax.Array) -> Any:
            return x - weight.sum(), slot

        total, slot = lax.cond(x > 0, more, less, x)
        return total, shard_of(slot, 0)

    specs = (spec_of(0), spec_of(0), PartitionSpec()), (PartitionSpec(), spec_of(0))
    for x in (1.0, -1.0):
        assert both(mesh, step, [W, V, jnp.float32(x)], *specs) == 1


def test_functions_that_speak_of_shards_are_looked_into(mesh: ReplicaMesh) -> None:
    @jax.jit
    def update(slot: jax.Array) -> jax.Array:
        return whole_of(shard_of(slot, 0) * 2, 0)

    def step(v: jax.Array) -> jax.Array:
        return shard_of(update(update(whole_of(v, 0))), 0)

    assert both(mesh, step, [V], (spec_of(0),), spec_of(0)) == 0
