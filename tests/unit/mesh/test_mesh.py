"""A mesh that lies on other devices from one moment on."""

from __future__ import annotations

import jax
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from stratagem.mesh.mesh import AXIS, ReplicaMesh


def test_values_follow_a_mesh_that_moves_and_programs_are_those_of_its_devices() -> None:
    mesh = ReplicaMesh(jax.devices()[:3])
    value = mesh.keep(np.arange(4, dtype=np.float32))
    assert (mesh.size, mesh.local_rows(7)) == (3, slice(0, 7))
    before = mesh.mesh
    mesh.lie_on(jax.devices()[1:3])
    assert mesh.size == 2
    assert mesh.mesh != before
    assert not mesh.keeps(value)
    placed = mesh.keep(value)
    assert placed.sharding.device_set == set(jax.devices()[1:3])
    np.testing.assert_array_equal(placed, [0, 1, 2, 3])
    whole = PartitionSpec()
    summed = jax.jit(mesh.spmd(lambda x: lax.psum(x, AXIS), (whole,), whole))(placed)
    np.testing.assert_array_equal(summed, [0, 2, 4, 6])
    mesh.lie_on(jax.devices()[:3])
    assert mesh.mesh == before  # what was compiled for these devices fits again
    assert mesh.keeps(value)


def test_a_mesh_of_one_device_exchanges_through_no_memory() -> None:
    mesh = ReplicaMesh(jax.devices()[:2], memory=object())  # pyright: ignore[reportArgumentType]
    assert mesh.memory is not None
    mesh.lie_on(jax.devices()[:1])
    assert mesh.memory is None
    assert not mesh.spans_devices
