"""The Estimator: the numbers of a plain Keras loop, its files, its log lines, its errors."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorboardX  # noqa: F401 - sets an environment variable, once; no test should be blamed for it

import stratagem
from stratagem.core.errors import CheckpointError, InputError, UsageError
from stratagem.estimator import Estimator, EstimatorSpec, ModeKeys, RunConfig
from stratagem.estimator.programs.checkpoints import values_in

RNG = np.random.default_rng(0)
X = RNG.normal(size=(52, 5)).astype("float32")
Y = (X.argmax(axis=1) % 3).astype("int32")
SEED = 11
TOLERANCE: Any = {"rtol": 2e-5, "atol": 2e-6}


def network() -> keras.Model:
    return keras.Sequential([keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3)])


def loss_of(labels: Any, logits: Any) -> Any:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)(labels, logits)


def model_fn(features: Any, labels: Any, mode: str, params: Any) -> EstimatorSpec:
    logits = network()(features, training=mode == ModeKeys.TRAIN)
    predictions = {"logits": logits, "class": keras.ops.argmax(logits, axis=-1)}
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions=predictions)
    loss = loss_of(labels, logits)
    accuracy = keras.metrics.SparseCategoricalAccuracy(name="accuracy")
    accuracy.update_state(labels, logits)
    train_op = params["optimizer"]().minimize(loss)  # in evaluation, too, as many programs did
    return EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops={"accuracy": accuracy})


def dataset(batch: int, epochs: int | None = 1) -> Callable[[], Any]:
    return lambda: stratagem.data.Dataset.from_tensor_slices((X, Y)).repeat(epochs).batch(batch)


def make(folder: Path, replicas: int = 0, optimizer: Any = None, **config: Any) -> Estimator:
    strategy = stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)]) if replicas else None
    config = {"save_summary_steps": None, "tf_random_seed": SEED, **config}
    params = {"optimizer": optimizer or (lambda: keras.optimizers.Adam(0.05))}
    return Estimator(model_fn, folder, RunConfig(train_distribute=strategy, **config), params)


def weights(estimator: Estimator) -> dict[str, np.ndarray]:
    names = [name for name in estimator.get_variable_names() if name.startswith("sequential")]
    return {name: estimator.get_variable_value(name) for name in names}


def plain_keras(start: dict[str, np.ndarray], batches: list[slice]) -> dict[str, np.ndarray]:
    """Train the network with Keras alone, from the same weights on the same rows."""
    model = network()
    model.build((None, 5))
    for variable, value in zip(model.trainable_variables, start.values(), strict=True):
        variable.assign(value)
    model.compile(keras.optimizers.Adam(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    for rows in batches:
        model.train_on_batch(X[rows], Y[rows])
    return dict(zip(start, (np.asarray(v.value) for v in model.trainable_variables), strict=True))


def ordered(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return weights in the order of the layers, the kernel of each before its bias."""
    return {name: values[name] for name in sorted(values, key=lambda name: (name.split("/")[1], "bias" in name))}


def test_one_replica_is_a_plain_keras_loop_and_resumes(tmp_path: Path) -> None:
    estimator = make(tmp_path, save_checkpoints_steps=3)
    estimator.train(dataset(16), max_steps=1)
    start = ordered({name: value for name, value in weights_at(tmp_path, 0).items() if name.startswith("sequential")})
    assert list(start) == [
        f"sequential/{part}" for part in ("dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias")
    ]
    make(tmp_path, save_checkpoints_steps=3).train(dataset(16))  # from step 1, an epoch: 16, 16, 16 and 4 rows
    rows = [slice(0, 16), slice(0, 16), slice(16, 32), slice(32, 48), slice(48, 52)]
    expected, trained = plain_keras(start, rows), weights(estimator)
    for name, value in expected.items():
        np.testing.assert_allclose(trained[name], value, **TOLERANCE)
    assert estimator.get_variable_value("global_step") == 5
    assert sorted(file.name for file in tmp_path.glob("model.ckpt-*")) == [
        f"model.ckpt-{step}.{kind}" for step in (0, 1, 4, 5) for kind in ("index", "safetensors")
    ]
    assert estimator.latest_checkpoint() == str(tmp_path / "model.ckpt-5")


def weights_at(folder: Path, step: int) -> dict[str, np.ndarray]:
    return values_in(str(folder / f"model.ckpt-{step}"))


def test_replicas_each_take_a_batch(tmp_path: Path) -> None:
    one = make(tmp_path / "one").train(dataset(16), max_steps=3)
    four = make(tmp_path / "four", replicas=4).train(dataset(4), max_steps=3)
    expected, found = weights(one), weights(four)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, **TOLERANCE)
    # 52 rows are 13 batches of 4: three steps for each replica, the batch that is left is left out.
    assert make(tmp_path / "all", replicas=4).train(dataset(4)).get_variable_value("global_step") == 3
    # 52 rows are 7 batches of 8, the last of 4: with two replicas a last step has 4 rows on one only, and is left out.
    assert make(tmp_path / "two", replicas=2).train(dataset(8)).get_variable_value("global_step") == 3


