"""What replicas tell each other, and its derivatives, against one formula of all replicas."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

import stratagem
import stratagem.tf as tf
from stratagem.core.errors import InputError, UsageError
from stratagem.mesh.split import Split

X = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
WEIGHT = np.array([0.4, -0.3, 0.8], "float32")
SPLITS = [(1, 4), (2, 4), (2, 3), (4, 3)]
"""(replicas, rows): one, even, uneven, and a replica without rows."""


def strategy_of(replicas: int) -> Any:
    return stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)])


def batch_of(strategy: Any, rows: np.ndarray) -> Any:
    dataset = stratagem.data.Dataset.from_tensor_slices(rows).batch(len(rows))
    (batch,) = strategy.experimental_distribute_dataset(dataset)
    return batch


def context() -> Any:
    return stratagem.get_replica_context()


def loss_of(x: Any, weight: Any) -> Any:
    """One replica's loss, of what replicas can tell each other."""
    own = keras.ops.tanh(keras.ops.matmul(x, weight))
    told = context().all_reduce("MEAN", {"first": keras.ops.sum(own), "second": [keras.ops.sum(own**2)]})
    most = context().all_reduce("MAX", keras.ops.max(own))
    everyone = context().all_gather(keras.ops.expand_dims(own, 0), axis=-1)
    pairs = keras.ops.sum(keras.ops.cumsum(everyone[0]) ** 2)
    return keras.ops.sum(own) * told["first"] + most * told["second"][0] + pairs


def global_loss(weights: jax.Array, parts: list[np.ndarray]) -> jax.Array:
    """The sum of the losses of the replicas, each of which holds a weight and rows of its own."""
    own = [jnp.tanh(part @ weight) for part, weight in zip(parts, weights, strict=True)]
    rows, replicas = jnp.concatenate(own), len(own)
    pairs = jnp.sum(jnp.cumsum(rows) ** 2)
    return jnp.sum(rows) ** 2 / replicas + jnp.max(rows) * jnp.sum(rows**2) + replicas * pairs


def by_tape(x: Any, weight: Any) -> Any:
    with stratagem.GradientTape() as outer:
        with stratagem.GradientTape() as inner:
            loss = loss_of(x, weight)
        slope = inner.gradient(loss, weight)
        penalty = keras.ops.sum(slope**2)
    return loss, slope, outer.gradient(penalty, weight)


def by_function(x: Any, weight: Any) -> Any:
    def penalty() -> Any:
        loss, (slope,) = stratagem.value_and_grad(lambda: loss_of(x, weight), [weight])()
        return keras.ops.sum(slope**2), (loss, slope)

    (_, (loss, slope)), (curvature,) = stratagem.value_and_grad(penalty, [weight], has_aux=True)()
    return loss, slope, curvature


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("replicas", "rows", "step"),
    [
        (2, 4, by_tape),
        (2, 3, by_function),
        *(pytest.param(*split, by_tape, marks=pytest.mark.thorough) for split in SPLITS if split != (2, 4)),
        pytest.param(2, 4, by_function, marks=pytest.mark.thorough),
    ],
)
def test_derivatives_of_what_crosses_replicas(replicas: int, rows: int, step: Any) -> None:
    strategy = strategy_of(replicas)
    with strategy.scope():
        weight = keras.Variable(WEIGHT)
    split = Split(rows, replicas)
    # The greatest of no numbers is not defined: a replica without rows counts for nothing here.
    parts = [X[split.start(i) : split.start(i + 1)] for i, share in enumerate(split.shares) if share]
    weights = jnp.stack([WEIGHT] * len(parts))

    result = strategy.run(lambda x: step(x, weight), args=(batch_of(strategy, X[:rows]),))

    loss, slopes, curvatures = map(strategy.experimental_local_results, result)
    with_rows = slice(None, len(parts))
    np.testing.assert_allclose(sum(map(float, loss[with_rows])), global_loss(weights, parts), rtol=1e-5)
    assert np.isnan(loss[len(parts) :]).all()
    expected = jax.grad(global_loss)(weights, parts)
    np.testing.assert_allclose(slopes[with_rows], expected, rtol=1e-4, atol=1e-5)
    bent = jax.grad(lambda w: jnp.sum(jax.grad(global_loss)(w, parts) ** 2))(weights)
    np.testing.assert_allclose(curvatures[with_rows], bent, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("rows", [4, 3], ids=["even", "uneven"])
def test_tapes_in_sequence_that_differentiate_through_a_sum(rows: int) -> None:
    """The second tape traces again past the first gradient, which crossed replicas, and past the update."""
    found = []
    for replicas in (1, 2):
        strategy = strategy_of(replicas)
        with strategy.scope():
            weight = keras.Variable(WEIGHT)
            optimizer = keras.optimizers.SGD(0.1)

        def step(x: Any, weight: Any = weight, optimizer: Any = optimizer) -> Any:
            slopes = []
            for power in (2, 3):
                with stratagem.GradientTape() as tape:
                    total = context().all_reduce("SUM", keras.ops.sum(keras.ops.tanh(keras.ops.matmul(x, weight))))
                    loss = total**power / context().num_replicas_in_sync
                slopes.append(tape.gradient(loss, weight))
                optimizer.apply_gradients([(slopes[-1], weight)])
            return slopes

        slopes = strategy.run(step, args=(batch_of(strategy, X[:rows]),))
        found.append([*strategy.reduce("SUM", slopes, axis=None), weight.value])

    def loss(w: jax.Array, power: int) -> jax.Array:
        return jnp.sum(jnp.tanh(X[:rows] @ w)) ** power

    first = jax.grad(loss)(jnp.asarray(WEIGHT), 2)
    second = jax.grad(loss)(WEIGHT - 0.1 * first, 3)
    for numbers in found:
        np.testing.assert_allclose(numbers, [first, second, WEIGHT - 0.1 * first - 0.1 * second], rtol=1e-4)


def test_a_replica_without_rows_computes_on_zero_rows() -> None:
    """Three replicas have a row, whose values are below 0; the fourth has none: its sum is 0, as in TensorFlow."""
    strategy = strategy_of(4)
    batch = batch_of(strategy, np.array([-3.0, -1.0, -2.0], "float32"))

    def step(x: Any) -> Any:
        own = keras.ops.sum(x)
        told = {op: context().all_reduce(op, own) for op in ("sum", "mean", "min", "max")}
        return (
            own,
            jnp.asarray(own) * jnp.array([1, 10]),
            told,
            context().all_gather(keras.ops.reshape(own, (1,)), axis=0),
        )

    own, pair, told, gathered = strategy.run(step, args=(batch,))
    for op, expected in [("sum", -6.0), ("mean", -1.5), ("min", -3.0), ("max", 0.0)]:
        assert float(strategy.reduce(op, own, axis=None)) == expected
        assert strategy.reduce(op, pair, axis=None).tolist() == [expected, 10 * expected]
        assert [float(component) for component in strategy.experimental_local_results(told[op])] == [expected] * 4
    assert float(strategy.reduce("mean", pair, axis=0)) == -8.25
    assert strategy.gather(pair, axis=0).tolist() == [-3, -30, -1, -10, -2, -20, 0, 0]
    for component in strategy.experimental_local_results(gathered):
        assert component.tolist() == [-3, -1, -2, 0]
    assert float(strategy.reduce("max", strategy.run(lambda x: x - 1, args=(own,)), axis=None)) == -1.0


@pytest.mark.parametrize("compiled", [False, True], ids=["run", "function"])
def test_rows_of_an_uneven_batch(compiled: bool) -> None:
    strategy = strategy_of(4)
    batch = batch_of(strategy, np.arange(1.0, 7.0, dtype="float32"))  # 2, 2, 1 and 1 rows

    def total(x: Any) -> Any:
        twice, sums = strategy.run(
            lambda x: (keras.ops.repeat(x, 2), keras.ops.reshape(keras.ops.sum(x), (1,))), args=(x,)
        )
        return (
            strategy.reduce("MEAN", twice, axis=0),
            strategy.gather(twice, axis=0),
            strategy.reduce("MAX", sums, axis=None),
            strategy.gather(sums, axis=0),
        )

    mean, rows, most, sums = (stratagem.function(total) if compiled else total)(batch)
    assert float(mean) == 3.5
    assert rows.tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]
    assert most.tolist() == [7]
    assert sums.tolist() == [3, 7, 5, 6]


