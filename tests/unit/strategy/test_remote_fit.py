"""`fit`, `evaluate` and `predict` with parameter servers: with one worker, Keras's own numbers."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest
from tests.unit.ps.servers import small_cluster

import stratagem
from stratagem.coordinator import experimental_get_current_worker_index
from stratagem.core.errors import InputError, UsageError

X = np.random.default_rng(1).random((70, 6)).astype("float32")
Y = (X.sum(axis=1) > 3).astype("int32")
WEIGHTS = np.linspace(0.5, 1.5, 70).astype("float32")

FIT = {"batch_size": 16, "epochs": 2, "verbose": 0, "shuffle": False}  # the last batch has 6 rows
RTOL = 2e-4


def make_model(cls: Callable[..., Any] = keras.Sequential, *inner: keras.Layer, **compile_arguments: Any) -> Any:
    keras.utils.set_random_seed(3)
    first = keras.layers.Dense(8, activation="relu", kernel_regularizer="l2", use_bias=False)
    model = cls([keras.Input((6,)), first, *inner, keras.layers.Dense(2, activation="softmax")])
    arguments = {
        "optimizer": keras.optimizers.Adam(0.02, clipnorm=1.0),
        "loss": "sparse_categorical_crossentropy",
        "metrics": ["accuracy"],
        "weighted_metrics": ["accuracy"],
    }
    model.compile(**{**arguments, **compile_arguments})
    return model


def on_servers(program: Callable[[], Any]) -> Any:
    """Run a program in the scope of a strategy with one worker and two parameter servers."""
    with small_cluster() as resolver:
        strategy = stratagem.ParameterServerStrategy(resolver)
        with strategy.scope():
            result = program()
        strategy.close()
    return result


def assert_alike(found: Any, expected: Any, name: str = "", rtol: float = RTOL) -> None:
    """Compare structures of numbers; weights below 1e-3 apart have moments below 5e-5 apart."""
    if isinstance(expected, dict):
        assert set(found) == set(expected), name
        for key, value in expected.items():
            assert_alike(found[key], value, f"{name}/{key}", rtol)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), name
        for i, pair in enumerate(zip(found, expected, strict=True)):
            assert_alike(*pair, f"{name}/{i}", rtol)
    else:
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=5e-5, err_msg=name)


def test_one_worker_trains_as_keras(tmp_path: Path) -> None:
    def program() -> Any:
        model = make_model(keras.Sequential, keras.layers.BatchNormalization(momentum=0.8))
        train, validation = (X, Y, WEIGHTS), (X[:32], Y[:32], WEIGHTS[:32])
        history = model.fit(*train[:2], sample_weight=train[2], validation_data=validation, **FIT).history
        evaluated = model.evaluate(
            *validation[:2], sample_weight=validation[2], batch_size=16, verbose=0, return_dict=True
        )
        model.save(tmp_path / "model.keras")
        model.save_weights(tmp_path / "model.weights.h5")
        saved = keras.models.load_model(tmp_path / "model.keras").get_weights()
        before = model.get_weights()
        assert all(map(np.array_equal, saved, before))
        again = model.fit(*train[:2], sample_weight=train[2], initial_epoch=2, **{**FIT, "epochs": 3}).history
        first = X[:16], Y[:16], WEIGHTS[:16]
        on_batches = [
            model.train_on_batch(*first, return_dict=True),
            model.test_on_batch(*first),
            model.predict_on_batch(X[:16]),
        ]
        predicted = model.predict(X, batch_size=16, verbose=0)
        slots = [variable.numpy() for variable in model.optimizer.variables]
        model.load_weights(tmp_path / "model.weights.h5")
        assert all(map(np.array_equal, model.get_weights(), before))
        return history, evaluated, again, on_batches, predicted, slots, before

    expected = program()
    assert_alike(on_servers(program), expected, rtol=1e-3)


def fitted(make: Callable[[], Any], **arguments: Any) -> Callable[[], Any]:
    """Return a program that trains a model, with all that could differ as its result."""

    def program() -> Any:
        model = make()
        history = model.fit(X[:64], Y[:64], **{**FIT, **arguments}).history
        evaluated = model.evaluate(X[:64], Y[:64], batch_size=16, verbose=0)
        return history, evaluated, model.get_weights(), int(model.optimizer.iterations)

    return program


class OwnState(keras.Sequential):
    """A step as Keras has them on JAX, which also changes a weight itself, and a metric of its own."""

    def train_step(self, state: Any, data: Any) -> Any:
        trainable, others, optimizer, metrics = state
        x, y = data[:2]
        model: Any = self

        def objective(trainable: Any, others: Any) -> Any:
            outputs, others = model.stateless_call(trainable, others, x, training=True)
            return keras.ops.mean((outputs[:, 1] - y) ** 2), others

        differentiated: Any = jax.value_and_grad(objective, has_aux=True)
        (loss, others), gradients = differentiated(trainable, others)
        own_optimizer: Any = self.optimizer
        trainable, optimizer = own_optimizer.stateless_apply(optimizer, gradients, trainable)
        trainable = [*trainable[:-1], trainable[-1] - 0.01]
        mean: Any = self.metrics[0]
        own = mean.stateless_update_state(metrics[:2], loss, sample_weight=x.shape[0])
        logs = {"mean": mean.stateless_result(own), "last": loss}
        return logs, (trainable, others, optimizer, [*own, *metrics[2:]])

    def test_step(self, state: Any, data: Any) -> Any:
        result: Any = super().test_step(state, data)
        return {"doubled": result[0]["loss"] * 2}, result[1]


class OwnLoss(keras.Sequential):
    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *_: Any, **__: Any) -> Any:
        return keras.ops.mean((y_pred[:, 1] - keras.ops.cast(y, "float32")) ** 2) + sum(self.losses)

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        return {**super().compute_metrics(x, y, y_pred, sample_weight), "largest": keras.ops.max(y_pred)}


def overflowing() -> Any:
    """Gradients of which the first overflow: the scale is halved, then doubled again."""
    optimizer = keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.1), initial_scale=2.0**127, dynamic_growth_steps=3
    )
    return make_model(optimizer=optimizer)


def in_half_precision() -> Any:
    keras.utils.set_random_seed(3)
    layers = [
        keras.Input((6,)),
        keras.layers.Dense(8, activation="relu", dtype="mixed_float16"),
        keras.layers.Dense(2, activation="softmax", dtype="float32"),
    ]
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = keras.Sequential(layers)
        model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    finally:
        keras.config.set_dtype_policy("float32")
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    return model


ROWS: dict[str, Callable[[], Any]] = {
    "class weights, a part for validation, several steps at once": fitted(
        lambda: make_model(steps_per_execution=3),
        class_weight={0: 0.5, 1: 2.0},
        validation_split=0.25,
        validation_freq=2,
    ),
    "train_step(state, data)": fitted(lambda: make_model(OwnState)),
    "compute_loss, compute_metrics": fitted(lambda: make_model(OwnLoss)),
    "dynamic loss scale": fitted(overflowing),
    "mixed_float16": fitted(in_half_precision),
    "fixed loss scale": fitted(lambda: make_model(optimizer=keras.optimizers.SGD(0.1, loss_scale_factor=8.0))),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ROWS)
def test_with_one_worker(name: str) -> None:
    expected = ROWS[name]()
    assert_alike(on_servers(ROWS[name]), expected, name, 2e-3 if "float16" in name else RTOL)


@pytest.mark.parametrize("creates", [False, True])
def test_no_execution_goes_beyond_its_epoch(creates: bool) -> None:
    """5 steps, 2 at once, from a dataset that is read here, and from the worker's own."""

    def program() -> int:
        model = make_model(steps_per_execution=2)
        data = stratagem.data.Dataset.from_tensor_slices((X, Y)).batch(4).repeat()
        model.fit((lambda _: data) if creates else data, steps_per_epoch=5, epochs=2, verbose=0)
        return int(model.optimizer.iterations)

    assert on_servers(program) == 10


