"""What models and optimizers had in Keras 2: numbers of TensorFlow 2.21 with tf_keras."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import stratagem.tf as tf
from stratagem.core.errors import InputError
from stratagem.tf.keras import learning_phase

X = np.ones((4, 3), "float32")


def dense(units: int, loss: Any = "mse", strategy: Any = None, **options: Any) -> Any:
    with (strategy or tf.distribute.get_strategy()).scope():
        model = tf.keras.Sequential(
            [tf.keras.layers.Input((3,)), tf.keras.layers.Dense(units, kernel_initializer="ones")]
        )
        model.compile(tf.keras.optimizers.SGD(0.1), loss, **options)
    return model


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("loss", ["mse", tf.keras.losses.MeanSquaredError(), tf.keras.losses.mean_squared_error])
def test_targets_are_broadcast_to_outputs(replicas: int, loss: Any) -> None:
    """TensorFlow's parameter server tutorial: `Dense(10)`, labels of shape (n,), "mse"."""
    strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    model, y = dense(10, loss, strategy, metrics=["mae"]), np.arange(4.0, dtype="float32")
    assert model.evaluate(X, y, verbose=0, return_dict=True) == {"loss": 3.5, "mae": 1.5}
    assert model.fit(X, y, batch_size=4, verbose=0).history == {"loss": [3.5], "mae": [1.5]}
    # The gradient of each column: 2 * mean(3 - y) / 10.
    np.testing.assert_allclose(model.get_weights()[0], np.full((3, 10), 1 - 0.1 * 0.3), rtol=1e-6)


def test_targets_that_are_classes_stay_as_they_are() -> None:
    shapes = []

    def own(y: Any, outputs: Any) -> Any:
        shapes.append(tuple(y.shape))
        return tf.reduce_mean(tf.square(outputs), axis=-1)

    y = np.arange(4)
    sparse = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    assert dense(10, sparse, metrics=["accuracy"]).evaluate(X, y, verbose=0) == pytest.approx([np.log(10), 0.25])
    assert dense(10, own).evaluate(X, y, verbose=0) == pytest.approx(9.0)
    assert set(shapes) == {(4,)}


def test_classes_in_any_shape() -> None:
    """Keras 2 flattens them, and the outputs with them: here outputs of shape (4, 1, 2), targets of shape (4,)."""
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input((3,)),
            tf.keras.layers.Dense(2, kernel_initializer="zeros", bias_initializer=tf.constant_initializer([0.0, 1.0])),
            tf.keras.layers.Reshape((1, 2)),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, metrics=["sparse_categorical_accuracy"])
    expected = [np.log1p(np.e) - 0.75, 0.75]
    for shape in [(4,), (4, 1), (4, 1, 1)]:
        assert model.evaluate(X, np.array([0, 1, 1, 1]).reshape(shape), verbose=0) == pytest.approx(expected)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("shape", [(4, 2), (4, 2, 1), (4, 1, 2, 1)])
def test_classes_lie_as_the_rows_of_outputs(replicas: int, shape: tuple[int, ...]) -> None:
    """A network without pooling has outputs of shape (n, 1, 1, classes), and classes are a column."""
    x = (np.arange(24) % 7 / 7).astype("float32").reshape(4, 1, 2, 3)
    kernel = (np.arange(15) % 4 - 1.5).astype("float32").reshape(3, 5)
    y = np.array([0, 1, 2, 3, 4, 0, 1, 2]).reshape(shape)
    with tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)]).scope():
        model = tf.keras.Sequential([tf.keras.layers.Input((1, 2, 3)), tf.keras.layers.Dense(5)])
        model.set_weights([kernel, np.zeros(5)])
        model.compile(
            tf.keras.optimizers.SGD(0.1), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), ["accuracy"]
        )
    assert model.evaluate(x, y, batch_size=4, verbose=0)[0] == pytest.approx(1.7125201, rel=1e-6)
    model.fit(x, y, batch_size=4, verbose=0)
    np.testing.assert_allclose(
        model.get_weights()[0][0], [-1.5007868, -0.4997804, 0.4993291, 1.494882, -1.493644], rtol=1e-5
    )