def test_dtypes_stay() -> None:
    strategy = strategy_of(2)

    def step() -> Any:
        one = context().replica_id_in_sync_group + 1
        half = keras.ops.cast(one, "bfloat16")
        return [context().all_reduce(op, [one, half]) for op in ("sum", "mean", "max")], context().all_gather(
            [keras.ops.reshape(one > 1, (1,)), keras.ops.reshape(half, (1,))], axis=0
        )

    combined, gathered = strategy.run(step)
    found = [(str(value.dtype), float(value)) for pair in combined for value in (v.values[0] for v in pair)]
    assert found == [("int32", 3), ("bfloat16", 3), ("float32", 1.5), ("bfloat16", 1.5), ("int32", 2), ("bfloat16", 2)]
    assert [value.values[1].tolist() for value in gathered] == [[False, True], [1.0, 2.0]]


def test_misuse() -> None:
    strategy = strategy_of(2)
    uneven = batch_of(strategy, X[:3])
    with pytest.raises(InputError, match=r"all_gather was given axis=0 and a value of shape \(\)"):
        strategy.run(lambda: context().all_gather(1.0, axis=0))
    with pytest.raises(InputError, match=r"shapes \(1, 3\) and \(2, 3\) on replicas with 1 and 2 rows"):
        strategy.run(lambda x: context().all_reduce("sum", x), args=(uneven,))
    with pytest.raises(UsageError, match="something else on 1 than on 2 rows"):
        strategy.run(lambda x: context().all_reduce("sum", 1.0) if len(x) > 1 else 1.0, args=(uneven,))
    rows = strategy.run(lambda x: x, args=(uneven,))
    with pytest.raises(InputError, match=r"shapes \(2, 3\) and \(1, 3\) were gathered along axis=1"):
        strategy.gather(rows, axis=1)
    with pytest.raises(InputError, match=r"shapes \(2, 3\) and \(1, 3\) were reduced with axis=None"):
        strategy.reduce("SUM", rows, axis=None)


def test_what_cannot_cross() -> None:
    strategy, slices = strategy_of(2), tf.IndexedSlices(values=[[1.0, 2.0]], indices=[2], dense_shape=[5, 2])
    with pytest.raises(NotImplementedError, match=r"strategy\.gather does not support IndexedSlices"):
        strategy.gather(slices, axis=0)
    with pytest.raises(NotImplementedError, match=r"strategy\.reduce does not support IndexedSlices"):
        strategy.reduce("MEAN", slices, axis=None)
    with pytest.raises(InputError, match="all_gather does not support IndexedSlices"):
        strategy.run(lambda: context().all_gather(slices, axis=0))
