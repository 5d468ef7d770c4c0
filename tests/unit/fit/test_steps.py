"""One compiled step of a model: which programs it has, what they rewrite, what they return."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

import stratagem

X = np.arange(12, dtype="float32").reshape(6, 2) / 10
Y = np.array([[1.0], [2.0], [3.0], [4.0], [5.0], [6.0]], "float32")


def model_of(replicas: int, **options: Any) -> Any:
    with stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)]).scope():
        frozen = keras.layers.Dense(2, use_bias=False, kernel_initializer="identity", trainable=False)
        last = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model = keras.Sequential([keras.Input((2,)), frozen, last])
        model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"], **options)
    return model


def of_numpy(batches: list[slice]) -> np.ndarray:
    """Return the weights after a step of gradient descent on each batch."""
    weights = np.zeros((2, 1))
    for rows in batches:
        weights = weights - 0.1 * 2 * X[rows].T @ (X[rows] @ weights - Y[rows]) / len(X[rows])
    return weights


@pytest.mark.parametrize("replicas", [1, 2, 4])
@pytest.mark.parametrize("together", [1, 2])
def test_the_numbers_of_one_device(replicas: int, together: int) -> None:
    """Batches of 4 and of 2 rows; two steps in one program where both have 2."""
    model = model_of(replicas, steps_per_execution=together)
    size = 4 if together == 1 else 2
    model.fit(X, Y, batch_size=size, shuffle=False, verbose=0)
    batches = [slice(start, start + size) for start in range(0, 6, size)]
    np.testing.assert_allclose(model.layers[-1].kernel.value, of_numpy(batches), rtol=1e-5)
    assert np.asarray(model.layers[0].kernel.value).tolist() == [[1.0, 0.0], [0.0, 1.0]]


class Ends(keras.callbacks.Callback):
    """Notes with which step each execution of an epoch ended."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen.append(batch)

    on_test_batch_end = on_predict_batch_end = on_train_batch_end


def test_the_last_execution_of_an_epoch_ends_with_its_last_step() -> None:
    """5 steps, 2 at once: as in `tf.keras`; Keras 3 takes 6."""
    model, fitted, evaluated, predicted = model_of(2, steps_per_execution=2), Ends(), Ends(), Ends()
    endless = stratagem.data.Dataset.from_tensor_slices((X, Y)).batch(2).repeat()
    model.fit(endless, steps_per_epoch=5, epochs=2, callbacks=[fitted], verbose=0)
    assert (int(model.optimizer.iterations), fitted.seen) == (10, [1, 3, 4] * 2)
    batches = [slice(start, start + 2) for start in (0, 2, 4)] * 4
    np.testing.assert_allclose(model.layers[-1].kernel.value, of_numpy(batches[:10]), rtol=1e-5)
    model.evaluate(endless, steps=5, callbacks=[evaluated], verbose=0)
    assert model.predict(endless, steps=5, callbacks=[predicted], verbose=0).shape == (10, 1)
    assert (evaluated.seen, predicted.seen) == ([1, 3, 4], [1, 3, 4])


def test_a_pass_over_the_data_lasts_several_epochs_to_its_end() -> None:
    """Six batches in all, 3 for each epoch, 2 at once: the second epoch has its third."""
    model, ends = model_of(2, steps_per_execution=2), Ends()
    data = stratagem.data.Dataset.from_tensor_slices((X, Y)).batch(1)
    model.fit(data, steps_per_epoch=3, epochs=2, callbacks=[ends], verbose=0)
    assert (int(model.optimizer.iterations), ends.seen) == (6, [1, 2, 1, 2])
    model.fit(X, Y, batch_size=2, callbacks=[ends], verbose=0)
    assert ends.seen[4:] == [1, 2]


def test_one_program_for_each_shape() -> None:
    model = model_of(2)
    model.fit(X, Y, batch_size=4, epochs=2, shuffle=False, verbose=0)
    step = model.train_function.step
    assert len(step._programs) == 2
    assert {key[0].shares for key in step._programs} == {(2, 2), (1, 1)}


def test_logs_are_those_of_the_whole_batch() -> None:
    logs = model_of(2).fit(X, Y, batch_size=6, shuffle=False, verbose=0).history
    assert logs["loss"][0] == pytest.approx(float((Y**2).mean()))
    assert logs["mae"][0] == pytest.approx(float(Y.mean()))


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_predictions_come_in_the_order_of_the_rows(replicas: int) -> None:
    model = model_of(replicas)
    model.set_weights([np.eye(2), np.array([[1.0], [1.0]])])
    np.testing.assert_allclose(model.predict(X, batch_size=5, verbose=0), X.sum(axis=1, keepdims=True), rtol=1e-6)


def test_values_are_put_into_the_groups_of_keras() -> None:
    model = model_of(1)
    model.fit(X, Y, verbose=0)
    step = model.train_function.step
    groups = step.grouped(list(range(len(step.variables))))
    assert [len(group) for group in groups] == [1, 1, 2, 4]
    assert [value for group in groups for value in group] == list(range(8))


@pytest.mark.thorough
@pytest.mark.parametrize("together", [1, 2])
def test_operations_of_an_eager_step_are_compiled_once(together: int, compiled: list[str]) -> None:
    """Also of a step on a batch that does not divide. Several steps at once are a loop, which is compiled each time."""
    model = model_of(2, run_eagerly=True, steps_per_execution=together)
    size = 4 if together == 1 else 2
    before = 0
    for epoch in range(3):
        before = len(compiled)
        model.fit(X, Y, batch_size=size, shuffle=False, verbose=0, initial_epoch=epoch, epochs=epoch + 1)
    assert len(compiled[before:]) == together - 1
    batches = [slice(start, start + size) for start in range(0, 6, size)] * 3
    np.testing.assert_allclose(model.layers[-1].kernel.value, of_numpy(batches), rtol=1e-5)


@pytest.mark.thorough
def test_eager_steps_keep_what_each_replica_accumulated() -> None:
    x = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
    found = []
    for eager in (False, True):
        keras.utils.set_random_seed(1)
        with stratagem.MirroredStrategy(["cpu:0", "cpu:1"]).scope():
            model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
            model.compile(keras.optimizers.SGD(0.1, gradient_accumulation_steps=2), "mse", run_eagerly=eager)
        model.fit(x, x[:, :1] * 2 + x[:, 1:2] ** 2, batch_size=8, verbose=0, shuffle=False)
        found.append(model.get_weights()[0])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


def test_many_shapes_of_batches_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    with stratagem.OneDeviceStrategy("cpu:0").scope():
        model = keras.Sequential([keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(1)], name="of_ten_lengths")
        model.compile("sgd", "mse")
    for length in range(1, 11):
        assert "of_ten_lengths" not in capsys.readouterr().err
        model.train_on_batch(np.ones((2, length, 1), "float32"), np.ones((2, 1), "float32"))
    assert "train_step of model 'of_ten_lengths' was compiled for 10 shapes of batches" in capsys.readouterr().err
