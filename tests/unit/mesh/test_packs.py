from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from stratagem.mesh.mesh import AXIS, ReplicaMesh
from stratagem.mesh.packs import sum_over_replicas


def _sums(pack_bytes: int | None) -> tuple[list[jax.Array], str]:
    mesh = ReplicaMesh(jax.devices()[:3])

    def body(x: jax.Array) -> list[jax.Array]:
        own = x[0]
        values = [own[:2], own.sum(), own.astype(jnp.int32).reshape(2, 2), own > 3, own.astype(jnp.bfloat16)]
        return sum_over_replicas(values, pack_bytes)

    program = jax.jit(
        jax.shard_map(body, mesh=mesh.mesh, in_specs=PartitionSpec(AXIS), out_specs=PartitionSpec(), check_vma=False)
    )
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    return program(x), program.lower(x).as_text()


def test_values_keep_their_shapes_and_dtypes() -> None:
    sums, _ = _sums(0)
    np.testing.assert_array_equal(sums[0], [12, 15])
    assert float(sums[1]) == 66.0
    np.testing.assert_array_equal(sums[2], [[12, 15], [18, 21]])
    np.testing.assert_array_equal(sums[3], [True, True, True, True])
    np.testing.assert_array_equal(np.asarray(sums[4], np.float32), [12, 15, 18, 21])
    assert [s.dtype for s in sums] == [jnp.float32, jnp.float32, jnp.int32, jnp.bool_, jnp.bfloat16]


@pytest.mark.parametrize(("pack_bytes", "collectives"), [(0, 4), (4, 5), (1 << 20, 4), (None, 5)])
def test_number_of_collectives(pack_bytes: int | None, collectives: int) -> None:
    sums, text = _sums(pack_bytes)
    assert text.count("stablehlo.all_reduce") == collectives
    assert float(sums[1]) == 66.0
