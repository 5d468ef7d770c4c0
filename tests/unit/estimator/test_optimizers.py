"""Optimizers by their old names: TensorFlow's formulas, under a learning rate that changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import stratagem
from stratagem.core.errors import InputError, UsageError
from stratagem.estimator import Estimator, EstimatorSpec, RunConfig, get_or_create_global_step, group, optimizers

START = np.array([1.0, -2.0, 0.5], "float32")
GRADIENTS = np.array([[0.5, -1.0, 2.0], [0.1, 0.3, -1.0], [1.0, 0.0, 0.5], [-0.7, 0.2, 0.4]], "float32")
RATES = [0.1, 0.1, 0.05, 0.05]
Step = Callable[[np.ndarray, float, dict[str, Any], int], np.ndarray]


def momentum(nesterov: bool) -> Step:
    def step(g: np.ndarray, rate: float, slots: dict[str, Any], t: int) -> np.ndarray:
        slots["m"] = 0.9 * slots.get("m", 0.0) + g
        return rate * (g + 0.9 * slots["m"] if nesterov else slots["m"])

    return step


def adam(g: np.ndarray, rate: float, slots: dict[str, Any], t: int) -> np.ndarray:
    slots["m"] = 0.9 * slots.get("m", 0.0) + 0.1 * g
    slots["v"] = 0.999 * slots.get("v", 0.0) + 0.001 * g**2
    return rate * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * slots["m"] / (np.sqrt(slots["v"]) + 1e-8)


def adagrad(g: np.ndarray, rate: float, slots: dict[str, Any], t: int) -> np.ndarray:
    slots["a"] = slots.get("a", 0.1) + g**2
    return rate * g / np.sqrt(slots["a"])


def rmsprop(g: np.ndarray, rate: float, slots: dict[str, Any], t: int) -> np.ndarray:
    slots["r"] = 0.9 * slots.get("r", 1.0) + 0.1 * g**2
    return rate * g / np.sqrt(slots["r"] + 1e-10)


def ftrl(g: np.ndarray, rate: float, slots: dict[str, Any], t: int) -> np.ndarray:
    before, w = slots.get("n", 0.1), slots.get("w", START)
    slots["n"] = before + g**2
    slots["z"] = slots.get("z", 0.0) + g - (np.sqrt(slots["n"]) - np.sqrt(before)) / rate * w
    slots["w"] = -slots["z"] / (np.sqrt(slots["n"]) / rate)
    return w - slots["w"]


def adadelta(g: np.ndarray, rate: float, slots: dict[str, Any], t: int) -> np.ndarray:
    slots["g"] = 0.95 * slots.get("g", 0.0) + 0.05 * g**2
    step = np.sqrt(slots.get("d", 0.0) + 1e-8) / np.sqrt(slots["g"] + 1e-8) * g
    slots["d"] = 0.95 * slots.get("d", 0.0) + 0.05 * step**2
    return rate * step


def proximal(g: np.ndarray, rate: float, slots: dict[str, Any], t: int) -> np.ndarray:
    w = slots.get("w", START)
    slots["a"] = slots.get("a", 0.1) + g**2
    own = rate / np.sqrt(slots["a"])
    moved = w - own * g
    slots["w"] = np.sign(moved) * np.maximum(np.abs(moved) - own * 0.3, 0) / (1 + own * 0.2)
    return w - slots["w"]


def proximal_adagrad(rate: Any) -> Any:
    return optimizers.ProximalAdagradOptimizer(rate, l1_regularization_strength=0.3, l2_regularization_strength=0.2)


CASES: dict[str, tuple[Callable[[Any], Any], Step]] = {
    "gradient descent": (optimizers.GradientDescentOptimizer, lambda g, rate, slots, t: rate * g),
    "momentum": (lambda rate: optimizers.MomentumOptimizer(rate, 0.9), momentum(nesterov=False)),
    "nesterov": (lambda rate: optimizers.MomentumOptimizer(rate, 0.9, use_nesterov=True), momentum(nesterov=True)),
    "adam": (optimizers.AdamOptimizer, adam),
    "adagrad": (optimizers.AdagradOptimizer, adagrad),
    "rmsprop": (optimizers.RMSPropOptimizer, rmsprop),
    "ftrl": (optimizers.FtrlOptimizer, ftrl),
    "adadelta": (optimizers.AdadeltaOptimizer, adadelta),
    "proximal adagrad": (proximal_adagrad, proximal),
}


def trained(tmp_path: Path, model_fn: Callable[..., EstimatorSpec], replicas: int = 1, rows: int = 1) -> np.ndarray:
    """Train a variable `w` on the four gradients, one for each step."""
    strategy = stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)])
    config = RunConfig(train_distribute=strategy, save_summary_steps=None)
    repeated = np.repeat(GRADIENTS, rows * replicas, axis=0)
    estimator = Estimator(model_fn, tmp_path, config)
    estimator.train(lambda: stratagem.data.Dataset.from_tensor_slices(repeated).batch(rows))
    return estimator.get_variable_value("w")


def weight_and_loss(features: Any) -> tuple[Any, Any]:
    w = keras.Variable(START, name="w")
    return w, keras.ops.sum(w * keras.ops.mean(features, axis=0))


@pytest.mark.parametrize("case", CASES)
def test_steps_are_those_of_the_formula(tmp_path: Path, case: str) -> None:
    make, step = CASES[case]

    def model_fn(features: Any, mode: str) -> EstimatorSpec:
        _, loss = weight_and_loss(features)
        rate = keras.ops.where(get_or_create_global_step().value < 2, RATES[0], RATES[2])
        train_op = make(rate).minimize(loss, global_step=get_or_create_global_step())
        return EstimatorSpec(mode, loss=loss, train_op=train_op)

    expected, slots = START.astype("float64"), {}
    for t, (gradient, rate) in enumerate(zip(GRADIENTS, RATES, strict=True), 1):
        expected = expected - step(gradient, rate, slots, t)
    np.testing.assert_allclose(trained(tmp_path, model_fn), expected, rtol=2e-5)


def test_gradients_can_be_changed_and_two_optimizers_grouped(tmp_path: Path) -> None:
    """Clipped by hand for w, doubled for b; on two replicas, whose gradients are averaged."""

    def model_fn(features: Any, mode: str) -> EstimatorSpec:
        w, loss = weight_and_loss(features)
        b = keras.Variable(0.0, name="b")
        loss = loss + b
        first, second = optimizers.GradientDescentOptimizer(0.1), keras.optimizers.SGD(0.1)
        pairs = [(keras.ops.clip(g, -0.5, 0.5), v) for g, v in first.compute_gradients(loss, [w])]
        train_op = group(first.apply_gradients(pairs), second.minimize(2.0 * loss, var_list=[b]))
        return EstimatorSpec(mode, loss=loss, train_op=train_op)

    found = trained(tmp_path, model_fn, replicas=2)
    np.testing.assert_allclose(found, START - 0.1 * np.clip(GRADIENTS, -0.5, 0.5).sum(axis=0), rtol=1e-5)


def test_a_rate_of_the_step_on_batches_that_differ(tmp_path: Path) -> None:
    """Seven rows of one gradient in batches of two on two replicas: the last step has rows of 2 and 1."""

    def model_fn(features: Any, mode: str) -> EstimatorSpec:
        _, loss = weight_and_loss(features)
        step: Any = keras.ops.cast(get_or_create_global_step().value, "float32")
        rate = 0.1 / (1.0 + step)
        return EstimatorSpec(mode, loss=loss, train_op=optimizers.GradientDescentOptimizer(rate).minimize(loss))

    strategy = stratagem.MirroredStrategy(["cpu:0", "cpu:1"])
    config = RunConfig(train_distribute=strategy, save_summary_steps=None)
    estimator = Estimator(model_fn, tmp_path, config)
    rows = np.repeat(GRADIENTS[:1], 7, axis=0)  # 2 + 2, then 2 + 1
    estimator.train(lambda: stratagem.data.Dataset.from_tensor_slices(rows).batch(2))
    np.testing.assert_allclose(estimator.get_variable_value("w"), START - 0.15 * GRADIENTS[0], rtol=1e-5)


def test_outside_a_model_fn_the_step_is_made_at_once(tmp_path: Path) -> None:
    def model_fn(features: Any, mode: str) -> EstimatorSpec:
        _, loss = weight_and_loss(features)
        return EstimatorSpec(mode, loss=loss, train_op=keras.optimizers.SGD(0.1).minimize(loss))

    trained(tmp_path, model_fn)
    weight, optimizer = keras.Variable(1.0), keras.optimizers.SGD(0.5)
    optimizer.minimize(lambda: weight * 4.0, [weight])
    assert float(weight.value) == -1.0
    with pytest.raises(InputError, match=r"minimize\(loss, variables, tape=tape\)"):
        optimizer.minimize(weight * 2, [weight])
    with pytest.raises(TypeError, match="gate_gradients"):
        optimizer.minimize(lambda: weight * 4.0, [weight], gate_gradients=1)


def test_gradients_are_applied_at_once_outside_a_model_fn() -> None:
    """TensorFlow 2.21 applies them; here nothing happened, without a word."""
    weight, step = keras.Variable([1.0, 2.0]), keras.Variable(0, trainable=False, dtype="int32")
    optimizer = optimizers.GradientDescentOptimizer(0.5, use_locking=True)
    optimizer.apply_gradients([(keras.ops.ones(2), weight)], global_step=step)
    compiled = stratagem.function(lambda: optimizer.apply_gradients([(keras.ops.ones(2), weight)], global_step=step))
    compiled()
    assert (np.asarray(weight.value).tolist(), int(step.value)) == ([0.0, 1.0], 2)

    strategy = stratagem.ParameterServerStrategy()
    coordinator = stratagem.coordinator.ClusterCoordinator(strategy)
    for _ in range(50):
        coordinator.schedule(compiled)
    coordinator.join()
    assert (np.asarray(weight.value).tolist(), int(step.value)) == ([-25.0, -24.0], 52)
    strategy.close()


def test_minimize_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="outside a model_fn"):
        optimizers.GradientDescentOptimizer(0.1).minimize(0.0)
    with pytest.raises(InputError, match="learning_rate is 'fast'"):
        optimizers.AdamOptimizer("fast")

    def unconnected(features: Any, mode: str) -> EstimatorSpec:
        w, _ = weight_and_loss(features)
        loss = keras.ops.sum(features)
        return EstimatorSpec(mode, loss=loss, train_op=keras.optimizers.SGD(0.1).minimize(loss, [w]))

    with pytest.raises(UsageError, match=r"does not depend on any of 1 variable\(s\), w"):
        trained(tmp_path, unconnected)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (optimizers.GradientDescentOptimizer, {}),
        (optimizers.MomentumOptimizer, {"momentum": 0.7, "use_nesterov": True}),
        (optimizers.AdamOptimizer, {"beta1": 0.5, "beta2": 0.7, "epsilon": 0.1}),
        (optimizers.AdagradOptimizer, {"initial_accumulator_value": 2.0}),
        (optimizers.AdadeltaOptimizer, {"rho": 0.5, "epsilon": 0.1}),
        (
            optimizers.ProximalAdagradOptimizer,
            {"initial_accumulator_value": 2.0, "l1_regularization_strength": 0.3, "l2_regularization_strength": 0.2},
        ),
        (optimizers.RMSPropOptimizer, {"decay": 0.5, "momentum": 0.3, "epsilon": 0.1, "centered": True}),
        (
            optimizers.FtrlOptimizer,
            {
                "learning_rate_power": -0.3,
                "initial_accumulator_value": 0.5,
                "l1_regularization_strength": 0.1,
                "l2_regularization_strength": 0.2,
                "l2_shrinkage_regularization_strength": 0.3,
            },
        ),
    ],
)
def test_one_that_is_made_again_does_the_same(kind: type, arguments: dict[str, Any]) -> None:
    def after_two_steps(optimizer: Any) -> np.ndarray:
        weight = keras.Variable(START)
        for gradient in GRADIENTS[:2]:
            optimizer.apply([gradient], [weight])
        return np.asarray(weight.value)

    first = kind(0.25, name="first", **arguments)
    again = kind.from_config(first.get_config())
    assert again.name == "first"
    np.testing.assert_array_equal(after_two_steps(again), after_two_steps(first))
    without = after_two_steps(kind(0.25, **{"momentum": 0.0} if "use_nesterov" in arguments else {}))
    assert not arguments or not np.array_equal(without, after_two_steps(kind(0.25, **arguments)))
