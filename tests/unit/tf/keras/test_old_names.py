"""What objects of Keras 2 took and answered to, and programs still ask of those of Keras 3."""

from __future__ import annotations

from typing import Any

import jax
import keras
import numpy as np
import pytest

import stratagem
import stratagem.tf as tf
from stratagem.core.errors import InputError, UsageError
from stratagem.tf.keras import backend as K

X = np.random.default_rng(0).normal(size=(16, 3)).astype("float32")
Y = X.sum(axis=1, keepdims=True)
FIT: dict[str, Any] = {"batch_size": 8, "shuffle": False, "verbose": 0}


@pytest.mark.parametrize("namespace", ["", ".legacy", ".experimental"])
def test_rates_of_optimizers(namespace: str) -> None:
    optimizers = getattr(tf.keras.optimizers, namespace[1:]) if namespace else tf.keras.optimizers
    optimizer = optimizers.SGD(lr=0.5, momentum=0.9)
    assert float(optimizer.lr) == float(optimizer.learning_rate.numpy()) == 0.5
    optimizer.lr = 0.25
    K.set_value(optimizer.lr, K.get_value(optimizer.lr) / 2)
    assert optimizer.get_config()["learning_rate"] == 0.125
    assert float(optimizers.Adam().lr) == pytest.approx(1e-3)
    assert float(optimizers.Adam(0.1).lr) == pytest.approx(0.1)


def test_decay_is_that_of_keras_2() -> None:
    weight, optimizer = keras.Variable(0.0), tf.keras.optimizers.legacy.SGD(1.0, decay=0.5)
    moved = []
    for _ in range(3):
        before = float(weight.value)
        optimizer.apply_gradients([(np.float32(1), weight)])
        moved.append(before - float(weight.value))
    np.testing.assert_allclose(moved, [1, 1 / 1.5, 1 / 2], rtol=1e-6)
    assert optimizer.iterations.numpy() == 3
    with pytest.raises(InputError, match="a learning rate that is a schedule"):
        tf.keras.optimizers.SGD(tf.keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.9), decay=0.5)
    with pytest.raises(UsageError, match="make the optimizer with a number"):
        K.set_value(optimizer.lr, 0.1)
    again = tf.keras.optimizers.SGD.from_config(optimizer.get_config())
    assert float(again.learning_rate) == 1.0


@pytest.mark.parametrize("norm", ["clipnorm", "global_clipnorm"])
def test_gradients_are_clipped_twice(norm: str) -> None:
    """Each number to 3 and -3, then their norm to 2, as in `tf.keras.optimizers.legacy`."""
    optimizer: Any = tf.keras.optimizers.legacy.SGD(1.0, clipvalue=3.0, **{norm: 2.0})
    weight = keras.Variable(np.zeros(2, "float32"))
    optimizer.apply_gradients([(np.array([3.0, -40.0], "float32"), weight)])
    np.testing.assert_allclose(weight.value, [-(2**0.5), 2**0.5], rtol=1e-6)
    again = type(optimizer).from_config(optimizer.get_config())
    assert (again.clipvalue, getattr(again, norm)) == (3.0, 2.0)
    with pytest.raises(ValueError, match="Only one of"):
        tf.keras.optimizers.SGD(clipnorm=1.0, global_clipnorm=1.0)


def test_weights_of_an_optimizer() -> None:
    weight, other = keras.Variable(1.0), keras.Variable(1.0)
    first, second = tf.keras.optimizers.Adam(0.1), tf.keras.optimizers.Adam(0.1)
    first.apply_gradients([(np.float32(1), weight)])
    second.build([other])
    second.set_weights(first.get_weights())
    assert [float(v) for v in second.weights] == [float(v) for v in first.variables]


def test_minimize() -> None:
    weight, optimizer = keras.Variable(3.0), tf.keras.optimizers.SGD(0.5)

    @stratagem.function
    def with_tape() -> None:
        with stratagem.GradientTape() as tape:
            loss = weight * weight
        optimizer.minimize(loss, [weight], tape=tape)

    @stratagem.function
    def of_function() -> None:
        optimizer.minimize(lambda: weight * 4.0, lambda: [weight])

    with_tape()
    assert float(weight.value) == 0.0
    of_function()
    assert float(weight.value) == -2.0
    with pytest.raises(InputError, match=r"minimize\(loss, variables, tape=tape\)"):
        optimizer.minimize(weight * 2, [weight])


