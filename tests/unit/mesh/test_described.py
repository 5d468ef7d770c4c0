"""The mesh of devices that are only described."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from stratagem.core.described import describing
from stratagem.core.errors import UsageError
from stratagem.mesh.described import DescribedMesh, mesh_on, shapes_like
from stratagem.mesh.mesh import AXIS, ReplicaMesh

DEVICES = jax.devices()[:3]


def test_a_mesh_is_of_the_kind_of_its_devices() -> None:
    assert type(mesh_on(DEVICES)) is ReplicaMesh
    with describing(DEVICES):
        assert type(mesh_on(DEVICES)) is DescribedMesh
        assert type(mesh_on(jax.devices()[3:])) is ReplicaMesh
        with pytest.raises(UsageError, match="CentralStorageStrategy was made for devices that are only described"):
            mesh_on(DEVICES, centre=jax.devices()[3])


def test_values_stay_here_once_and_programs_get_shapes() -> None:
    mesh = DescribedMesh(DEVICES)
    rows = mesh.shard_blocks(np.ones((6, 4), np.float32))
    steps = mesh.shard_blocks(np.ones((2, 6), np.int32), steps=True)
    kept = mesh.keep(np.ones((5,), np.float32))
    assert all(len(value.sharding.device_set) == 1 for value in (rows, steps, kept))
    assert mesh.keeps(kept)
    assert mesh.keeps_apart(rows)
    assert not mesh.keeps_apart(kept)
    found = shapes_like(mesh, ([kept], {"x": rows, "y": steps}, 2.0), None)
    specs = jax.tree.map(lambda shape: shape.sharding.spec, found)
    assert specs == [[PartitionSpec()], {"x": PartitionSpec(AXIS), "y": PartitionSpec(None, AXIS)}, PartitionSpec()]
    assert found[1]["x"].shape == (6, 4)
    assert found[2].weak_type


def test_specs_of_a_program_hold_for_all_below_them() -> None:
    mesh = DescribedMesh(DEVICES)
    values = [jnp.ones(3), (jnp.ones((3, 2)),)]
    (found,) = shapes_like(mesh, [values], [[PartitionSpec(), PartitionSpec(AXIS)]])
    assert found[0].sharding.spec == PartitionSpec()
    assert found[1][0].sharding.spec == PartitionSpec(AXIS)
    assert found[1][0].sharding.mesh == mesh.mesh


def test_hosts_of_several_processes_are_one_here() -> None:
    mesh = DescribedMesh(DEVICES)
    assert mesh.local_replicas == (0, 1, 2)
    assert not mesh.multi_process
    assert mesh.local_rows(7) == slice(0, 7)
    values = [jnp.ones(2)]
    assert mesh.on_replicas(lambda own: own, values) == values
