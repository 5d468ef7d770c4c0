"""Training with compressed gradients on virtual devices: what replicas keep, and where it goes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest

import stratagem
from stratagem.compression.residuals import is_in_parts, slot_of
from stratagem.core.types import CommunicationOptions
from stratagem.mesh.mesh import ReplicaMesh
from stratagem.strategy.base import Strategy

NAMES: tuple[Any, ...] = ("bf16", "int8", "powersgd")
ROWS = 64
X = np.random.default_rng(0).normal(size=(ROWS, 20)).astype("float32")
Y = np.sin(X @ np.random.default_rng(1).normal(size=(20, 3))).astype("float32")


SLOPES = np.random.default_rng(2).normal(size=(20, 24)).astype("float32")


def strategy_of(replicas: int, name: Any = None) -> Strategy:
    rank = 2 if name == "powersgd" else None
    options = CommunicationOptions(compression=name, compression_rank=rank)
    return Strategy(ReplicaMesh(jax.devices()[:replicas]), communication_options=options)


def model_of(strategy: Strategy, **optimizer: Any) -> Any:
    keras.utils.set_random_seed(3)
    with strategy.scope():
        layers = [keras.Input((20,)), keras.layers.Dense(24, activation="relu"), keras.layers.Dense(3)]
        model = keras.Sequential(layers)
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9, **optimizer), loss="mse")
    return model


def on_all(variable: Any) -> list[np.ndarray]:
    """Return a variable's value on each device."""
    return [np.asarray(shard.data) for shard in variable.value.addressable_shards]


def check_equal_weights(model: Any, replicas: int) -> None:
    for variable in [*model.trainable_variables, *model.optimizer.variables]:
        if not is_in_parts(variable):
            values = on_all(variable)
            assert len(values) == replicas
            assert all(np.array_equal(value, values[0]) for value in values), variable.path


def residuals(model: Any) -> list[Any]:
    return [variable for variable in model.optimizer.variables if is_in_parts(variable)]


def fitted(replicas: int, name: Any, accumulate: int | None = None, **options: Any) -> tuple[Any, list[float]]:
    """Train, also with a last batch that does not divide; return the model, and the loss of each epoch."""
    model = model_of(strategy_of(replicas, name), gradient_accumulation_steps=accumulate)
    model.compile(model.optimizer, loss="mse", **options)
    return model, model.fit(X, Y, batch_size=12, epochs=3, verbose=0, shuffle=False).history["loss"]


@functools.cache
def plain_losses(accumulate: int | None = None) -> list[float]:
    """Return the losses of uncompressed training, which are those of any number of replicas."""
    return fitted(2, None, accumulate)[1]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("replicas", "options"), [(2, {}), pytest.param(3, {"steps_per_execution": 2}, marks=pytest.mark.thorough)]
)
def test_fit(name: Any, replicas: int, options: dict[str, Any]) -> None:
    """Nearly the losses of plain training, and the same weights everywhere."""
    model, losses = fitted(replicas, name, **options)
    check_equal_weights(model, replicas)
    assert np.abs(np.subtract(losses, plain_losses())).max() > 1e-6  # sums in another order differ by less
    tolerance = {"bf16": 1e-3, "int8": 5e-3, "powersgd": 0.2}[name]
    np.testing.assert_allclose(losses, plain_losses(), rtol=tolerance)
    assert losses[-1] < 0.7 * losses[0]
    shapes = {"powersgd": [(20, 24), (24, 3)]}.get(name, [(20, 24), (24,), (24, 3), (3,)])
    assert [tuple(variable.shape) for variable in residuals(model)] == shapes


def linear_training(strategy: Strategy, make_optimizer: Callable[[], Any], whole: bool = False) -> tuple[Any, Any]:
    """Train a layer on a weighted sum of its outputs, whose gradients do not depend on the weights; return both."""
    keras.utils.set_random_seed(0)
    with strategy.scope():
        layer = keras.layers.Dense(24, use_bias=False)
        layer.build((None, 20))
        optimizer = make_optimizer()

    def step(x: jax.Array) -> None:
        with stratagem.GradientTape() as tape:
            loss = stratagem.nn.compute_average_loss(keras.ops.sum(layer(x) * keras.ops.sin(x @ SLOPES), axis=1))
            loss = optimizer.scale_loss(loss)
        optimizer.apply_gradients(zip(tape.gradient(loss, [layer.kernel]), [layer.kernel], strict=True))

    def run(x: Any) -> None:
        strategy.run(step, args=(x,))

    run = stratagem.function(run) if whole else run
    dataset = stratagem.data.Dataset.from_tensor_slices(X).batch(12)
    for batch in strategy.experimental_distribute_dataset(dataset):
        run(batch)
    return layer, optimizer