@pytest.mark.parametrize("inner", [1.0, 3e38], ids=["finite", "overflows"])
def test_a_scaled_loss(inner: float) -> None:
    """Gradients between the two calls are those of the loss itself, and are applied as they are."""
    weight = keras.Variable(2.0)
    optimizer = tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD(0.5), initial_scale=1024.0)
    optimizer.build([weight])

    @stratagem.function
    def step() -> Any:
        with stratagem.GradientTape() as tape:
            scaled = optimizer.get_scaled_loss(weight * inner)
        gradients = optimizer.get_unscaled_gradients(tape.gradient(scaled, [weight]))
        optimizer.apply_gradients(zip(gradients, [weight], strict=True))
        return gradients[0]

    finite = inner == 1.0
    assert float(step()) == (1.0 if finite else np.inf)
    assert float(weight.value) == (1.5 if finite else 2.0)
    assert float(optimizer.dynamic_scale.value) == float(optimizer.loss_scale) == (1024 if finite else 512)


class Total(tf.keras.metrics.Metric):
    """A metric as in Keras 2: weights named first, `reset_states`."""

    def __init__(self, name: str = "total") -> None:
        super().__init__(name=name)
        self.total = self.add_weight("total", initializer="zeros")
        self.resets = 0

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.total.assign_add(tf.keras.ops.sum(y_pred))

    def result(self) -> Any:
        return self.total

    def reset_states(self) -> None:
        self.resets += 1
        super().reset_state()


def test_metrics_begin_anew_by_both_names() -> None:
    mean, total = tf.keras.metrics.Mean(), Total()
    mean.update_state([1.0, 3.0])
    assert mean.result().numpy() == 2.0
    mean.reset_states()
    assert mean.result().numpy() == 0.0
    total.update_state(0, [1.0, 3.0])
    total.reset_state()
    assert (total.resets, float(total.result())) == (1, 0.0)


class Named(tf.keras.metrics.Metric):
    """A metric that gives its name and dtype by their places."""

    def __init__(self, *by_place: Any, **by_name: Any) -> None:
        super().__init__(*by_place, **by_name)

    def result(self) -> Any:
        return 0.0


class NamedMore(Named):
    pass


@pytest.mark.parametrize("metric", [Named, NamedMore])
@pytest.mark.parametrize(
    ("by_place", "by_name"),
    [
        (("hits", "float64"), {}),
        (("hits",), {"dtype": "float64"}),
        (("float64", "hits"), {}),  # as in Keras 3
        ((tf.float64, "hits"), {}),
        ((), {"name": "hits", "dtype": "float64"}),
    ],
)
def test_metrics_of_ones_own_are_named_first(metric: Any, by_place: Any, by_name: Any) -> None:
    made = metric(*by_place, **by_name)
    assert (made.name, made.dtype) == ("hits", "float64")


def test_metrics_have_weights() -> None:
    mean = tf.keras.metrics.Mean()
    mean.update_state([1.0, 3.0])
    assert [float(weight) for weight in mean.weights] == [4.0, 2.0]

    class Weighted(tf.keras.metrics.Mean):
        def __init__(self) -> None:
            super().__init__()
            self.weights = [0.5, 0.5]  # as a program for Keras 3 may

    assert Weighted().weights == [0.5, 0.5]


def test_metrics_without_a_name_are_called_as_their_class() -> None:
    keras.utils.clear_session()  # other modules have objects of this name
    assert (Named().name, Named(None, None).dtype) == ("named", "float32")


class Scaled(tf.keras.layers.Layer):
    def build(self, shape: Any) -> None:
        self.scale = self.add_weight("scale", shape=(shape[-1],), initializer="ones")
        self.shift = self.add_weight("shift", (shape[-1],), initializer="zeros")

    def call(self, inputs: Any) -> Any:
        return inputs * self.scale + self.shift


