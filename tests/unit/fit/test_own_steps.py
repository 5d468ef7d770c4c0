"""Steps as in TensorFlow, `train_step(self, data)`, held against Keras's own and against JAX alone."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest

import stratagem
from stratagem.core.errors import UsageError
from stratagem.strategy.base import one_replica

X = np.random.default_rng(0).normal(size=(22, 3)).astype("float32")
Y = X.sum(axis=1, keepdims=True)
FIT: dict[str, Any] = {"batch_size": 8, "epochs": 2, "shuffle": False, "verbose": 0}


def scope(replicas: int | None) -> Any:
    one_replica()  # Keras knows these steps as soon as there has been a strategy
    if replicas is None:
        return contextlib.nullcontext()
    return stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)]).scope()


class Plain(keras.Model):
    """Keras's own steps. Nothing is built before the first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = keras.layers.Dense(4, activation="relu", activity_regularizer="l2")
        self.outer = keras.layers.Dense(1, kernel_regularizer="l2")
        self.normalization = keras.layers.BatchNormalization(synchronized=True)

    def call(self, x: Any, training: bool = False) -> Any:
        return self.outer(self.normalization(self.hidden(x), training=training))


class AsInTensorFlow(Plain):
    """The same by hand, as in keras.io's guide."""

    def _updated(self, loss: Any, y: Any, outputs: Any, sample_weight: Any) -> dict[str, Any]:
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss, sample_weight=outputs.shape[0])
            else:
                metric.update_state(y, outputs, sample_weight=sample_weight)
        return {metric.name: metric.result() for metric in self.metrics}

    def train_step(self, data: Any) -> Any:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        with stratagem.GradientTape() as tape:
            outputs = self(x, training=True)
            loss = self.compute_loss(x=x, y=y, y_pred=outputs, sample_weight=sample_weight)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return self._updated(loss, y, outputs, sample_weight)

    def test_step(self, data: Any) -> Any:
        x, y = data  # of two: there are no weights
        outputs = self(x, training=False)
        return self._updated(self.compute_loss(x=x, y=y, y_pred=outputs), y, outputs, None)

    def predict_step(self, data: Any) -> Any:
        return self(data, training=False)


class EndsWithKeras(Plain):
    seen = keras.Variable(0, dtype="int32", trainable=False, aggregation="only_first_replica")

    def train_step(self, data: Any) -> Any:
        self.seen.assign_add(1)
        return super().train_step(data)

    def test_step(self, data: Any) -> Any:
        return super().test_step(data)

    def predict_step(self, data: Any) -> Any:
        return super().predict_step(data)


def outcome(kind: type[keras.Model], replicas: int | None, **arguments: Any) -> list[Any]:
    keras.utils.set_random_seed(1)
    with scope(replicas):
        model = kind()
        model.compile(keras.optimizers.Adam(0.01), "mse", weighted_metrics=["mae"], **arguments)
    history = model.fit(X, Y, validation_data=(X[:7], Y[:7]), sample_weight=np.arange(22.0), **FIT).history
    on_batch = model.train_on_batch(X[:8], Y[:8])
    evaluated = model.evaluate(X, Y, batch_size=8, verbose=0)
    return [history, on_batch, evaluated, model.predict(X, batch_size=8, verbose=0), model.get_weights()]


def check(found: list[Any], expected: list[Any]) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5), found, expected)


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    one_replica()
    return outcome(Plain, None)


@pytest.mark.parametrize("replicas", [2, *(pytest.param(each, marks=pytest.mark.thorough) for each in (None, 1, 4))])
def test_a_step_by_hand_gives_the_numbers_of_keras(replicas: int | None, expected: list[Any]) -> None:
    check(outcome(AsInTensorFlow, replicas), expected)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("replicas", "arguments"),
    [pytest.param(None, {"run_eagerly": True}, marks=pytest.mark.thorough), (2, {"steps_per_execution": 2})],
)
def test_eager_and_several_at_once(replicas: int | None, arguments: Any, expected: list[Any]) -> None:
    check(outcome(AsInTensorFlow, replicas, **arguments)[1:], expected[1:])


@pytest.mark.thorough
@pytest.mark.parametrize("replicas", [None, 2])
def test_a_step_that_ends_with_keras_own(replicas: int | None, expected: list[Any]) -> None:
    EndsWithKeras.seen.assign(0)
    check(outcome(EndsWithKeras, replicas), expected)
    assert int(EndsWithKeras.seen) == 7


