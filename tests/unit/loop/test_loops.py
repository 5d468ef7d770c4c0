"""Custom loops: many replicas train like one, uneven batches included."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

import stratagem
from stratagem.core.errors import InputError
from stratagem.mesh.mesh import ReplicaMesh
from stratagem.mesh.split import Split
from stratagem.mesh.values import PerReplica

RNG = np.random.default_rng(0)
X = RNG.normal(size=(23, 5)).astype("float32")
Y = RNG.integers(0, 3, 23)
GLOBAL_BATCH = 8


def strategy_of(replicas: int) -> Any:
    return stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)])


def shares(mesh: ReplicaMesh, rows: np.ndarray) -> Any:
    """Return a batch as a distributed dataset gives it."""
    if mesh.size == 1:
        return rows
    split = Split(len(rows), mesh.size)
    blocks = np.full((mesh.size, split.block, *rows.shape[1:]), 0, rows.dtype)
    for i, share in enumerate(split.shares):
        blocks[i, :share] = rows[split.start(i) : split.start(i) + share]
        blocks[i, share:] = rows[0]
    return PerReplica(
        mesh.shard_blocks(blocks),
        mesh,
        None if split.even else tuple((share, *rows.shape[1:]) for share in split.shares),
    )


def batches(mesh: ReplicaMesh) -> list[tuple[Any, Any]]:
    cuts = range(0, len(X), GLOBAL_BATCH)
    return [(shares(mesh, X[i : i + GLOBAL_BATCH]), shares(mesh, Y[i : i + GLOBAL_BATCH])) for i in cuts]


def _tape(model: Any, optimizer: Any, loss_of: Callable[..., Any]) -> Callable[..., Any]:
    def step(x: Any, y: Any) -> Any:
        with stratagem.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return step


def _value_and_grad(model: Any, optimizer: Any, loss_of: Callable[..., Any]) -> Callable[..., Any]:
    def step(x: Any, y: Any) -> Any:
        loss, gradients = stratagem.value_and_grad(
            lambda: loss_of(y, model(x, training=True)), model.trainable_variables
        )()
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    return step


def train(
    replicas: int, make_step: Callable[..., Any], *, lazily: bool = False, compiled: bool = False
) -> tuple[list[float], list[np.ndarray], list[float]]:
    keras.utils.clear_session()
    keras.utils.set_random_seed(3)
    strategy = strategy_of(replicas)
    with strategy.scope():
        layers = [keras.layers.Dense(6, activation="tanh", kernel_regularizer="l2"), keras.layers.Dense(3)]
        model = keras.Sequential(layers if lazily else [keras.Input((5,)), *layers])
        optimizer = keras.optimizers.Adam(0.02, clipnorm=0.5)
        crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)
        accuracy = keras.metrics.SparseCategoricalAccuracy()
        mean = keras.metrics.Mean()

    def loss_of(y: Any, logits: Any) -> Any:
        per_example = crossentropy(y, logits)
        accuracy.update_state(y, logits)
        mean.update_state(per_example)
        regularisation = keras.ops.sum(model.losses) / strategy.num_replicas_in_sync
        return keras.ops.sum(per_example) / GLOBAL_BATCH + regularisation

    step = make_step(model, optimizer, loss_of)

    def distributed_step(x: Any, y: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(step, args=(x, y)), axis=None)

    if compiled:
        distributed_step = stratagem.function(distributed_step)
    losses = [float(distributed_step(x, y)) for _ in range(4) for x, y in batches(strategy.mesh)]
    state = [np.asarray(v.value) for v in [*model.variables, *optimizer.variables]]
    return losses, state, [float(accuracy.result()), float(mean.result())]


@pytest.fixture(scope="module")
def one() -> Any:
    return train(1, _tape)


ALL_WAYS = list(itertools.product((_tape, _value_and_grad), (False, True), (False, True)))
CASES = [
    *((2, *way) for way in ALL_WAYS),
    # One replica runs without a mesh; of four, shares are as unequal as of two. Each meets both steps and programs.
    *((replicas, *way) for replicas in (1, 4) for way in [(_tape, False, True), (_value_and_grad, False, False)]),
    (1, _tape, True, True),
]
QUICK = [(2, _value_and_grad, False, False), (4, _tape, False, True)]


@pytest.mark.parametrize(
    ("replicas", "make_step", "lazily", "compiled"),
    [case if case in QUICK else pytest.param(*case, marks=pytest.mark.thorough) for case in CASES],
)
def test_replicas_train_like_one(replicas: int, make_step: Any, lazily: bool, compiled: bool, one: Any) -> None:
    losses, state, metrics = train(replicas, make_step, lazily=lazily, compiled=compiled)
    if not lazily:  # weights drawn inside differ from weights drawn outside
        np.testing.assert_allclose(losses, one[0], rtol=1e-5)
        np.testing.assert_allclose(metrics, one[2], rtol=1e-5)
        for found, expected in zip(state, one[1], strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert losses[-1] < losses[0]


def test_a_mean_inside_run_is_refused() -> None:
    strategy = strategy_of(2)
    mean = keras.losses.MeanSquaredError()
    with pytest.raises(InputError, match="compute_average_loss"):
        strategy.run(lambda x: mean(x, x), args=(np.ones((2, 2), "float32"),))


def test_one_trace_for_each_signature() -> None:
    traces: list[int] = []

    @stratagem.function
    def double(x: Any, name: str = "a") -> Any:
        traces.append(1)
        return x * 2

    for value in (1.0, 2.0, 3.0):
        assert float(double(value)) == 2 * value
    count = len(traces)
    double(np.ones(3, "float32"))
    assert len(traces) > count
    count = len(traces)
    double(np.zeros(3, "float32"))
    assert len(traces) == count


@pytest.mark.thorough
def test_two_optimizers() -> None:
    """A GAN's step: two tapes, two networks, two optimizers, against the same by hand."""
    results = []
    for replicas in (1, 3):
        keras.utils.clear_session()
        keras.utils.set_random_seed(1)
        strategy = strategy_of(replicas)
        with strategy.scope():
            generator = keras.Sequential([keras.Input((5,)), keras.layers.Dense(5)])
            critic = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
            optimizers = keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.1, momentum=0.9)

        def step(x: Any, generator: Any = generator, critic: Any = critic, optimizers: Any = optimizers) -> Any:
            with stratagem.GradientTape() as first, stratagem.GradientTape() as second:
                fake = critic(generator(x))
                real = critic(x)
                generator_loss = keras.ops.sum((fake - 1) ** 2) / GLOBAL_BATCH
                critic_loss = keras.ops.sum(fake**2 + (real - 1) ** 2) / GLOBAL_BATCH
            by_generator = first.gradient(generator_loss, generator.trainable_variables)
            by_critic = second.gradient(critic_loss, critic.trainable_variables)
            optimizers[0].apply_gradients(zip(by_generator, generator.trainable_variables, strict=True))
            optimizers[1].apply_gradients(zip(by_critic, critic.trainable_variables, strict=True))
            return generator_loss

        losses = [
            float(strategy.reduce("SUM", strategy.run(step, args=(x,)), axis=None))
            for _ in range(3)
            for x, _ in batches(strategy.mesh)
        ]
        results.append([*losses, *(np.asarray(v.value) for v in generator.variables + critic.variables)])
    for one, many in zip(*results, strict=True):
        np.testing.assert_allclose(one, many, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("form", ["for", "next"])
def test_an_epoch_inside_a_function(replicas: int, form: str) -> None:
    strategy = strategy_of(replicas)
    dataset = stratagem.data.Dataset.from_tensor_slices(np.arange(1.0, 6.0, dtype="float32")).batch(2)
    shared = strategy.experimental_distribute_dataset(dataset)
    traces: list[int] = []

    def total_of(x: Any) -> Any:
        traces.append(1)
        return keras.ops.sum(x)

    @stratagem.function
    def by_for(data: Any) -> Any:
        total = 0.0
        for x in data:
            total += strategy.reduce("SUM", strategy.run(total_of, args=(x,)), axis=None)
        return total

    @stratagem.function
    def by_next(iterator: Any, steps: Any) -> Any:
        steps = int(steps)  # which no trace knows
        return sum(
            strategy.reduce("SUM", strategy.run(total_of, args=(next(iterator),)), axis=None) for _ in range(steps)
        )

    def epoch() -> float:
        return float(by_for(shared) if form == "for" else by_next(iter(shared), keras.ops.array(3)))

    assert epoch() == 15.0
    count = len(traces)
    assert epoch() == 15.0
    assert len(traces) == count


@pytest.mark.sampled(5)
@pytest.mark.parametrize("rows", [5, 6, 7], ids=["a replica without rows", "even", "uneven"])
@pytest.mark.parametrize("compiled", [False, True], ids=["run", "function"])
def test_the_last_batch_weighs_as_on_one_device(rows: int, compiled: bool) -> None:
    inputs = np.random.default_rng(0).normal(size=(rows, 3)).astype("float32")

    def trained(replicas: int) -> tuple[list[float], np.ndarray]:
        strategy = strategy_of(replicas)
        with strategy.scope():
            weight = keras.Variable(np.ones((3, 1), "float32"))
            optimizer = keras.optimizers.SGD(0.1)
        dataset = stratagem.data.Dataset.from_tensor_slices(inputs).batch(4)

        def step(x: Any) -> Any:
            with stratagem.GradientTape() as tape:
                loss = stratagem.nn.compute_average_loss(keras.ops.square(keras.ops.matmul(x, weight)))
            optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])
            return loss

        def distributed(x: Any) -> Any:
            return strategy.reduce("SUM", strategy.run(step, args=(x,)), axis=None)

        call = stratagem.function(distributed) if compiled else distributed
        shared = strategy.experimental_distribute_dataset(dataset)
        return [float(call(x)) for _ in range(3) for x in shared], np.asarray(weight.value)

    losses, weight = trained(1)
    for replicas in (2, 4):
        found_losses, found_weight = trained(replicas)
        np.testing.assert_allclose(found_losses, losses, rtol=1e-5)
        np.testing.assert_allclose(found_weight, weight, rtol=1e-5)