class OldStep(tf.keras.Model):
    """A step as in Keras 2 up to 2.12."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            outputs = self(x, training=True)
            loss = self.compiled_loss(y, outputs, regularization_losses=self.losses)
        self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
        self.compiled_metrics.update_state(y, outputs)
        return {metric.name: metric.result() for metric in self.metrics}


def fitted(kind: type[Any], replicas: int | None) -> list[Any]:
    keras.utils.set_random_seed(1)
    strategy = stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas or 1)])
    with strategy.scope():
        inputs = tf.keras.Input((3,))
        outputs = tf.keras.layers.Dense(1, kernel_regularizer="l2")(Scaled()(inputs))
        model = kind(inputs, outputs)
        model.compile(tf.keras.optimizers.Adam(lr=0.1), "mse", metrics=["mae"])
    history = model.fit(X, Y, workers=4, use_multiprocessing=False, **FIT).history
    return [history, model.get_weights()]


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_step_of_keras_2_gives_the_numbers_of_keras_3(replicas: int) -> None:
    expected = fitted(tf.keras.Model, 1)
    found = fitted(OldStep, replicas)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), found, expected)


@pytest.mark.parametrize("third", [(["mae"],), (["mae"], [2.0]), ([2.0], ["mae"]), (None, [2.0]), ([2.0],)])
def test_arguments_of_compile_in_the_old_order(third: Any) -> None:
    """Third were the metrics, fourth the weights of losses."""
    model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse", *third, run_eagerly=None, experimental_run_tf_function=False)
    loss, *metrics = model.evaluate(X, Y, verbose=0) if ["mae"] in third else [model.evaluate(X, Y, verbose=0)]
    weight = 2.0 if [2.0] in third else 1.0
    assert loss == pytest.approx(weight * np.mean((model.predict(X, verbose=0) - Y) ** 2), rel=1e-5)
    assert len(metrics) == (["mae"] in third)


def test_a_model_of_no_strategy_takes_our_datasets() -> None:
    def trained(x: Any, y: Any = None, **arguments: Any) -> list[Any]:
        keras.utils.set_random_seed(1)
        model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        history = model.fit(x, y, epochs=2, verbose=0, **arguments).history
        return [history["loss"], model.get_weights()]

    pairs = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    expected = trained(X, Y, batch_size=8, shuffle=False, validation_data=(X, Y))
    for found in (
        trained(pairs, validation_data=pairs),
        trained(tf.keras.utils.experimental.DatasetCreator(lambda _: pairs), validation_data=(X, Y), steps_per_epoch=2),
    ):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found, expected)


def test_a_model_without_metrics_has_none() -> None:
    model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.compiled_metrics.update_state(Y, Y)
    assert model.compiled_metrics.metrics == []


def test_reductions() -> None:
    for name, value in {"NONE": [1.0, 4.0], "SUM": 5.0, "SUM_OVER_BATCH_SIZE": 2.5, "AUTO": 2.5}.items():
        loss = tf.keras.losses.MeanSquaredError(reduction=getattr(tf.keras.losses.Reduction, name))
        assert loss([[1.0], [2.0]], [[0.0], [0.0]]).tolist() == value
    assert tf.keras.losses.Reduction.NONE in tf.keras.losses.Reduction.all()


class Descent(tf.keras.optimizers.Optimizer):
    """An optimizer as programs wrote it for Keras 2.11."""

    def __init__(self, learning_rate: Any = 0.5, name: str = "Descent") -> None:
        super().__init__(name)
        self._learning_rate = self._build_learning_rate(learning_rate)

    def build(self, var_list: Any) -> None:
        super().build(var_list)

    def update_step(self, gradient: Any, variable: Any) -> None:
        variable.assign_sub(gradient * tf.cast(self.learning_rate, gradient.dtype))


@pytest.mark.parametrize("rate", [0.25, tf.keras.optimizers.schedules.ExponentialDecay(0.25, 1, 1.0)])
def test_optimizers_written_for_keras_2(rate: Any) -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        optimizer = Descent(rate)
        model = tf.keras.Sequential(
            [tf.keras.Input((1,)), tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")]
        )
        model.compile(optimizer, "mse")
    model.fit(np.ones((4, 1)), np.zeros((4, 1)), batch_size=4, verbose=0)
    assert float(model.layers[0].kernel.numpy()[0, 0]) == 0.5
    assert (optimizer.name, float(optimizer.learning_rate)) == ("Descent", 0.25)


class Noise(tf.keras.layers.Layer):
    """As variational autoencoders of Keras 2 draw, without a generator of seeds."""

    def call(self, x: Any) -> Any:
        return (
            x + K.random_normal(shape=(tf.shape(x)[0], 2)) + 0 * K.random_uniform((2,)) + 0 * K.truncated_normal((2,))
        )


@pytest.mark.parametrize("replicas", [0, 2])
def test_draws_of_a_layer_are_others_at_each_step(replicas: int) -> None:
    if replicas:
        with tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"]).scope():
            model = tf.keras.Sequential([Noise()])
            model.compile("sgd", "mse")
    else:
        model = tf.keras.Sequential([Noise()])
        model.compile("sgd", "mse")
    zeros = np.zeros((200, 2), "float32")
    losses = [model.evaluate(zeros, zeros, batch_size=200, verbose=0) for _ in range(2)]
    assert losses[0] != losses[1]
    np.testing.assert_allclose(losses, [1.0, 1.0], atol=0.3)


class Clipping(tf.keras.optimizers.SGD):
    """An optimizer that clips where gradients are applied, as those of BERT do."""

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        gradients, variables = zip(*grads_and_vars, strict=True)
        gradients, _ = tf.clip_by_global_norm(gradients, 1.0)
        return super().apply_gradients(zip(gradients, variables, strict=True), *args, **kwargs)


class ClippingMore(Clipping):
    pass


class Summing(tf.keras.optimizers.SGD):
    """An optimizer that adds up two gradients before it applies them, and may count in a variable of others."""

    def __init__(self, learning_rate: float, outside: Any = None) -> None:
        super().__init__(learning_rate)
        self.sums: Any = None
        object.__setattr__(self, "outside", outside)

    def build(self, variables: Any) -> None:
        super().build(variables)
        if self.sums is None:
            self.sums = [tf.Variable(tf.zeros_like(variable), trainable=False) for variable in variables]

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        gradients, variables = zip(*grads_and_vars, strict=True)
        going_on = tf.cast(self.iterations % 2 == 1, tf.float32)
        for total, gradient in zip(self.sums, gradients, strict=True):
            total.assign(going_on * total + gradient)
        if self.outside is not None:
            self.outside.assign_add(1.0)
        gradients = [going_on * total for total in self.sums]
        return super().apply_gradients(zip(gradients, variables, strict=True), *args, **kwargs)


def line(strategy: Any, optimizer: Any) -> Any:
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1, kernel_initializer="zeros")])
        model.compile(optimizer, "mse")
    return model


def strategy_of(replicas: int) -> Any:
    devices = [f"CPU:{i}" for i in range(replicas)]
    return tf.distribute.MirroredStrategy(devices) if replicas else tf.distribute.get_strategy()


TIMES = np.array([[1.0], [2.0], [3.0], [4.0]], "float32")


@pytest.mark.parametrize("replicas", [0, 1, 2])
@pytest.mark.parametrize("optimizer", [Clipping, ClippingMore])
def test_fit_calls_an_apply_gradients_of_the_programs_own(replicas: int, optimizer: Any) -> None:
    model = line(strategy_of(replicas), optimizer(0.5))
    history = model.fit(TIMES, 2 * TIMES, batch_size=4, shuffle=False, epochs=3, verbose=0)
    # TensorFlow 2.21, with tf_keras and with Keras 3, on one device.
    np.testing.assert_allclose(history.history["loss"], [30.0, 16.27610969543457, 6.727132797241211], rtol=1e-6)
    np.testing.assert_allclose(model.layers[0].kernel.numpy(), [[1.4244091510772705]], rtol=1e-6)
    assert int(model.optimizer.iterations) == 3


def test_a_loop_sums_gradients_after_an_apply_gradients_of_the_programs_own() -> None:
    strategy = strategy_of(2)
    model = line(strategy, Clipping(0.5))

    def step(x: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(tf.keras.losses.mse(2 * x, model(x)), global_batch_size=4)
        model.optimizer.apply_gradients(zip(tape.gradient(loss, model.weights), model.weights, strict=True))

    for batch in strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(TIMES).batch(4)):
        strategy.run(step, args=(batch,))
    # Each replica's gradient is clipped to a norm of 1: (-5, -3) and (-25, -7).
    expected = 0.5 * np.array([5 / 34**0.5 + 25 / 674**0.5, 3 / 34**0.5 + 7 / 674**0.5])
    np.testing.assert_allclose([weight.item() for weight in model.get_weights()], expected, rtol=1e-6)


@pytest.mark.parametrize("replicas", [0, 2])
def test_an_own_apply_gradients_keeps_sums_from_step_to_step(replicas: int) -> None:
    model = line(strategy_of(replicas), Summing(0.01))
    history = model.fit(TIMES, 2 * TIMES, batch_size=4, shuffle=False, epochs=3, verbose=0)
    # The gradient of the first two steps is (-30, -10), and both are applied at the second.
    after = float(np.mean((1.4 * TIMES - 0.2) ** 2))
    np.testing.assert_allclose(history.history["loss"], [30.0, 30.0, after], rtol=1e-6)


@pytest.mark.parametrize("replicas", [0, 2])
def test_an_own_apply_gradients_that_changes_what_the_optimizer_does_not_hold_is_refused(replicas: int) -> None:
    model = line(strategy_of(replicas), Summing(0.5, outside=tf.Variable(0.0)))
    with pytest.raises(InputError, match="changed a variable that is not one of the optimizer's"):
        model.fit(TIMES, 2 * TIMES, batch_size=4, verbose=0)


def test_a_method_of_older_optimizers_that_nothing_calls_is_told() -> None:
    with pytest.warns(UserWarning, match="Older has a _resource_apply_dense, which nothing calls"):

        class Older(tf.keras.optimizers.legacy.SGD):  # pyright: ignore[reportUnusedClass]
            def _resource_apply_dense(self, grad: Any, var: Any) -> None:
                raise AssertionError
