"""Training on GPUs has the numbers of the CPU, and takes the memory that it should."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import keras
import numpy as np
import pytest

import stratagem
from stratagem import (
    CentralStorageStrategy,
    GradientTape,
    MirroredStrategy,
    MultiWorkerMirroredStrategy,
    OneDeviceStrategy,
)
from stratagem.data import Dataset
from stratagem.strategy.base import Strategy

pytestmark = pytest.mark.gpu

ROWS = 24

STRATEGIES: dict[str, Callable[[Sequence[str]], Strategy]] = {
    "mirrored": lambda names: MirroredStrategy(list(names)),
    "central, variables in the memory of the host": lambda names: CentralStorageStrategy(list(names), "cpu:0"),
}


def dense() -> keras.Model:
    layers = [keras.layers.Dense(32, activation="tanh"), keras.layers.Dense(4)]
    return keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten(), *layers])


def convolutions() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            keras.layers.Conv2D(8, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.DepthwiseConv2D(2),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(4),
        ]
    )


def attention() -> keras.Model:
    inputs = keras.Input((8, 8, 3))
    x = keras.layers.Dense(16)(keras.layers.Reshape((16, 12))(inputs))
    # No biases: a bias of all keys changes no attention, so its gradient is what rounding leaves of zero. Adam makes
    # steps of that as large as any, in another direction on each device.
    attended = keras.layers.MultiHeadAttention(2, 8, use_bias=False)(x, x, use_causal_mask=True)
    x = keras.layers.LayerNormalization()(x + attended)
    return keras.Model(inputs, keras.layers.Dense(4)(x[:, -1]))


def recurrent() -> keras.Model:
    layers = [keras.layers.Reshape((8, 24)), keras.layers.LSTM(12), keras.layers.Dense(4)]
    return keras.Sequential([keras.Input((8, 8, 3)), *layers])


MODELS = {"dense": dense, "convolutions": convolutions, "attention": attention, "recurrent": recurrent}


def rows(number: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(3)
    return generator.standard_normal((number, 8, 8, 3), np.float32), generator.integers(0, 4, number)


def compiled(strategy: Strategy, model: str, **options: Any) -> keras.Model:
    keras.utils.set_random_seed(7)
    with strategy.scope():
        made = MODELS[model]()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        made.compile(keras.optimizers.Adam(1e-2), loss, metrics=["accuracy"], **options)
    return made


def trained(strategy: Strategy, model: str, **options: Any) -> dict[str, Any]:
    """Train a model with uneven batches; return its losses, its weights and what it predicts."""
    made = compiled(strategy, model, **options)
    with jax.default_matmul_precision("highest"):  # TF32 has ten bits
        history = made.fit(*rows(), batch_size=10, epochs=2, shuffle=False, verbose=0).history
        return {**history, "weights": made.get_weights(), "predictions": made.predict(rows()[0], verbose=0)}


@functools.cache
def of_cpu(model: str) -> dict[str, Any]:
    return trained(OneDeviceStrategy("cpu:0"), model)


def check(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        for a, b in zip(jax.tree.leaves(found[name]), jax.tree.leaves(value), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4, err_msg=name)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("model", MODELS)
def test_fit_has_the_numbers_of_the_cpu(names: list[str], strategy: str, model: str) -> None:
    check(trained(STRATEGIES[strategy](names), model), of_cpu(model))


@pytest.mark.parametrize("model", MODELS)
def test_several_steps_in_one_execution(one: str, model: str) -> None:
    found = trained(OneDeviceStrategy(one), model, steps_per_execution=2)
    check(found, {name: of_cpu(model)[name] for name in ("weights", "predictions")})


def test_all_devices_of_one_worker() -> None:
    check(trained(MultiWorkerMirroredStrategy(), "dense"), of_cpu("dense"))


@pytest.mark.parametrize("decorated", [False, True])
def test_a_loop_of_ones_own(names: list[str], decorated: bool) -> None:
    def run(strategy: Strategy) -> list[np.ndarray]:
        model = compiled(strategy, "convolutions")
        with strategy.scope():
            optimizer = keras.optimizers.SGD(0.1, momentum=0.9)

        def step(batch: Any) -> Any:
            x, y = batch
            with GradientTape() as tape:
                losses = keras.losses.sparse_categorical_crossentropy(y, model(x, training=True), from_logits=True)
                loss = keras.ops.sum(losses) / 12
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        def whole(batch: Any) -> Any:
            return strategy.reduce("SUM", strategy.run(step, args=(batch,)), axis=None)

        whole = stratagem.function(whole) if decorated else whole
        dataset = strategy.experimental_distribute_dataset(Dataset.from_tensor_slices(rows()).batch(12))
        with jax.default_matmul_precision("highest"):
            losses = [np.asarray(whole(batch)) for _ in range(3) for batch in dataset]
        return [*losses, *model.get_weights()]

    found, expected = run(MirroredStrategy(names)), run(OneDeviceStrategy("cpu:0"))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_trains(one: str, policy: str) -> None:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        losses = trained(OneDeviceStrategy(one), "convolutions")["loss"]
    finally:
        keras.config.set_dtype_policy(before)
    np.testing.assert_allclose(losses, of_cpu("convolutions")["loss"], rtol=0.05)


def test_variables_are_reused_for_their_new_values(names: list[str]) -> None:
    model = compiled(MirroredStrategy(names), "dense")
    model.fit(*rows(), batch_size=12, verbose=0)
    before = [variable.value for variable in [*model.trainable_variables, *model.optimizer.variables]]
    model.fit(*rows(), batch_size=12, verbose=0)
    reused = [value.is_deleted() for value in before if value.size > 1]
    assert len(reused) == 3 * 4  # weights and two moments
    assert all(reused)


def test_a_step_leaves_little_more_than_its_variables(one: str) -> None:
    device = OneDeviceStrategy(one).mesh.devices[0]
    before = device.memory_stats()
    if before is None:
        pytest.skip("a CPU device counts no memory")
    model = compiled(OneDeviceStrategy(one), "dense")
    model.fit(*rows(), batch_size=24, verbose=0)
    state = sum(variable.value.nbytes for variable in [*model.variables, *model.optimizer.variables])
    after = device.memory_stats()
    assert after is not None
    assert after["bytes_in_use"] - before["bytes_in_use"] < 4 * state + (1 << 20)
