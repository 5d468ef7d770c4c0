"""Shards of variables: where they are divided, what a program says of them, and sums that arrive in shards."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec

from stratagem.core.errors import InputError
from stratagem.mesh.layouts import layouts_of
from stratagem.mesh.mesh import AXIS, ReplicaMesh, spec_of
from stratagem.mesh.shards import (
    MIN_SIZE,
    Sharding,
    Stage,
    cuts,
    gathers,
    model_axis,
    resting_spec,
    shard_axis,
    shard_of,
    sharding_of,
    sums_in_shards,
    whole_of,
)

REPLICAS = 4


@pytest.fixture(scope="module")
def mesh() -> ReplicaMesh:
    return ReplicaMesh(jax.devices()[:REPLICAS])


def on_mesh(mesh: ReplicaMesh, function: Callable[..., Any], args: Any, in_specs: Any, out_specs: Any) -> Any:
    return jax.jit(jax.shard_map(function, mesh=mesh.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False))(
        *args
    )


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((8, 3), 0), ((3, 8), 1), ((3, 5, 4), 2), ((3, 5), None), ((), None), ((4,), None), ((0, 8), None), ((8,), 0)],
)
def test_the_first_axis_that_divides_is_divided(shape: tuple[int, ...], axis: int | None) -> None:
    assert Sharding(Stage.OPTIMIZER, 8, REPLICAS).axis_of(shape) == axis


def test_arguments_say_what_rests_in_shards() -> None:
    assert sharding_of(None, None, 2) is None
    assert sharding_of("optimizer", None, 1) is None
    assert sharding_of("gradients", None, 2) == Sharding(Stage.GRADIENTS, MIN_SIZE, 2)
    assert sharding_of("parameters", 1, 3) == Sharding(Stage.PARAMETERS, 1, 3)


@pytest.mark.parametrize(
    ("shard", "size", "said"),
    [
        ("weights", None, r"shard is 'weights'.*'optimizer', 'gradients', 'parameters'"),
        (3, None, r"shard is 3"),
        ("optimizer", 0, r"shard_min_size is 0"),
        ("optimizer", True, r"shard_min_size is True"),
        ("optimizer", 1.5, r"shard_min_size is 1.5"),
        (None, 8, r"shard_min_size=8 was given without shard"),
    ],
)
def test_what_cannot_be_meant_is_an_error(shard: Any, size: Any, said: str) -> None:
    with pytest.raises(InputError, match=rf"(?s){said}"):
        sharding_of(shard, size, 2)


def variable(*shape: int, trainable: bool = True, replaced: bool = False, aggregation: str = "none") -> Any:
    return SimpleNamespace(
        shape=shape,
        trainable=trainable,
        overwrite_with_gradient=replaced,
        aggregation=aggregation,
        synchronization="on_read" if aggregation == "mean" else "auto",
    )


def test_slots_as_large_as_a_weight_are_divided() -> None:
    sharding = Sharding(Stage.OPTIMIZER, 8, 2)
    weights = [variable(4, 4), variable(2), variable(6, 2, replaced=True)]
    slots = [variable(4, 4), variable(2), variable(), variable(4, 2), variable(6, 2)]
    sharding.mark_slots(slots, weights)
    sharding.mark_weights(weights)
    assert [shard_axis(each) for each in slots] == [0, None, None, None, None]
    assert [shard_axis(each) for each in weights] == [None, None, None]


def test_weights_are_divided_at_the_last_stage_frozen_ones_too() -> None:
    weights = [variable(4, 4), variable(4, 4, trainable=False), variable(16, trainable=False), variable(16)]
    Sharding(Stage.PARAMETERS, 8, 2).mark_weights(weights)
    assert [shard_axis(each) for each in weights] == [0, 0, None, 0]  # moving averages of one axis stay whole
    counted = [variable(4, 4, trainable=False, aggregation=each) for each in ("sum", "mean")]
    Sharding(Stage.PARAMETERS, 8, 2).mark_weights(counted)
    assert [shard_axis(each) for each in counted] == [None, None]


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_marks_do_what_they_say(mesh: ReplicaMesh, axis: int) -> None:
    array = jnp.arange(4.0 * 8 * 12).reshape(4, 8, 12)

    def there_and_back(shard: jax.Array) -> tuple[jax.Array, jax.Array]:
        whole = whole_of(shard, axis)
        return whole, shard_of(whole * 2, axis)

    whole, doubled = on_mesh(mesh, there_and_back, [array], spec_of(axis), (PartitionSpec(), spec_of(axis)))
    np.testing.assert_array_equal(whole, array)
    np.testing.assert_array_equal(doubled, 2 * array)
    assert whole_of(array, None) is array
    assert shard_of(array, None) is array


def test_marks_are_known_by_name() -> None:
    equations = jax.make_jaxpr(lambda x: shard_of(whole_of(x, 1), 0), axis_env=[(AXIS, 2)])(jnp.ones((2, 4))).eqns
    names = [eqn.params["name"] for eqn in equations]
    assert [gathers(name) for name in names] == [1, None]
    assert [cuts(name) for name in names] == [None, 0]
    assert gathers(None) is None


@pytest.mark.parametrize(("pack_bytes", "sums"), [(None, 4), (0, 2), (180, 3)])
def test_sums_arrive_in_shards_with_the_bits_of_whole_sums(
    mesh: ReplicaMesh, pack_bytes: int | None, sums: int
) -> None:
    rng = np.random.default_rng(1)
    shapes = [((8, 3), 0, np.float32), ((5, 4), 1, np.float32), ((4,), 0, np.int32), ((2, 3, 8), 2, np.float32)]
    values = [rng.normal(size=(REPLICAS, *shape), scale=9).astype(dtype) for shape, _, dtype in shapes]
    axes = [axis for _, axis, _ in shapes]

    def both(*own: jax.Array) -> tuple[list[jax.Array], list[jax.Array]]:
        arrays = [each[0] for each in own]
        shards = sums_in_shards(list(zip(arrays, axes, strict=True)), pack_bytes)
        return shards, [lax.psum(array, AXIS) for array in arrays]

    specs = PartitionSpec(AXIS), ([spec_of(axis) for axis in axes], PartitionSpec())
    spmd = jax.shard_map(both, mesh=mesh.mesh, in_specs=specs[0], out_specs=specs[1], check_vma=False)
    assert str(jax.make_jaxpr(spmd)(*values)).count("reduce_scatter[") == sums
    shards, totals = on_mesh(mesh, both, values, *specs)
    for shard, total in zip(shards, totals, strict=True):
        assert shard.dtype == total.dtype
        np.testing.assert_array_equal(shard, total)


def test_slots_lie_on_the_devices_of_a_replica_as_their_own_weights_do() -> None:
    layouts = layouts_of({"up": (None, "model"), "down": ("model", None)}, 2)
    sharding = sharding_of(None, None, 2, layouts)
    assert sharding is not None
    up, down = keras.Variable(np.ones((4, 4)), name="up"), keras.Variable(np.ones((4, 4)), name="down")
    optimizer = keras.optimizers.Adam()
    optimizer.build([up, down])
    sharding.mark_slots(optimizer.variables, [up, down])
    found = {slot.name: (model_axis(slot), shard_axis(slot)) for slot in optimizer.variables if slot.shape}
    assert found == {
        "up_momentum": (1, None),
        "up_velocity": (1, None),
        "down_momentum": (0, None),
        "down_velocity": (0, None),
    }
    assert resting_spec(up) == PartitionSpec(None, "model")