def test_the_learning_phase_is_that_of_models_called_without_training() -> None:
    one = np.ones((1, 1), "float32")
    model = tf.keras.Sequential([tf.keras.layers.Input((1,)), tf.keras.layers.Dropout(0.999, seed=1)])
    assert float(model(one)[0, 0]) == 1
    tf.keras.backend.set_learning_phase(True)
    try:
        given = [model(one), model(one, training=False), model(one, False), model.predict(one, verbose=0)]
        # A model within a model does what that does.
        given.append(tf.keras.Sequential([model])(one, training=False))
        assert [float(each[0, 0]) for each in given] == [0, 1, 1, 1, 1]
    finally:
        learning_phase.choose(None)


def test_methods_for_generators() -> None:
    def batches() -> Any:
        while True:
            yield X, np.zeros((4, 1), "float32")

    model = dense(1)
    assert model.evaluate_generator(batches(), 2, workers=1) == pytest.approx(9.0)
    history = model.fit_generator(batches(), 3, 2, 0, validation_data=batches(), validation_steps=1, workers=4)
    assert (history.epoch, int(model.optimizer.iterations.numpy())) == ([0, 1], 6)
    assert model.predict_generator(batches(), steps=2).shape == (8, 1)


def test_half_steps_are_steps() -> None:
    """`steps_per_epoch=len(x) / batch_size` of Keras 2, whose loop runs as long as it has done fewer."""
    data = tf.data.Dataset.from_tensor_slices((X, X[:, :1])).batch(2).repeat()
    for strategy in (None, tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])):
        model = dense(1, strategy=strategy)
        model.fit(data, steps_per_epoch=7 / 2, validation_data=data, validation_steps=np.float64(1.5), verbose=0)
        assert int(model.optimizer.iterations.numpy()) == 4


def test_the_strategy_of_a_model() -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    assert dense(1, strategy=strategy).distribute_strategy is strategy
    assert dense(1).distribute_strategy is tf.distribute.get_strategy()


def test_slots_of_an_optimizer() -> None:
    model = dense(1)
    model.compile(tf.keras.optimizers.Adam(0.1), "mse")
    kernel, bias = model.weights
    with pytest.raises(InputError, match=r"no slot 'm' for .*It has: none"):
        model.optimizer.get_slot(kernel, "m")
    model.fit(X, np.zeros((4, 1), "float32"), batch_size=4, verbose=0)
    # A tenth of the gradients, which are 2 * 3.
    np.testing.assert_allclose(model.optimizer.get_slot(kernel, "m").numpy(), np.full((3, 1), 0.6), rtol=1e-5)
    assert model.optimizer.get_slot(bias, "momentum").numpy() == pytest.approx([0.6])
    assert model.optimizer.get_slot(kernel, "v").shape == (3, 1)
    with pytest.raises(InputError, match=r"no slot 'rms_m' .*It has: momentum, velocity\."):
        model.optimizer.get_slot(kernel, "rms_m")


def test_no_gradients_change_nothing() -> None:
    optimizer = tf.keras.optimizers.SGD(0.1)
    optimizer.apply_gradients(zip([], [], strict=True))
    assert int(optimizer.iterations.numpy()) == 0


def test_arguments_that_said_how_tensorflow_was_to_run() -> None:
    model = dense(1, cloning=False, pss_evaluation_shards=2)
    assert model.evaluate(X, np.zeros((4, 1), "float32"), verbose=0) == pytest.approx(9.0)
    layer = tf.keras.layers.BatchNormalization(momentum=0.5, fused=False)
    assert (layer.momentum, "fused" in layer.get_config()) == (0.5, False)
    assert keras.layers.BatchNormalization.from_config(layer.get_config()).momentum == 0.5


