"""An uneven batch runs on exactly its rows, and collectives stand outside the branches."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from stratagem.mesh.exchange import Exchange, Share
from stratagem.mesh.mesh import AXIS, ReplicaMesh
from stratagem.mesh.packs import sum_over_replicas
from stratagem.mesh.split import Split
from stratagem.replica.uneven import run_uneven


def _blocks(rows: np.ndarray, split: Split) -> np.ndarray:
    """Return each replica's rows, filled up with NaN: a step must never see the filling."""
    blocks = np.full((split.replicas, split.block), np.nan, np.float32)
    for replica, share in enumerate(split.shares):
        blocks[replica, :share] = rows[split.start(replica) : split.start(replica) + share]
    return blocks.reshape(-1)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "split",
    [
        *(Split(rows, replicas) for replicas in (2, 3, 4) for rows in (1, 2, 5, 7)),
        *map(Split.of, [(2, 1, 0, 0), (0, 3), (1, 4, 2), (0, 2, 0, 2)]),
    ],
    ids=lambda split: str(split.shares),
)
def test_statistics_through_several_exchanges(split: Split) -> None:
    """Mean, then variance round it, then a third sum: each needs the exchange before it."""
    rows, replicas = split.rows, split.replicas
    mesh = ReplicaMesh(jax.devices()[:replicas])
    values = np.random.default_rng(rows).normal(size=rows).astype(np.float32)
    traced: list[int] = []

    def step(share: Share, exchange: Exchange, own: jax.Array) -> jax.Array:
        traced.append(own.shape[0])
        assert own.shape[0] == share.rows

        def total(x: jax.Array) -> jax.Array:
            return exchange.call(lambda v: sum_over_replicas([share.masked(v)])[0], x)

        mean = total(own.sum()) / rows
        variance = total(((own - mean) ** 2).sum()) / rows
        return total((own * variance).sum() + jnp.where(share.rows > 0, 0.0, 0.0))

    def body(block: jax.Array) -> jax.Array:
        return run_uneven(step, block, split)

    result = jax.jit(
        jax.shard_map(body, mesh=mesh.mesh, in_specs=PartitionSpec(AXIS), out_specs=PartitionSpec(), check_vma=False)
    )(_blocks(values, split))
    np.testing.assert_allclose(result, (values * values.var()).sum(), rtol=1e-5)
    assert set(traced) == {max(1, share) for share in split.shares}


def test_operands_and_results_are_structures() -> None:
    split = Split(3, 2)
    mesh = ReplicaMesh(jax.devices()[:2])

    def step(share: Share, exchange: Exchange, own: Any) -> Any:
        answer = exchange.call(
            lambda a, b: {"sum": sum_over_replicas([a["x"]])[0], "none": b}, {"x": own["x"].sum()}, None
        )
        return {"total": answer["sum"], "weight": share.weight, "none": answer["none"]}

    def body(block: Any) -> Any:
        out = run_uneven(step, block, split)
        return out["total"], out["weight"][None], out["none"] is None

    total, weights, none = jax.shard_map(
        body,
        mesh=mesh.mesh,
        in_specs=PartitionSpec(AXIS),
        out_specs=(PartitionSpec(), PartitionSpec(AXIS), PartitionSpec()),
        check_vma=False,
    )({"x": _blocks(np.array([1, 2, 4], np.float32), split)})
    assert float(total) == 7.0
    np.testing.assert_allclose(weights, [2 / 3, 1 / 3], rtol=1e-6)
    assert bool(none)