def test_a_last_batch_counts_by_its_rows(tmp_path: Path) -> None:
    """26 rows are 20 and 6, on two replicas one step: the mean over 26 rows, as on one device."""
    rows = lambda batch: lambda: stratagem.data.Dataset.from_tensor_slices((X[:26], Y[:26])).batch(batch)  # noqa: E731
    one = make(tmp_path / "one").train(rows(26))
    two = make(tmp_path / "two", replicas=2).train(rows(20))
    for name, value in weights(one).items():
        np.testing.assert_allclose(weights(two)[name], value, **TOLERANCE)


def test_evaluation_and_prediction(tmp_path: Path) -> None:
    estimator = make(tmp_path).train(dataset(16, None), steps=30)
    before = weights(estimator)
    values = ordered(before)
    kernel, bias, out, last = values.values()
    logits = np.tanh(X @ kernel + bias) @ out + last
    metrics = estimator.evaluate(dataset(16))
    assert sorted(metrics) == ["accuracy", "global_step", "loss"]
    assert metrics["global_step"] == 30
    np.testing.assert_allclose(metrics["accuracy"], np.mean(logits.argmax(axis=1) == Y), rtol=1e-6)
    shifted = logits - logits.max(axis=1, keepdims=True)
    each = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(52), Y]
    by_step = [each[:16].mean(), each[16:32].mean(), each[32:48].mean(), each[48:].mean()]
    np.testing.assert_allclose(metrics["loss"], np.mean(by_step), rtol=1e-5)
    assert estimator.evaluate(dataset(16), steps=2)["loss"] == pytest.approx(np.mean(by_step[:2]), rel=1e-5)
    again = estimator.evaluate(dataset(16), checkpoint_path=str(tmp_path / "model.ckpt-0"))
    assert again["global_step"] == 0
    assert again["loss"] > metrics["loss"] + 0.1
    examples = list(estimator.predict(dataset(16)))
    np.testing.assert_allclose([example["logits"] for example in examples], logits, rtol=1e-4, atol=1e-5)
    assert [int(example["class"]) for example in examples] == logits.argmax(axis=1).tolist()
    batches = list(estimator.predict(lambda: X[:7], predict_keys="class", yield_single_examples=False))
    assert [(list(batch), batch["class"].shape) for batch in batches] == [(["class"], (7,))]
    for name, value in weights(estimator).items():
        np.testing.assert_array_equal(value, before[name])


def test_eval_distribute_counts_every_row(tmp_path: Path) -> None:
    estimator = make(tmp_path).train(dataset(16), max_steps=2)
    strategy = stratagem.MirroredStrategy(["cpu:0", "cpu:1"])
    config = RunConfig(eval_distribute=strategy, save_summary_steps=None)
    shared = Estimator(model_fn, tmp_path, config, estimator.params).evaluate(dataset(8))
    alone = estimator.evaluate(dataset(8))
    assert shared["accuracy"] == pytest.approx(alone["accuracy"], rel=1e-6)


def test_log_lines_in_order(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "stratagem"):
        estimator = make(tmp_path, replicas=2, log_step_count_steps=2)
        caplog.clear()

        def input_fn(mode: str, input_context: Any = None) -> Any:
            assert (mode, input_context.num_replicas_in_sync) == (ModeKeys.TRAIN, 2)
            return dataset(8)()

        estimator.train(input_fn, max_steps=3)
        trained = [record.getMessage() for record in caplog.records]
        caplog.clear()
        estimator.evaluate(dataset(16), steps=1)
        evaluated = [record.getMessage() for record in caplog.records]
    begins = [
        "The `input_fn` accepts an `input_context` which will be given by DistributionStrategy",
        "Calling model_fn.",
        "Done calling model_fn.",
        "Create CheckpointSaverHook.",
        "Graph was finalized.",
        "Running local_init_op.",
        "Done running local_init_op.",
        "Calling checkpoint listeners before saving checkpoint 0...",
        f"Saving checkpoints for 0 into {tmp_path}/model.ckpt.",
        "Calling checkpoint listeners after saving checkpoint 0...",
        "loss = ",
        "global_step/sec: ",
        "loss = ",
        "Calling checkpoint listeners before saving checkpoint 3...",
        f"Saving checkpoints for 3 into {tmp_path}/model.ckpt.",
        "Calling checkpoint listeners after saving checkpoint 3...",
        "Loss for final step: ",
    ]
    assert [line[: len(begin)] for line, begin in zip(trained, begins, strict=True)] == begins
    steps = [line for line in trained if line.startswith("loss = ")]
    assert steps[0].endswith(", step = 0")
    assert ", step = 2 (" in steps[1]
    begins = [
        "Calling model_fn.",
        "Done calling model_fn.",
        "Starting evaluation at ",
        "Graph was finalized.",
        f"Restoring parameters from {tmp_path}/model.ckpt-3",
        "Running local_init_op.",
        "Done running local_init_op.",
        "Evaluation [1/1]",
        "Inference Time : ",
        "Finished evaluation at ",
        "Saving dict for global step 3: accuracy = ",
        f"Saving 'checkpoint_path' summary for global step 3: {tmp_path}/model.ckpt-3",
    ]
    assert [line[: len(begin)] for line, begin in zip(evaluated, begins, strict=True)] == begins


