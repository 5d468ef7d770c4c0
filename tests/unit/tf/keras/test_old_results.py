"""Metrics of models as in Keras 2: numbers of TensorFlow 2.21 with tf_keras."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

import stratagem.tf as tf

X = np.ones((8, 1), "float32")


def two_outputs(strategy: Any, *, named: bool = False, **options: Any) -> Any:
    """Return a model whose outputs are the input times 2, `z`, and times 3, `a`."""
    with strategy.scope():
        x = tf.keras.layers.Input((1,))
        z, a = (
            tf.keras.layers.Dense(1, kernel_initializer=tf.constant_initializer(number), use_bias=False, name=name)(x)
            for name, number in (("z", 2.0), ("a", 3.0))
        )
        model = tf.keras.Model(x, {"z": z, "a": a} if named else [z, a])
        model.compile(tf.keras.optimizers.SGD(0.0), "mse", **options)
    return model


@pytest.fixture(params=[1, 2])
def strategy(request: pytest.FixtureRequest) -> Any:
    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(request.param)])


def test_a_list_of_metrics_is_for_each_output_and_results_have_names(strategy: Any) -> None:
    model = two_outputs(strategy, metrics=["mae", tf.keras.metrics.MeanSquaredError(name="square")])
    results = model.evaluate(X, [X, X], verbose=0)
    assert model.metrics_names == ["loss", "z_loss", "a_loss", "z_mae", "z_square", "a_mae", "a_square"]
    assert results == [5.0, 1.0, 4.0, 1.0, 1.0, 2.0, 4.0]
    assert model.evaluate(X, [X, X], verbose=0, return_dict=True)["a_mae"] == 2.0
    assert model.test_on_batch(X, [X, X]) == [5.0, 1.0, 4.0, 1.0, 1.0, 2.0, 4.0]


@pytest.mark.parametrize("metric", ["mae", tf.keras.metrics.MeanAbsoluteError(name="mae"), tf.keras.losses.mae])
def test_one_metric_needs_no_list(strategy: Any, metric: Any) -> None:
    model = two_outputs(strategy, metrics=metric)
    assert model.evaluate(X, [X, X], verbose=0) == [5.0, 1.0, 4.0, 1.0, 2.0]


def test_one_loss_takes_a_weight_for_each_output(strategy: Any) -> None:
    model = two_outputs(strategy, loss_weights=[1.0, 0.5])
    assert model.evaluate(X, [X, X], verbose=0) == [3.0, 1.0, 4.0]


def test_outputs_by_name_have_all_metrics_too(strategy: Any) -> None:
    model = two_outputs(strategy, named=True, metrics=["mae"], weighted_metrics=["mse"])
    results = model.evaluate(X, {"z": X, "a": X}, verbose=0, return_dict=True)
    assert {name: results[name] for name in ("z_mae", "a_mae", "z_mse", "a_mse")} == {
        "z_mae": 1.0,
        "a_mae": 2.0,
        "z_mse": 1.0,
        "a_mse": 4.0,
    }


def test_names_and_results_of_one_output_fit(strategy: Any) -> None:
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Input((1,)), tf.keras.layers.Dense(1, kernel_initializer="ones")])
        model.compile("sgd", "mse", metrics=["mae", "mape"])
    results = model.evaluate(X, 2 * X, verbose=0)  # first: Keras builds metrics then
    found = dict(zip(model.metrics_names, results, strict=True))
    assert found == {"loss": 1.0, "mae": 1.0, "mape": 50.0}


class Own(tf.keras.Model):
    """A model whose step counts its loss itself, or leaves that to Keras."""

    counts = False

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            outputs = self(x, training=True)
            loss = self.compute_loss(x, y, outputs)
        self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
        if self.counts:
            self.metrics[0].update_state(loss * 10)
        return self.compute_metrics(x, y, outputs)


@pytest.mark.parametrize(("counts", "expected"), [(False, 4.0), (True, 40.0)])
def test_a_step_of_ones_own_counts_its_loss(strategy: Any, counts: bool, expected: float) -> None:
    with strategy.scope():
        x = tf.keras.layers.Input((1,))
        model = Own(x, tf.keras.layers.Dense(1, kernel_initializer="ones")(x))
        model.counts = counts
        model.compile(tf.keras.optimizers.SGD(0.0), "mse", metrics=["mae"])
    assert model.fit(X, 3 * X, batch_size=4, verbose=0).history == {"loss": [expected], "mae": [2.0]}


class CountingNothing(keras.Model):
    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((y - self(x, training=True)) ** 2)
        self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
        return {"mine": loss}


def test_metrics_of_compile_need_not_be_counted_in_a_step_of_ones_own(strategy: Any) -> None:
    with strategy.scope():
        x = tf.keras.layers.Input((2,))
        model = CountingNothing(x, tf.keras.layers.Dense(1, kernel_initializer="ones")(x))
        model.compile(tf.keras.optimizers.SGD(0.01), "mse", metrics=["mae"])
    x, y = np.arange(8, dtype="float32").reshape(4, 2), np.ones((4, 1), "float32")
    history = model.fit(x, y, shuffle=False, batch_size=2, epochs=2, verbose=0, validation_data=(x, y)).history
    expected = {"mine": [81.3856, 3.5304], "val_loss": [4.5781, 0.4942], "val_mae": [2.0840, 0.6159]}  # tf-keras
    assert history.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(history[name], values, atol=1e-4)
    np.testing.assert_allclose(model.evaluate(x, y, verbose=0), [0.4942, 0.6159], atol=1e-4)


def test_layers_are_built_where_the_strategy_of_the_model_is_current(strategy: Any) -> None:
    seen = []

    class Scaling(keras.layers.Layer):
        def build(self, input_shape: Any) -> None:
            seen.append(tf.distribute.get_strategy())
            self.factor = tf.Variable(2.0)

        def call(self, inputs: Any) -> Any:
            seen.append(tf.distribute.get_strategy())
            return self.factor * inputs

    with strategy.scope():
        model = tf.keras.Sequential([Scaling()])
    model.compile("sgd", "mse")
    assert model.evaluate(X, X, verbose=0) == 1.0
    assert set(map(id, seen)) == {id(strategy)}
    made = [*model.variables, *(variable for metric in model.metrics for variable in metric.variables)]
    assert len(made) > 2
    assert all(strategy.extended.variable_created_in_scope(variable) for variable in made)
    other = tf.Variable(1.0)
    assert not strategy.extended.variable_created_in_scope(other)
    assert tf.distribute.get_strategy().extended.variable_created_in_scope(other)


class Last(tf.keras.metrics.Metric):
    """A metric whose result is a variable of its own: the largest output of the last batch."""

    def __init__(self) -> None:
        super().__init__(name="last")
        self.largest = self.add_weight(name="largest", initializer="zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.largest.assign(tf.reduce_max(y_pred))

    def result(self) -> Any:
        return self.largest


def test_a_result_may_be_a_variable(strategy: Any) -> None:
    with strategy.scope():
        model = tf.keras.Sequential(
            [tf.keras.layers.Input((1,)), tf.keras.layers.Dense(1, kernel_initializer=tf.constant_initializer(2.0))]
        )
        model.compile(tf.keras.optimizers.SGD(0.0), "mse", metrics=[Last()])
    history = model.fit(3 * X, X, epochs=1, verbose=0, validation_data=(X, X)).history
    # As in TensorFlow, the value of a metric's variable is the sum of the replicas' values.
    replicas = strategy.num_replicas_in_sync
    assert (history["last"], history["val_last"]) == ([6.0 * replicas], [2.0 * replicas])
    assert model.evaluate(X, X, verbose=0) == [1.0, 2.0 * replicas]


def test_metrics_that_are_named_as_classes_have_the_names_of_keras_2(strategy: Any) -> None:
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, activation="sigmoid")])
        metrics = ["AUC", "Precision", "mse", "MeanSquaredError", "accuracy", "BinaryAccuracy"]
        model.compile("sgd", "binary_crossentropy", metrics=metrics)
    history = model.fit(X, np.arange(8) % 2, batch_size=4, verbose=0).history
    assert set(history) == {"loss", "auc", "precision", "mse", "mean_squared_error", "accuracy", "binary_accuracy"}
    assert model.metrics_names == [
        "loss",
        "auc",
        "precision",
        "mse",
        "mean_squared_error",
        "accuracy",
        "binary_accuracy",
    ]
