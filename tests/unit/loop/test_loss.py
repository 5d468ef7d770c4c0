"""Scaled losses against numbers written by hand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import stratagem
from stratagem.core.errors import InputError, UsageError
from stratagem.mesh.exchange import Exchange, Share
from stratagem.mesh.mesh import AXIS
from stratagem.mesh.split import Split
from stratagem.nn import compute_average_loss, scale_regularization_loss
from stratagem.replica.context import ReplicaContext, replica_context
from stratagem.replica.uneven import run_uneven


def mirrored(replicas: int) -> stratagem.MirroredStrategy:
    return stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)])


def test_the_example_of_the_custom_training_tutorial() -> None:
    """Losses [2, 3] and [4, 5], global batch 4: 1.25 and 2.25, 3.5 together."""
    strategy = mirrored(2)
    dataset = stratagem.data.Dataset.from_tensor_slices([2.0, 3.0, 4.0, 5.0]).batch(4)
    (losses,) = strategy.experimental_distribute_dataset(dataset)
    for size in (None, 4):
        scaled = strategy.run(lambda x, size=size: compute_average_loss(x, global_batch_size=size), args=(losses,))
        assert strategy.experimental_local_results(scaled) == (1.25, 2.25)
        assert float(strategy.reduce("SUM", scaled, axis=None)) == 3.5
        assert float(strategy.reduce("MEAN", scaled, axis=None)) == 1.75  # the caveat of the Mean metric


@pytest.mark.parametrize(
    ("losses", "weights", "size", "expected"),
    [
        ([1, 2, 6], None, None, 3.0),
        ([1, 2, 6], None, 9, 1.0),
        ([1, 2, 6], 2.0, None, 6.0),
        ([1, 2, 6], [1, 0, 0.5], None, 4 / 3),
        ([1, 2, 6], [[1], [0], [0.5]], None, 4 / 3),
        ([[1, 2], [3, 4]], None, None, 5.0),  # every dimension is summed, only the first one divides
        ([[1, 2], [3, 4]], [1, 10], None, 36.5),
        ([1, 2], None, 0, 0.0),
    ],
)
def test_table(losses: Any, weights: Any, size: int | None, expected: float) -> None:
    result = compute_average_loss(np.array(losses, "float32"), weights, size)
    assert result.dtype == jnp.float32
    assert float(result) == pytest.approx(expected)


def test_no_examples_give_zero_and_a_finite_gradient() -> None:
    value, slope = jax.value_and_grad(compute_average_loss)(jnp.zeros((0,)))
    assert float(value) == 0.0
    assert slope.shape == (0,)
    gradient = jax.grad(lambda x: compute_average_loss(x, global_batch_size=0))(jnp.ones(2))
    np.testing.assert_array_equal(gradient, [0, 0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_keeps_the_dtype(dtype: str) -> None:
    assert compute_average_loss(jnp.ones(3, dtype), [1.0, 2.0, 3.0]).dtype == dtype


@pytest.mark.parametrize("shares", [(1, 0, 0), (1, 1, 0), (2, 2, 1), (3, 2, 2), (1, 3, 2), (0, 0, 4)], ids=str)
@pytest.mark.parametrize("in_fit", [False, True])
def test_every_example_of_an_uneven_batch_weighs_the_same(shares: tuple[int, ...], in_fit: bool) -> None:
    strategy = mirrored(3)
    split = Split.of(shares)
    rows = split.rows
    losses = np.arange(1.0, rows + 1, dtype="float32")
    blocks = np.full((3, split.block), np.nan, np.float32)
    for replica, share in enumerate(split.shares):
        blocks[replica, :share] = losses[split.start(replica) : split.start(replica) + share]

    def step(share: Share, exchange: Exchange, own: jax.Array) -> Any:
        with replica_context(ReplicaContext(strategy, share, exchange, mean_gradients=in_fit)):
            loss, slope = jax.value_and_grad(compute_average_loss)(own)
            counts = share.weight if in_fit else 1.0  # `fit` averages by rows, `run` sums
            return share.masked(loss * counts), share.masked(slope[0] * counts)

    def body(block: jax.Array) -> Any:
        loss, slope = run_uneven(step, block, split)
        return loss[None], slope[None]

    parts, slopes = jax.jit(
        jax.shard_map(
            body, mesh=strategy.mesh.mesh, in_specs=PartitionSpec(AXIS), out_specs=PartitionSpec(AXIS), check_vma=False
        )
    )(blocks.reshape(-1))
    assert float(parts.sum()) == pytest.approx(losses.mean())
    np.testing.assert_allclose(slopes, np.where(np.array(shares) > 0, 1 / rows, 0), rtol=1e-6)


def test_regularisation_is_shared_by_the_replicas() -> None:
    strategy = mirrored(4)
    scaled = strategy.run(lambda: scale_regularization_loss([jnp.float32(1.0), jnp.array([2.0, 5.0])]))
    assert strategy.experimental_local_results(scaled) == (2.0,) * 4
    assert float(scale_regularization_loss([])) == 0.0
    assert float(scale_regularization_loss(3.0)) == 3.0


def test_misuse_is_explained() -> None:
    with pytest.raises(InputError, match='reduction="none"'):
        compute_average_loss(1.0)
    for size in (2.5, [4], -1):
        with pytest.raises(InputError, match="an integer"):
            compute_average_loss([1.0], global_batch_size=size)
    with mirrored(2).scope():
        with pytest.raises(UsageError, match=r"outside strategy\.run"):
            compute_average_loss([1.0])
        with pytest.raises(UsageError, match=r"outside strategy\.run"):
            scale_regularization_loss([1.0])
        assert float(compute_average_loss([1.0, 3.0], global_batch_size=4)) == 1.0