@pytest.mark.parametrize("make", [tf.keras.Input, tf.keras.layers.Input])
def test_a_batch_size_that_replicas_cannot_share(make: Any) -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        assert make((3,), batch_size=4).shape == (4, 3)
        with pytest.raises(InputError, match=r"argument \(5\) must be divisible by the number of replicas \(2\)"):
            make((3,), batch_size=5)
    assert make((3,), 5).shape == (5, 3)


@pytest.mark.parametrize("replicas", [1, 2])
def test_an_optimizer_for_variables_that_come_later(replicas: int) -> None:
    """Adam of Keras 2 (`legacy`): slots of zeros, and the bias correction of the optimizer's own second step."""
    strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    with strategy.scope():
        first, second = tf.Variable(1.0), tf.Variable([2.0, 2.0])
        optimizer = tf.keras.optimizers.legacy.Adam(0.1, epsilon=0.0)

    @tf.function
    def step(variable: Any) -> None:
        def apply() -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(variable * 3.0) / replicas
            optimizer.apply_gradients(zip(tape.gradient(loss, [variable]), [variable], strict=True))

        strategy.run(apply)

    step(first)
    step(second)
    assert first.numpy() == pytest.approx(0.9)
    late = 0.1 * np.sqrt(1 - 0.999**2) / (1 - 0.9**2) * 0.1 / np.sqrt(0.001)
    np.testing.assert_allclose(second.numpy(), np.full(2, 2 - late), rtol=1e-5)
    step(first)  # whose slots are those of the first step
    third = 0.1 * np.sqrt(1 - 0.999**3) / (1 - 0.9**3) * (0.1 + 0.9 * 0.1) / np.sqrt(0.001 + 0.999 * 0.001)
    assert first.numpy() == pytest.approx(0.9 - third, rel=1e-5)
    assert len(optimizer.variables) == 2 + 2 * 2


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_loss_of_a_symbolic_tensor(replicas: int, tmp_path: Path) -> None:
    """Numbers of Keras 2: the loss is in training, in evaluation and in `losses`, and the output is what it was."""
    with tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)]).scope():
        inputs = tf.keras.Input((3,))
        hidden = tf.keras.layers.Dense(2, kernel_initializer="ones", name="hidden")(inputs)
        output = tf.keras.layers.Dense(1, kernel_initializer="ones", name="out")(hidden)
        model = tf.keras.Model(inputs, output)
        model.add_loss(tf.reduce_mean(tf.square(hidden)))
        model.compile(tf.keras.optimizers.SGD(0.1), {"out": "mse"})
    y = np.full((4, 1), 6, "float32")
    assert model.evaluate(X, y, verbose=0) == pytest.approx(9.0)
    model.save(tmp_path / "model.keras")
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    for other in (keras.models.load_model(tmp_path / "model.keras"), clone):
        other.compile("sgd", "mse")
        assert other.evaluate(X, y, verbose=0) == pytest.approx(9.0)
    assert model.fit(X, y, batch_size=4, verbose=0).history["loss"] == pytest.approx([9.0])
    np.testing.assert_allclose(model.get_layer("hidden").kernel.numpy(), np.full((3, 2), 1 - 0.1 * 3.0), rtol=1e-6)
    assert model.predict(X, verbose=0)[0] == pytest.approx(2 * (3 * 0.7 - 0.3), rel=1e-5)


def test_a_loss_that_comes_after_training() -> None:
    inputs = tf.keras.Input((3,))
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, kernel_initializer="ones")(inputs))
    model.compile(tf.keras.optimizers.SGD(0.0), "mse")
    y = np.full((4, 1), 3, "float32")
    assert model.fit(X, y, verbose=0).history["loss"] == pytest.approx([0.0])
    model.add_loss(tf.reduce_sum(model.output, axis=-1) / 2)  # a vector counts by its sum
    assert model.fit(X, y, verbose=0).history["loss"] == pytest.approx([6.0])
    kernel = model.layers[1].kernel
    model.add_loss(lambda: tf.reduce_sum(kernel))
    assert float(model.losses[-1]) == 3.0
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
    assert model.fit(X, y, batch_size=4, verbose=0).history["loss"] == pytest.approx([9.0])
    np.testing.assert_allclose(kernel.numpy(), np.full((3, 1), 1 - 0.1 * (4 / 2 + 1)), rtol=1e-6)
    with pytest.raises(InputError, match=r"add_loss of a functional model was given 1\.0, of type float"):
        model.add_loss(1.0)