class Two(keras.Model):
    """Two networks with an optimizer each, as a GAN has them: no `call`, metrics and `compile` of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        self.second = keras.Sequential([keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
        self.first_mean = keras.metrics.Mean(name="first")
        self.second_mean = keras.metrics.Mean(name="second")

    def compile(self, first_optimizer: Any, second_optimizer: Any) -> None:
        super().compile()
        self.first_optimizer = first_optimizer
        self.second_optimizer = second_optimizer

    @property
    def metrics(self) -> list[Any]:
        return [self.first_mean, self.second_mean]

    def train_step(self, data: Any) -> Any:
        x = data
        with stratagem.GradientTape() as tape:
            first = keras.ops.mean((self.first(x) - 1.0) ** 2)
        variables = self.first.trainable_variables
        self.first_optimizer.apply_gradients(zip(tape.gradient(first, variables), variables, strict=True))
        with stratagem.GradientTape() as tape:
            second = keras.ops.mean((self.second(x) - self.first(x)) ** 2)
        variables = self.second.trainable_variables
        self.second_optimizer.apply_gradients(zip(tape.gradient(second, variables), variables, strict=True))
        self.first_mean.update_state(first)
        self.second_mean.update_state(second)
        return {"first": self.first_mean.result(), "second": self.second_mean.result(), "last": second}


def two_by_hand(steps: int) -> tuple[list[Any], list[float]]:
    a, b, momentum, losses = np.ones((3, 1), "float32"), np.zeros((3, 1), "float32"), 0.0, []
    for step in range(steps):
        x = X[step * 8 % 16 :][:8]
        slope: Any = jax.grad(lambda a, x=x: ((x @ a - 1) ** 2).mean())(a)
        momentum = 0.5 * momentum - 0.1 * slope
        a = a + momentum
        loss, slope = jax.value_and_grad(lambda b, x=x, a=a: ((x @ b - x @ a) ** 2).mean())(b)
        b = b - 0.2 * slope
        losses.append(float(loss))
    return [a, b], losses


@pytest.mark.parametrize("replicas", [None, 2])
def test_two_optimizers_and_no_call(replicas: int | None) -> None:
    with scope(replicas):
        model = Two()
        model.compile(keras.optimizers.SGD(0.1, momentum=0.5), keras.optimizers.SGD(0.2))
    history = model.fit(X[:16], **FIT).history
    weights, losses = two_by_hand(4)
    check([model.first.get_weights()[0], model.second.get_weights()[0]], weights)
    np.testing.assert_allclose(history["second"], [np.mean(losses[:2]), np.mean(losses[2:])], rtol=1e-4)
    np.testing.assert_allclose(history["last"], losses[1::2], rtol=1e-4)
    assert [int(o.iterations) for o in (model.first_optimizer, model.second_optimizer)] == [4, 4]
    first: Any = model.first_optimizer
    first.learning_rate = 0.0  # seen by the next step
    first.momentums[0].assign(np.zeros((3, 1)))
    model.fit(X[:16], **FIT)
    np.testing.assert_allclose(model.first.get_weights()[0], weights[0], rtol=1e-4)


class Interrupts(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch == 1 and int(self.model.first_optimizer.iterations) >= 3:
            raise KeyboardInterrupt


def test_a_second_optimizer_is_in_a_backup(tmp_path: Path) -> None:
    def trained(*callbacks: Any) -> list[Any]:
        model = Two()
        model.compile(keras.optimizers.SGD(0.1, momentum=0.5), keras.optimizers.Adam(0.2))
        model.fit(X[:16], callbacks=list(callbacks), **FIT)
        return [*model.get_weights(), *[variable.numpy() for variable in model.second_optimizer.variables]]

    expected = trained()
    backup = stratagem.callbacks.BackupAndRestore(tmp_path, save_freq=1)
    with pytest.raises(KeyboardInterrupt):
        trained(backup, Interrupts())
    found = trained(stratagem.callbacks.BackupAndRestore(tmp_path, save_freq=1))
    jax.tree.map(np.testing.assert_array_equal, found, expected)


class TakesMore(Plain):
    def train_step(self, state: Any, data: Any, more: Any) -> Any:
        raise AssertionError(more)


def test_a_step_of_another_kind_is_explained() -> None:
    with pytest.raises(UsageError, match="takes 3 arguments beside self"):
        outcome(TakesMore, 1)


class ReturnsItsLoss(Plain):
    """Steps that return a value under the name of a tracker that nobody updates."""

    def _computed(self, data: Any) -> Any:
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        return keras.ops.mean(keras.ops.square(self(x, training=False) - y))

    def train_step(self, data: Any) -> Any:
        with stratagem.GradientTape() as tape:
            loss = self._computed(data)
        gradients = tape.gradient(loss, self.trainable_variables)
        pairs = [(g, v) for g, v in zip(gradients, self.trainable_variables, strict=True) if g is not None]
        self.optimizer.apply_gradients(pairs)
        return {"loss": loss}

    def test_step(self, data: Any) -> Any:
        return {"loss": self._computed(data)}


class ReturnsItsLossFromState(keras.Sequential):
    """The same, as Keras has steps on JAX."""

    def train_step(self, state: Any, data: Any) -> Any:
        _, state = super().train_step(state, data)
        return {"loss": keras.ops.mean(data[1])}, state

    def test_step(self, state: Any, data: Any) -> Any:
        _, state = super().test_step(state, data)
        return {"loss": keras.ops.mean(data[1])}, state


class Notes(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.batches: list[float] = []
        self.epochs: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.batches.append(logs["loss"])

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epochs.append(logs["loss"])


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "more",
    [{}, {"steps_per_execution": 2}, pytest.param({"run_eagerly": True}, marks=pytest.mark.thorough)],
    ids=str,
)
@pytest.mark.parametrize("replicas", [None, 1, 2])
def test_a_step_reports_the_loss_that_it_returns(replicas: int | None, more: dict[str, Any]) -> None:
    """As TensorFlow, the last step's. Keras takes a tracker of that name instead, which is 0."""
    keras.utils.set_random_seed(0)
    with scope(replicas):
        model = ReturnsItsLoss()
        model.compile(keras.optimizers.SGD(0.1), "mse", **more)
    notes = Notes()
    history = model.fit(X[:16], Y[:16], callbacks=[notes], validation_data=(X[16:], Y[16:]), **FIT).history

    def error(x: np.ndarray, y: np.ndarray) -> float:
        return float(np.mean(np.square(np.asarray(model(x)) - y)))

    assert history["loss"] == notes.epochs
    assert notes.epochs == (notes.batches if "steps_per_execution" in more else notes.batches[1::2])
    assert min(notes.batches) > 0.05
    assert history["val_loss"][-1] == pytest.approx(error(X[16:], Y[16:]), rel=1e-5)
    assert model.evaluate(X[:8], Y[:8], verbose=0) == pytest.approx(error(X[:8], Y[:8]), rel=1e-5)
    assert model.test_on_batch(X[:8], Y[:8]) == pytest.approx(error(X[:8], Y[:8]), rel=1e-5)
    expected = error(X[:8], Y[:8])
    assert model.train_on_batch(X[:8], Y[:8]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_step_of_state_reports_the_loss_that_it_returns(replicas: int) -> None:
    with scope(replicas):
        model = ReturnsItsLossFromState([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    history = model.fit(X[:16], Y[:16], **FIT).history
    assert history["loss"] == pytest.approx([Y[8:16].mean()] * 2)
    assert model.evaluate(X[:8], Y[:8], verbose=0) == pytest.approx(Y[:8].mean())


def test_metrics_beside_an_own_loss_are_those_of_the_epoch() -> None:
    class Both(ReturnsItsLoss):
        def train_step(self, data: Any) -> Any:
            loss = self._computed(data)
            for metric in self.metrics:
                if metric.name == "compile_metrics":
                    metric.update_state(data[1], self(data[0]))
            return {"loss": loss, **{k: v for k, v in self.get_metrics_result().items() if k != "loss"}}

    with scope(2):
        model = Both()
        model.compile("sgd", "mse", metrics=["mse"])
    history = model.fit(X[:16], Y[:16], **FIT).history
    errors = np.square(np.asarray(model(X[:16])) - Y[:16])
    assert history["loss"] == pytest.approx([errors[8:].mean()] * 2, rel=1e-5)
    assert history["mse"] == pytest.approx([errors.mean()] * 2, rel=1e-5)


@pytest.mark.parametrize("model_class", [Plain, AsInTensorFlow])
def test_a_layer_frozen_between_two_calls_keeps_its_weights(model_class: type[Plain]) -> None:
    with scope(2):
        model = model_class()
        model.compile(keras.optimizers.SGD(0.1), "mse")
    vars(model).pop("_stratagem_trainable_when_compiled", None)  # where this process has loaded stratagem.tf too
    model.fit(X, Y, **FIT)
    loss = model.evaluate(X, Y, verbose=0)
    before = [np.array(variable.value) for variable in model.variables]
    model.hidden.trainable = False  # the variables stand in other groups of Keras's state from here on
    assert model.evaluate(X, Y, verbose=0) == pytest.approx(loss, abs=1e-6)
    kept = [np.array(variable.value) for variable in model.variables]
    np.testing.assert_array_equal([array.sum() for array in kept], [array.sum() for array in before])
    frozen, other = np.array(model.hidden.kernel.value), np.array(model.outer.kernel.value)
    if model_class is AsInTensorFlow:
        model.fit(X, Y, **FIT)
        np.testing.assert_array_equal(model.hidden.kernel.value, frozen)
        assert np.abs(np.array(model.outer.kernel.value) - other).max() > 1e-4
    else:
        with pytest.raises(UsageError, match=r"built for 6 variables, and the model trains 4 now(.|\n)*compile again"):
            model.fit(X, Y, **FIT)
        np.testing.assert_array_equal(model.hidden.kernel.value, frozen)
