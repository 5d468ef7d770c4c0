"""An Estimator under parameter servers, in a cluster inside this process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorboardX  # noqa: F401 - sets an environment variable, once; no test should be blamed for it

import stratagem
from stratagem.core.errors import InputError
from stratagem.estimator import (
    DNNLinearCombinedClassifier,
    Estimator,
    EstimatorSpec,
    EvalSpec,
    LoggingTensorHook,
    ModeKeys,
    RunConfig,
    SessionRunHook,
    TrainSpec,
    add_metrics,
    feature_column,
    optimizers,
    train_and_evaluate,
)
from stratagem.transport.message import Message

X = np.random.default_rng(0).normal(size=(24, 3)).astype("float32")
Y = X.sum(axis=1, keepdims=True)


def decayed(step: Any) -> Any:
    count: Any = keras.ops.cast(step, "float32")
    return 0.1 / (1.0 + count)


OPTIMIZERS = {
    "old momentum, decayed": lambda step: optimizers.MomentumOptimizer(decayed(step), 0.9),
    "old adam": lambda step: optimizers.AdamOptimizer(0.05),
    "keras sgd": lambda step: keras.optimizers.SGD(0.05, momentum=0.5),
    "keras loss scale": lambda step: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5), initial_scale=8.0),
    "keras schedule": lambda step: keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)),
}


def model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> EstimatorSpec:
    hidden = keras.layers.BatchNormalization()(
        keras.layers.Dense(4, use_bias=False)(features), training=mode == ModeKeys.TRAIN
    )
    prediction = keras.layers.Dense(1)(hidden)
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions=prediction)
    loss = keras.ops.mean((prediction - labels) ** 2)
    error = stratagem.estimator.metrics.mean_absolute_error(labels, prediction)
    step = stratagem.estimator.get_or_create_global_step()
    optimizer = OPTIMIZERS[params["optimizer"]](step)
    if mode == ModeKeys.TRAIN and params["optimizer"] == "keras sgd":
        train_op = optimizer.apply_gradients(optimizer.compute_gradients(loss))
    else:
        train_op = optimizer.minimize(loss)
    hooks = [LoggingTensorHook({"largest": keras.ops.max(prediction)}, every_n_iter=4)]
    return EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops={"error": error}, training_hooks=hooks)


def batches() -> Any:
    return stratagem.data.Dataset.from_tensor_slices((X, Y)).batch(4)


def forever() -> Any:
    return batches().repeat()


@pytest.fixture
def strategy() -> Iterator[stratagem.ParameterServerStrategy]:
    strategy = stratagem.ParameterServerStrategy(max_staleness=0)  # one step at a time: the numbers of one process
    yield strategy
    strategy.close()


def make(folder: Path, strategy: Any, name: str = "old adam", **config: Any) -> Estimator:
    config = {"save_summary_steps": None, "tf_random_seed": 3, **config}
    return Estimator(model_fn, folder, RunConfig(train_distribute=strategy, **config), params={"optimizer": name})


class Losses(SessionRunHook):
    def __init__(self) -> None:
        self.seen: list[float] = []
        self.steps: list[int] = []

    def before_run(self, run_context: Any) -> Any:
        return stratagem.estimator.SessionRunArgs(["loss", "global_step"])

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.seen.append(float(run_values.results[0]))
        self.steps.append(run_context.session.global_step)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_one_step_at_a_time_has_the_numbers_of_one_process(name: str, tmp_path: Path, strategy: Any) -> None:
    alone, remote = Losses(), Losses()
    one = make(tmp_path / "one", None, name).train(lambda: (X, Y), [alone], max_steps=6)
    servers = make(tmp_path / "servers", strategy, name).train(lambda: (X, Y), [remote], max_steps=6)
    np.testing.assert_allclose(remote.seen, alone.seen, rtol=1e-5)
    assert remote.steps == [1, 2, 3, 4, 5, 6]
    assert servers.get_variable_names() == one.get_variable_names()
    for variable in one.get_variable_names():
        expected = one.get_variable_value(variable)
        np.testing.assert_allclose(
            servers.get_variable_value(variable), expected, rtol=1e-4, atol=1e-5, err_msg=variable
        )


@pytest.mark.thorough
def test_words_travel_to_workers(tmp_path: Path, strategy: Any) -> None:
    """A wide and deep model with two optimizers, one with a rate of the step, has the numbers of one process."""
    colors = np.array(["red", "blue", "", "green"])[np.arange(24) % 4]
    column = feature_column.categorical_column_with_vocabulary_list("color", ["red", "blue"], num_oov_buckets=1)

    numbers = feature_column.numeric_column("x", shape=3)

    def trained(folder: Path, distribute: Any) -> dict[str, np.ndarray]:
        classifier = DNNLinearCombinedClassifier(
            folder,
            linear_feature_columns=[column],
            linear_optimizer=lambda: optimizers.FtrlOptimizer(decayed(stratagem.estimator.get_global_step().value)),
            dnn_feature_columns=[numbers, feature_column.embedding_column(column, 2)],
            dnn_optimizer=keras.optimizers.Adam(0.1),
            dnn_hidden_units=[4],
            label_vocabulary=["no", "yes"],
            config=RunConfig(train_distribute=distribute, tf_random_seed=3, save_summary_steps=None),
        )
        classifier = add_metrics(classifier, lambda predictions: {})  # travels to workers, as its model_fn does
        features, labels = {"x": X, "color": colors}, np.where(Y[:, 0] > 0, "yes", "no")
        classifier.train(lambda: (features, labels), steps=3)
        names = classifier.get_variable_names()
        return {name: classifier.get_variable_value(name) for name in names if name.startswith(("dnn", "linear"))}

    here, there = trained(tmp_path / "here", None), trained(tmp_path / "there", strategy)
    assert len(here) == 7
    for name, value in here.items():
        np.testing.assert_allclose(there[name], value, rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.thorough
def test_two_workers_beside_each_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    strategy, hook = stratagem.ParameterServerStrategy(), Losses()
    caplog.set_level(logging.INFO, "stratagem")
    estimator = make(tmp_path, strategy, save_checkpoints_steps=20, save_summary_steps=10, log_step_count_steps=10)
    metrics, exports = train_and_evaluate(
        estimator, TrainSpec(forever, max_steps=90, hooks=[hook]), EvalSpec(batches, steps=None, throttle_secs=0)
    )
    assert (int(metrics["global_step"]), exports) == (90, [])
    assert metrics["loss"] < hook.seen[0] / 2
    assert hook.steps == sorted(set(hook.steps))
    assert hook.steps[-1] <= 90
    # Whole steps only: the steps that a checkpoint counts are the updates of its optimizer.
    saved = [path.name for path in tmp_path.glob("model.ckpt-*.safetensors")]
    assert len(saved) == 5
    assert "model.ckpt-90.safetensors" in saved
    assert estimator.get_variable_value("global_step") == estimator.get_variable_value("Adam/iteration") == 90
    lines = [record.getMessage() for record in caplog.records]
    order = ["Calling model_fn.", "Graph was finalized.", f"Saving checkpoints for 0 into {tmp_path}/model.ckpt."]
    places = [lines.index(line) for line in order]
    assert places == sorted(places)
    assert any(line.startswith("global_step/sec:") for line in lines)

    again = make(tmp_path, strategy).train(forever, steps=5)  # goes on
    assert again.get_variable_value("global_step") == 95
    predictions = list(again.predict(lambda: X[:3]))
    assert np.shape(predictions) == (3, 1)
    strategy.close()


def test_the_end_of_the_data_and_a_hook_that_stops(tmp_path: Path) -> None:
    strategy = stratagem.ParameterServerStrategy()
    parts: list[tuple[int, int]] = []

    def own_part(input_context: Any) -> Any:
        parts.append((input_context.num_input_pipelines, input_context.input_pipeline_id))
        return batches().shard(input_context.num_input_pipelines, input_context.input_pipeline_id)

    for folder, input_fn in (("dealt", batches), ("own", own_part)):
        estimator = make(tmp_path / folder, strategy).train(input_fn)
        assert estimator.get_variable_value("global_step") == 6  # each batch once
    assert set(parts) <= {(2, 0), (2, 1)}

    class Stops(SessionRunHook):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            if run_context.session.global_step >= 3:
                run_context.request_stop()

    estimator = make(tmp_path / "stopped", strategy).train(forever, hooks=[Stops()])
    steps = int(estimator.get_variable_value("global_step"))
    assert 3 <= steps <= 3 + 4  # those that were under way count
    assert estimator.get_variable_value("Adam/iteration") == steps
    strategy.close()


def test_errors(tmp_path: Path) -> None:
    strategy = stratagem.ParameterServerStrategy()

    def broken() -> Any:
        raise ValueError("no such file: digits")

    def fails_later() -> Iterator[Any]:
        yield X, Y
        yield X, Y
        raise OSError("the disk is gone")

    for input_fn, error, message in (
        (broken, ValueError, "no such file: digits"),
        (fails_later, OSError, "the disk is gone"),
        (lambda: iter(()), InputError, "yields no batch at all"),
    ):
        with pytest.raises(error, match=message):
            make(tmp_path / "errors", strategy).train(input_fn, max_steps=50)
    assert make(tmp_path / "fine", strategy).train(forever, steps=1).get_variable_value("global_step") == 1
    strategy.close()
    in_rounds = stratagem.ParameterServerStrategy(synchronous=True)
    with pytest.raises(InputError, match="Leave synchronous out"):
        make(tmp_path / "rounds", in_rounds).train(forever, steps=1)
    in_rounds.close()


def held(strategy: Any) -> list[str]:
    """Return the names of what the parameter servers hold."""
    return [
        name
        for answer in strategy.placement.residence.servers.ask_all(Message("report"))
        for name in answer.fields["names"]
    ]


@pytest.mark.thorough
def test_session_after_session_leaves_nothing_behind(tmp_path: Path, strategy: Any, compiled: list[str]) -> None:
    class Looks(SessionRunHook):
        def end(self, session: Any) -> None:
            assert len(held(strategy)) > len(session.variables) / 2  # slots are held with their variables

    estimator = make(tmp_path, strategy, "keras loss scale")
    for _ in range(3):
        estimator.train(forever, [Looks()], steps=2)
        assert held(strategy) == []
    assert estimator.get_variable_value("global_step") == 6
    assert compiled.count("jit(_replica)") <= 2, "each of the two workers compiles once"

    class Fails(SessionRunHook):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            raise ArithmeticError("not this way")

    with pytest.raises(ArithmeticError, match="not this way"):
        make(tmp_path / "fails", strategy).train(forever, [Fails()], steps=9)
    assert held(strategy) == []


def test_weights_that_model_fn_loads_stay_trained(tmp_path: Path, strategy: Any) -> None:
    def loads(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        layer = keras.layers.Dense(1)
        prediction = layer(features)
        layer.set_weights([np.full((3, 1), 0.5), np.zeros(1)])
        loss = keras.ops.mean((prediction - labels) ** 2)
        return EstimatorSpec(mode, loss=loss, train_op=keras.optimizers.SGD(0.1).minimize(loss))

    found = []
    for name, distribute in (("one", None), ("servers", strategy)):
        config = RunConfig(train_distribute=distribute, save_summary_steps=None)
        estimator = Estimator(loads, tmp_path / name, config).train(lambda: (X, Y), max_steps=3)
        found.append(estimator.get_variable_value("dense/kernel"))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)
    assert np.abs(found[0] - 0.5).min() > 0.01


@pytest.mark.parametrize("name", ["one step at a time", "beside each other"])
def test_workers_evaluate(name: str, tmp_path: Path) -> None:
    estimator = make(tmp_path, None).train(forever, steps=5)
    alone = estimator.evaluate(batches, hooks=[Losses()])
    strategy = stratagem.ParameterServerStrategy(max_staleness=0 if name.startswith("one") else None)
    hook = Losses()
    config = RunConfig(eval_distribute=strategy, save_summary_steps=None)
    shared = Estimator(model_fn, tmp_path, config, params=estimator.params)
    for _ in range(2):
        found = shared.evaluate(batches, hooks=[hook])
        assert sorted(found) == ["error", "global_step", "loss"]
        for key, value in alone.items():
            np.testing.assert_allclose(found[key], value, rtol=1e-5, err_msg=key)
        assert held(strategy) == []
    assert len(hook.seen) == 2 * 6, "each batch once"
    assert shared.evaluate(batches, steps=2)["global_step"] == 5
    assert estimator.evaluate(batches)["loss"] == alone["loss"], "nothing was trained"
    strategy.close()