@pytest.mark.parametrize("rows", [1, 5])
def test_all_reduce_in_a_batch_that_does_not_divide(rows: int) -> None:
    """Inside a tape too: the gradient of a sum of sums is the number of replicas, of those without rows too."""
    strategy = strategy_of(4)
    weight = keras.Variable(2.0)
    batch = strategy.experimental_distribute_dataset(stratagem.data.Dataset.range(1, rows + 1).batch(rows))

    def step(x: Any) -> tuple[Any, Any]:
        with stratagem.GradientTape() as tape:
            own = weight * keras.ops.cast(keras.ops.sum(x), "float32")
            total = stratagem.get_replica_context().all_reduce("sum", own)
        return total, tape.gradient(total, weight)

    total, gradient = strategy.run(step, args=(next(iter(batch)),))
    whole = rows * (rows + 1) / 2
    assert [float(v) for v in strategy.experimental_local_results(total)] == [2 * whole] * 4
    assert float(strategy.reduce("SUM", gradient, axis=None)) == 4 * whole


def test_loss_scale_outside_a_compiled_function() -> None:
    """Keras's own `LossScaleOptimizer.apply` fails on JAX; a strategy mends it."""
    strategy_of(1)
    weight = keras.Variable([1.0, 2.0])
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5), initial_scale=4.0)
    for gradient in ([4.0, 8.0], [np.inf, 0.0]):
        optimizer.apply([np.array(gradient, "float32")], [weight])
    assert weight.value.tolist() == [0.5, 1.0]
    assert float(optimizer.dynamic_scale) == 2.0


def test_regularization_losses_are_seen_without_a_tape() -> None:
    layer = keras.layers.Dense(1, kernel_initializer="ones", kernel_regularizer="l2", use_bias=False)
    layer.build((None, 3))
    assert float(stratagem.function(lambda: layer.losses[0])()) == pytest.approx(0.03)