def test_max_steps_that_have_been_done(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    estimator = make(tmp_path).train(dataset(16), max_steps=2)
    with caplog.at_level(logging.INFO, "stratagem"):
        estimator.train(dataset(16), max_steps=2)
    assert "Skipping training since max_steps has already saved." in caplog.messages
    assert estimator.train(dataset(16, None), steps=2).get_variable_value("global_step") == 4


def test_another_model_in_the_folder_is_an_error(tmp_path: Path) -> None:
    make(tmp_path).train(dataset(16), max_steps=1)
    config = RunConfig(model_dir=str(tmp_path), save_summary_steps=None)

    def other(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        loss = loss_of(labels, keras.Sequential([keras.layers.Dense(9), keras.layers.Dense(3)])(features))
        return EstimatorSpec(mode, loss=loss, train_op=keras.optimizers.Adam(0.1).minimize(loss))

    before = (tmp_path / "model.ckpt-1.safetensors").read_bytes()
    with pytest.raises(InputError, match=r"model.ckpt-1' is not one of this model: .*sequential/dense/kernel") as error:
        Estimator(other, config=config).train(dataset(16))
    assert "another model_dir" in str(error.value)
    assert (tmp_path / "model.ckpt-1.safetensors").read_bytes() == before


def test_two_runs_in_one_folder(tmp_path: Path) -> None:
    estimator = make(tmp_path, save_checkpoints_steps=2)

    class AnotherRun(stratagem.estimator.SessionRunHook):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            if run_context.session.global_step == 1:
                make(tmp_path).train(dataset(16), steps=5)

    with pytest.raises(UsageError, match=r"checkpoints that this run did not save: .*model.ckpt-4"):
        estimator.train(dataset(16), hooks=[AnotherRun()])


def test_warm_start(tmp_path: Path) -> None:
    first = make(tmp_path / "first").train(dataset(16), max_steps=2)
    settings = stratagem.estimator.WarmStartSettings(str(tmp_path / "first"), "dense/")
    config = RunConfig(save_summary_steps=None, tf_random_seed=3)
    second = Estimator(model_fn, tmp_path / "second", config, first.params, warm_start_from=settings)
    second.train(dataset(16), max_steps=1)
    started, source = weights_at(tmp_path / "second", 0), weights(first)
    np.testing.assert_array_equal(started["sequential/dense/kernel"], source["sequential/dense/kernel"])
    assert not np.array_equal(started["sequential/dense_1/kernel"], source["sequential/dense_1/kernel"])
    assert started["global_step"] == 0


def test_what_the_program_says_of_the_learning_rate_counts(tmp_path: Path) -> None:
    make(tmp_path, optimizer=lambda: keras.optimizers.SGD(0.1)).train(dataset(16), max_steps=1)
    frozen = make(tmp_path, optimizer=lambda: keras.optimizers.SGD(0.0))
    before = weights(frozen)
    for name, value in weights(frozen.train(dataset(16))).items():
        np.testing.assert_array_equal(value, before[name])


@pytest.mark.parametrize(
    ("function", "params", "message"),
    [
        (lambda labels, mode: None, None, "has no argument `features`"),
        (lambda features, labels, mode, extra: None, None, "also has extra"),
        (lambda features, labels, mode: None, {"a": 1}, "no argument `params`"),
        ("model", None, "model_fn='model'"),
    ],
)
def test_model_fn_with_wrong_arguments(tmp_path: Path, function: Any, params: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Estimator(function, tmp_path, params=params)


@pytest.mark.parametrize(
    ("input_fn", "message"),
    [
        ("data", "input_fn is a str"),
        (lambda: None, "input_fn returned None"),
        (lambda: (X, Y, Y), "input_fn gave 3 values"),
        (lambda batch_size: None, r"needs the argument\(s\) batch_size"),
        (lambda: stratagem.data.Dataset.from_tensor_slices((X[:0], Y[:0])).batch(4), "gave no batch"),
    ],
)
def test_input_fn_that_cannot_be_used(tmp_path: Path, input_fn: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(tmp_path).train(input_fn)


def test_untrained_and_wrong_questions(tmp_path: Path) -> None:
    estimator = make(tmp_path)
    with pytest.raises(CheckpointError, match="no checkpoint in model_dir"):
        estimator.get_variable_names()
    with pytest.raises(InputError, match="both steps and max_steps"):
        estimator.train(dataset(16), steps=1, max_steps=1)
    with pytest.raises(InputError, match="steps is 0"):
        estimator.train(dataset(16), steps=0)
    estimator.train(dataset(16), steps=1)
    with pytest.raises(InputError, match="asked for 'kernel'"):
        estimator.get_variable_value("kernel")
    with pytest.raises(InputError, match="None of them is among the predictions"):
        next(estimator.predict(dataset(16), predict_keys=["probability"]))