def growing() -> Any:
    """Return an optimizer whose loss scale changes at each step."""
    return keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5), initial_scale=4.0, dynamic_growth_steps=1)


@functools.cache
def plain_layer(make_optimizer: Callable[[], Any]) -> Any:
    return linear_training(strategy_of(2), make_optimizer)[0]


def steady() -> Any:
    return keras.optimizers.SGD(0.5)


# A scale that changes, and the program of `function`, are the same for all kinds.
@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "make_optimizer", "whole"),
    [*((name, steady, False) for name in NAMES), ("int8", growing, False), ("powersgd", growing, True)],
)
def test_nothing_is_lost_in_a_custom_loop(name: Any, make_optimizer: Callable[[], Any], whole: bool) -> None:
    """With plain SGD, the weights and what is left out are together those of uncompressed training."""
    plain = plain_layer(make_optimizer)
    layer, optimizer = linear_training(strategy_of(2, name), make_optimizer, whole)
    (left,) = [on_all(variable) for variable in optimizer.variables if is_in_parts(variable)]
    assert not np.array_equal(left[0], left[1])
    assert np.abs(layer.kernel - plain.kernel).max() > 1e-5
    np.testing.assert_array_equal(*on_all(layer.kernel))
    np.testing.assert_allclose(layer.kernel - 0.5 * sum(left), plain.kernel, rtol=1e-4, atol=1e-5)


# Of codes there are two kinds, which keep the same and differ only in how they round.
@pytest.mark.thorough
@pytest.mark.parametrize("name", ["int8", "powersgd"])
def test_accumulated_gradients_are_compressed_once(name: Any) -> None:
    model, losses = fitted(2, name, accumulate=3)
    assert any(np.abs(variable).max() > 0 for variable in residuals(model))
    tolerance = {"int8": 5e-3, "powersgd": 0.2}[name]
    np.testing.assert_allclose(losses, plain_losses(accumulate=3), rtol=tolerance)
    assert losses != plain_losses(accumulate=3)


@pytest.mark.thorough
def test_a_step_of_ones_own() -> None:
    """Of a model whose `train_step` takes data alone, and applies two optimizers."""
    strategy = strategy_of(2, "int8")

    class Own(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.layer = keras.layers.Dense(3)
            self.second = keras.optimizers.SGD(0.05)

        def call(self, x: Any) -> Any:
            return self.layer(x)

        def train_step(self, data: Any) -> dict[str, Any]:
            x, y = data
            for optimizer in (self.optimizer, self.second):
                with stratagem.GradientTape() as tape:
                    loss = keras.ops.mean((self(x) - y) ** 2)
                weights = self.trainable_variables
                optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            return {"error": loss}

    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = Own()
        model.compile(keras.optimizers.SGD(0.05))
    history = model.fit(X, Y, batch_size=16, epochs=2, verbose=0)
    assert history.history["error"][1] < history.history["error"][0]
    for optimizer in (model.optimizer, model.second):
        found = [on_all(variable) for variable in optimizer.variables if is_in_parts(variable)]
        assert len(found) == 2
        assert not np.array_equal(*found[0])
    check_equal_weights(model, 2)


@pytest.mark.thorough
def test_a_second_optimizer_that_is_applied_as_a_function() -> None:
    """It used to go uncompressed without a word: its state is carried by the program, which has no place for more."""
    strategy = strategy_of(2, "int8")

    class Own(keras.Sequential):
        def train_step(self, state: Any, data: Any) -> Any:
            weights, others, slots, metrics = state
            x, y = data
            error = lambda w: keras.ops.mean((self.stateless_call(w, others, x)[0] - y) ** 2)  # noqa: E731
            loss, gradients = jax.value_and_grad(error)(weights)
            weights, slots = self.optimizer.stateless_apply(slots, gradients, weights)
            before = [variable.value for variable in self.second.variables]
            weights, _ = self.second.stateless_apply(before, jax.grad(error)(weights), weights)
            return {"error": loss}, (weights, others, slots, metrics)

    with strategy.scope():
        model = Own([keras.Input((20,)), keras.layers.Dense(3)])
        model.compile(keras.optimizers.SGD(0.05))
        model.second = keras.optimizers.SGD(0.05, name="second")
        model.second.build(model.trainable_variables)
    with pytest.warns(UserWarning, match=r"(?s)'second', which .* travel uncompressed.*train_step\(self, data\)"):
        history = model.fit(X, Y, batch_size=16, epochs=2, verbose=0)
    assert history.history["error"][1] < history.history["error"][0]
    assert [is_in_parts(variable) for variable in model.second.variables] == [False, False]
    assert all(np.abs(variable).max() > 0 for variable in residuals(model))
    check_equal_weights(model, 2)


@pytest.mark.thorough
def test_steps_that_are_not_compiled() -> None:
    """One small step only: JAX compiles each of its operations."""
    found = {}
    for compression, eagerly in ((None, False), ("int8", False), ("int8", True)):
        keras.utils.set_random_seed(3)
        with strategy_of(2, compression).scope():
            model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(3, use_bias=False)])
            model.compile(keras.optimizers.SGD(0.1), loss="mse", run_eagerly=eagerly)
        model.train_on_batch(X, Y)
        found[compression, eagerly] = [np.asarray(model.layers[0].kernel), *map(np.asarray, residuals(model))]
    np.testing.assert_allclose(found["int8", True], found["int8", False], rtol=1e-5, atol=1e-7)
    assert np.abs(found["int8", True][0] - found[None, False][0]).max() > 1e-5