def test_a_loss_of_a_call_that_is_none_of_the_model() -> None:
    class Ranked(tf.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = tf.keras.layers.Dense(1, kernel_initializer="ones")

        def call(self, x: Any) -> Any:
            scores = self.dense(x)
            self.add_loss(tf.reduce_mean(scores))
            return scores

        def summary(self) -> None:
            inputs = tf.keras.Input((2,))
            tf.keras.Model(inputs, self.call(inputs)).summary()

    model = Ranked()
    model.summary()
    model.compile(tf.keras.optimizers.SGD(0.0))
    history = model.fit(np.ones((4, 2), "float32"), None, epochs=1, verbose=0)
    assert history.history["loss"] == [2.0]


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize(("policy", "rounds"), [("float32", 2), ("mixed_float16", 3)])  # the first scale is too large
def test_models_that_share_an_optimizer_the_first_of_them_frozen(replicas: int, policy: str, rounds: int) -> None:
    """Keras 2 builds an optimizer when there is something to train; Keras 3 builds it for the first model."""
    tf.keras.mixed_precision.set_global_policy(policy)
    try:
        with tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)]).scope():
            optimizer = tf.keras.optimizers.SGD(0.125, momentum=0.5)
            discriminator = tf.keras.Sequential(
                [tf.keras.layers.Input((1,)), tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")]
            )
            discriminator.trainable = False
            discriminator.compile(optimizer, "mse")
            generator = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
            z = tf.keras.Input((1,))
            combined = tf.keras.Model(z, discriminator(generator(z)))
            combined.compile(optimizer, "mse")
        ones, zeros = np.ones((4, 1), "float32"), np.zeros((4, 1), "float32")
        for _ in range(rounds):
            discriminator.train_on_batch(ones, zeros)
            combined.train_on_batch(ones, zeros)
        assert discriminator.get_weights()[0].tolist() == [[1.0]]
        # The gradient at w is 2 * w: 1 - 0.25 = 0.75, then 0.75 + 0.5 * -0.25 - 0.125 * 1.5 = 0.4375.
        assert generator.get_weights()[0].tolist() == [[0.4375]]
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("method", ["train_on_batch", "fit"])
def test_a_model_trains_what_was_trainable_when_it_was_compiled(replicas: int, method: str) -> None:
    """A GAN: its discriminator is compiled, then frozen for the model that trains the generator. It goes on training.

    TensorFlow 2.21 with tf_keras gives these numbers.
    """
    with tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)]).scope():
        discriminator = tf.keras.Sequential(
            [tf.keras.layers.Input((1,)), tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")]
        )
        discriminator.compile(tf.keras.optimizers.SGD(0.125), "mse")
        generator = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        z = tf.keras.Input((1,))
        discriminator.trainable = False
        combined = tf.keras.Model(z, discriminator(generator(z)))
        combined.compile(tf.keras.optimizers.SGD(0.125), "mse")
    ones, zeros = np.ones((4, 1), "float32"), np.zeros((4, 1), "float32")
    options: Any = {"verbose": 0} if method == "fit" else {}
    getattr(discriminator, method)(ones, zeros, **options)
    assert discriminator.get_weights()[0].tolist() == [[0.75]]  # 1 - 0.125 * 2
    assert (discriminator.trainable, discriminator.trainable_variables) == (False, [])
    getattr(combined, method)(ones, zeros, **options)
    assert discriminator.get_weights()[0].tolist() == [[0.75]]
    assert generator.get_weights()[0].tolist() == [[1 - 0.125 * 2 * 0.75 * 0.75]]
    discriminator.compile(tf.keras.optimizers.SGD(0.125), "mse")  # frozen by now
    getattr(discriminator, method)(ones, zeros, **options)
    assert discriminator.get_weights()[0].tolist() == [[0.75]]