class Weights(keras.callbacks.Callback):
    """Reads the model within the epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen.append([batch, float(logs["loss"]), self.model.get_weights()[0]])


def test_callbacks_run_on_the_chief(tmp_path: Path) -> None:
    def program() -> Any:
        model = make_model()
        weights = Weights()
        callbacks = [
            keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * (1.5 if epoch < 3 else -40)),
            keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=1, min_delta=10),
            keras.callbacks.EarlyStopping("val_loss", patience=1, restore_best_weights=True),
            keras.callbacks.CSVLogger(tmp_path / "log.csv"),
            keras.callbacks.ModelCheckpoint(
                tmp_path / "best.weights.h5", "val_loss", save_best_only=True, save_weights_only=True
            ),
            weights,
        ]
        options = {**FIT, "epochs": 9, "callbacks": callbacks, "initial_epoch": 1}
        history = model.fit(X[:64], Y[:64], validation_data=(X[:32], Y[:32]), **options).history
        restored, rate = model.get_weights(), float(model.optimizer.learning_rate)
        model.load_weights(tmp_path / "best.weights.h5")
        assert all(map(np.array_equal, model.get_weights(), restored))
        with open(tmp_path / "log.csv") as file:
            table = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
        return history, table, weights.seen, restored, rate

    expected = program()
    assert len(expected[0]["loss"]) == 3  # the second was the best: a negative rate makes it worse
    assert len(set(expected[0]["learning_rate"])) == 3
    assert_alike(on_servers(program), expected)


def test_training_stops_where_the_loss_is_no_number() -> None:
    def program() -> int:
        model = make_model(optimizer=keras.optimizers.SGD(1e30))
        history = model.fit(X, Y, **{**FIT, "epochs": 5}, callbacks=[keras.callbacks.TerminateOnNaN()]).history
        return len(history["loss"])

    assert on_servers(program) in (1, 2)  # what a callback is told of a step may be a few steps old


# Datasets of the workers' own ---------------------------------------------------------------------


def worker_data(context: stratagem.InputContext) -> Any:
    """Every second example, or whatever is a worker's share, again and again."""
    dataset = stratagem.data.Dataset.from_tensor_slices((X[:64], Y[:64]))
    dataset = dataset.shard(context.num_input_pipelines, context.input_pipeline_id).repeat()
    return dataset.batch(context.get_per_replica_batch_size(16))