def test_files_open_without_a_strategy(tmp_path: Path) -> None:
    """PowerSGD keeps both kinds of slots: one that differs between replicas, and one that is the same."""
    model = model_of(strategy_of(2, "powersgd"))
    model.fit(X, Y, batch_size=16, verbose=0)
    model.save(tmp_path / "model.keras")
    stratagem.train.Checkpoint(model=model, optimizer=model.optimizer).save(tmp_path / "checkpoint")
    loaded: Any = keras.models.load_model(tmp_path / "model.keras")
    plain = [variable for variable in model.optimizer.variables if slot_of(variable) is None]
    assert len(plain) < len(model.optimizer.variables)
    for before, after in zip(plain, loaded.optimizer.variables, strict=True):
        np.testing.assert_array_equal(before.value, after.value)
    status = stratagem.train.Checkpoint(model=loaded, optimizer=loaded.optimizer).restore(tmp_path / "checkpoint-1")
    status.assert_consumed()
    model.load_weights(tmp_path / "model.keras")
    model.fit(X, Y, batch_size=16, verbose=0)
    check_equal_weights(model, 2)


class _Stops(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch == 3:
            raise KeyboardInterrupt


@pytest.mark.thorough
def test_a_resumed_fit_ends_with_the_same_weights(tmp_path: Path) -> None:
    """The backup has the sum of what all replicas left out; it is the first one's when training goes on.

    PowerSGD keeps both kinds of slots: one that differs between replicas, and one that is the same.
    """

    def trained(folder: str, *callbacks: Any) -> Any:
        backup = stratagem.callbacks.BackupAndRestore(str(tmp_path / folder), save_freq=2, delete_checkpoint=False)
        model = model_of(strategy_of(2, "powersgd"))
        model.fit(X, Y, batch_size=16, epochs=2, verbose=0, callbacks=[backup, *callbacks])
        return model

    whole = trained("whole")
    with pytest.raises(KeyboardInterrupt):
        trained("interrupted", _Stops())
    resumed = trained("interrupted")
    for one, other in zip(whole.variables, resumed.variables, strict=True):
        np.testing.assert_array_equal(one.value, other.value, err_msg=one.path)
    left = [on_all(variable) for variable in residuals(resumed)]
    for parts, expected in zip(left, [on_all(variable) for variable in residuals(whole)], strict=True):
        np.testing.assert_array_equal(parts, expected)
        np.testing.assert_array_equal(parts[1], 0)  # gathered on the first replica when `fit` ended


def test_one_replica_keeps_nothing() -> None:
    model = model_of(strategy_of(1, "int8"))
    model.fit(X, Y, batch_size=16, verbose=0)
    assert residuals(model) == []
    strategy = stratagem.OneDeviceStrategy("cpu:0")
    assert strategy.compression is None