def once(context: stratagem.InputContext) -> Any:
    dataset = stratagem.data.Dataset.from_tensor_slices((X[:60], Y[:60]))
    dataset = dataset.shard(context.num_input_pipelines, context.input_pipeline_id)
    return dataset.batch(context.get_per_replica_batch_size(6))


def part_of_worker(context: stratagem.InputContext) -> Any:
    """The context divides nothing among workers of parameter servers; who wants that asks which of two this is."""
    dataset = stratagem.data.Dataset.from_tensor_slices((X[:60], Y[:60]))
    return dataset.shard(2, experimental_get_current_worker_index()).batch(context.get_per_replica_batch_size(6))


@pytest.mark.thorough
def test_a_worker_reads_its_own_dataset_as_keras_would() -> None:
    plain = make_model()
    expected = plain.fit(X[:64], Y[:64], class_weight={0: 0.5, 1: 2.0}, validation_data=(X[:60], Y[:60]), **FIT).history

    def program() -> Any:
        model = make_model()
        creator = stratagem.experimental.DatasetCreator(worker_data)
        history = model.fit(
            creator, steps_per_epoch=4, epochs=2, class_weight={0: 0.5, 1: 2.0}, verbose=0, validation_data=once,
            validation_steps=10,
        ).history  # fmt: skip
        predicted = model.predict(once, steps=10, verbose=0)
        np.testing.assert_allclose(predicted, model.predict(X[:60], batch_size=6, verbose=0), rtol=1e-5)
        return history, model.get_weights()

    assert_alike(on_servers(program), (expected, plain.get_weights()))
    for strategy in (stratagem.OneDeviceStrategy("cpu:0"), stratagem.MirroredStrategy(["cpu:0", "cpu:1"])):
        with strategy.scope():
            assert_alike(program(), (expected, plain.get_weights()), repr(strategy))


@pytest.mark.thorough
def test_two_workers_see_each_example_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    strategy = stratagem.ParameterServerStrategy()
    coordinator = stratagem.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model = make_model()
    assert strategy.workers.wait_for(lambda: strategy.workers.counts()["workers up"] == 2, 60)
    dataset = stratagem.data.Dataset.from_tensor_slices((X[:60], Y[:60])).batch(6)
    history = model.fit(dataset, epochs=1, verbose=2).history
    assert set(history) == {"loss", "accuracy", "weighted_accuracy"}
    assert "step (2/2 workers" in capsys.readouterr().out
    sent = coordinator.metrics()["bytes sent"]
    expected = np.mean(model.predict(X[:60], verbose=0).argmax(axis=1) == Y[:60])
    assert model.evaluate(dataset, verbose=0, return_dict=True)["accuracy"] == pytest.approx(expected)
    # Each worker has five batches of its own: whoever is faster, each is taken once.
    found = model.evaluate(part_of_worker, steps=10, verbose=0, return_dict=True)
    assert found["accuracy"] == pytest.approx(expected)
    assert int(model.optimizer.iterations) == 10
    with pytest.warns(UserWarning, match=r"ended too early: 2 step\(s\)|ran out of data"):
        model.fit(part_of_worker, steps_per_epoch=12, verbose=0)
    assert int(model.optimizer.iterations) == 20
    backup = {"callbacks": [stratagem.callbacks.BackupAndRestore(tmp_path, delete_checkpoint=False)], "verbose": 0}
    for epochs in (2, 3):  # a pass is an epoch
        assert len(model.fit(part_of_worker, steps_per_epoch=10, epochs=epochs, **backup).history["loss"]) == epochs
    assert int(model.optimizer.iterations) == 50
    counts = coordinator.metrics()
    assert counts["workers up"] == 2
    assert counts["failed"] == counts["retried"] == counts["queued"] == counts["in flight"] == 0
    assert counts["updates"] == 50 * len(model.trainable_variables)
    assert 0 <= counts["staleness"] <= counts["updates"] * counts["max staleness"]
    assert counts["bytes sent"] > sent
    with pytest.raises(InputError, match="`steps`, or `pss_evaluation_shards` argument must be provided"):
        model.fit(part_of_worker)
    with pytest.raises(InputError, match="`y` was given too"):
        model.fit(part_of_worker, Y, steps_per_epoch=1)
    with pytest.raises(InputError, match="not a function of one argument"):
        model.fit(lambda: None, steps_per_epoch=1)
    strategy.close()


class AsInTensorFlow(keras.Sequential):
    """A step that reads and assigns variables itself."""

    def train_step(self, data: Any) -> Any:
        x, y = data[:2]
        with stratagem.GradientTape() as tape:
            loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=True))
        self.optimizer.apply_gradients(
            zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables, strict=True)
        )
        return {"now": loss}


class ReturnsItsLoss(AsInTensorFlow):
    """Its loss has the name of a tracker that nobody updates."""

    def train_step(self, data: Any) -> Any:
        return {"loss": super().train_step(data)["now"]}

    def test_step(self, data: Any) -> Any:
        x, y = data[:2]
        return {"loss": self.compute_loss(x=x, y=y, y_pred=self(x))}


def test_a_step_reports_the_loss_that_it_returns() -> None:
    def program() -> Any:
        model = make_model(ReturnsItsLoss)
        history = model.fit(X[:64], Y[:64], **FIT).history["loss"]
        losses: Any = keras.losses.sparse_categorical_crossentropy(Y[:16], model(X[:16]))
        expected = float(np.mean(losses)) + float(sum(model.losses))
        return history, model.evaluate(X[:16], Y[:16], batch_size=16, verbose=0), expected

    history, evaluated, expected = on_servers(program)
    assert 0 < history[1] < history[0]
    assert evaluated == pytest.approx(expected, rel=1e-5)


class TakesMore(keras.Sequential):
    def train_step(self, state: Any, data: Any, more: Any) -> Any:
        raise AssertionError(more)


class Fails(keras.Sequential):
    def test_step(self, data: Any) -> Any:
        raise RuntimeError("on purpose")


@pytest.mark.thorough
def test_own_steps_of_other_kinds() -> None:
    plain = make_model()
    plain.fit(X[:64], Y[:64], **FIT)

    def program() -> Any:
        model = make_model(AsInTensorFlow)
        history = model.fit(X[:64], Y[:64], **FIT).history
        with pytest.raises(UsageError, match="takes 3 arguments beside self"):
            make_model(TakesMore).fit(X, Y, verbose=0)
        failing = make_model(Fails)
        with pytest.raises(RuntimeError, match="on purpose"):
            failing.evaluate(X, Y, verbose=0)
        assert model.evaluate(X[:16], Y[:16], batch_size=16, verbose=0)  # nothing is left of the failure
        return history, model.get_weights()

    history, weights = on_servers(program)
    assert set(history) == {"now"}
    assert history["now"][1] < history["now"][0]
    assert_alike(weights, plain.get_weights())
