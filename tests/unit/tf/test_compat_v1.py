"""`tf.compat.v1` as Estimator programs use it."""

from __future__ import annotations

import logging
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorboardX  # noqa: F401 - sets an environment variable, once; no test should be blamed for it
from tests.unit.tf.test_namespace import in_fresh_process

import stratagem.tf as tf
from stratagem.core.log import announce

root = logging.getLogger()


def test_switches_are_accepted() -> None:
    tf.compat.v1.disable_eager_execution()
    tf.compat.v1.disable_v2_behavior()
    tf.compat.v1.enable_eager_execution()
    assert tf.compat.v1.executing_eagerly_outside_functions() is True
    config = tf.compat.v1.ConfigProto(allow_soft_placement=True, gpu_options=tf.compat.v1.GPUOptions(allow_growth=True))
    config.graph_options.rewrite_options.memory_optimization = 1
    assert config.gpu_options.allow_growth
    assert config.graph_options.rewrite_options.memory_optimization == 1
    config.device_count["GPU"] = 0
    assert (config.device_count, config.inter_op_parallelism_threads < 4) == ({"GPU": 0}, True)
    assert tf.compat.v1.ConfigProto(device_count={"CPU": 2}).device_count == {"CPU": 2}


def test_names_that_are_not_its_own_are_tfs() -> None:
    assert tf.compat.v1.GradientTape is tf.GradientTape
    assert tf.compat.v1.train.Checkpoint is tf.train.Checkpoint
    assert tf.compat.v1.keras.layers.Dense is tf.keras.layers.Dense
    assert issubclass(tf.compat.v1.keras.layers.Dense, keras.layers.Dense)
    assert tf.compat.v2.data.Dataset is tf.data.Dataset
    assert tf.compat.v1.saved_model.save is tf.saved_model.save


def test_names_of_signatures_and_tags_have_their_older_places() -> None:
    older = tf.compat.v1.saved_model
    assert older.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY == "serving_default"
    tags = older.tag_constants
    assert (tags.SERVING, tags.TRAINING, tags.GPU, tags.TPU) == ("serve", "train", "gpu", "tpu")


def test_lines_are_shown_from_a_level_on(caplog: pytest.LogCaptureFixture) -> None:
    log = tf.compat.v1.logging
    before = logging.getLogger("stratagem").level
    try:
        log.set_verbosity(log.INFO)
        log.info("step %d", 3)
        for _ in range(4):
            log.log_every_n(log.INFO, "again", 2)
            log.log_first_n(log.WARN, "early", 1)
        log.debug("hidden")
    finally:
        log.set_verbosity(before)
    assert [record.getMessage() for record in caplog.records] == ["step 3", "again", "early", "again"]
    assert tf.get_logger() is logging.getLogger("stratagem")


@pytest.mark.parametrize(("level", "lines"), [("INFO", 1), ("ERROR", 0)])
def test_a_level_shows_or_hides_the_lines_of_stratagem(
    level: str, lines: int, capfd: pytest.CaptureFixture[str]
) -> None:
    logger = tf.get_logger()
    before = logger.level
    logger.setLevel(level)
    # Under pytest there are handlers; a program that sets up no logging has none.
    handlers, root.handlers = root.handlers, []
    try:
        announce("MirroredStrategy: 2 replica(s)")
    finally:
        logger.setLevel(before)
        root.handlers = handlers
    assert capfd.readouterr().err.count("MirroredStrategy: 2 replica(s)") == lines


def test_app_reads_flags_and_runs_main() -> None:
    found = in_fresh_process(
        "import json\n"
        "import stratagem.tf as tf\n"
        "tf.compat.v1.flags.DEFINE_integer('steps', 5, 'How many.')\n"
        "def main(argv):\n"
        "    print(json.dumps([tf.compat.v1.flags.FLAGS.steps, argv[1:]]))\n"
        "tf.compat.v1.app.run(main, ['program', '--steps=7', '--unknown=1', 'rest'])\n"
    )
    assert found == [7, ["--unknown=1", "rest"]]


@pytest.mark.parametrize("flags", ["tf.compat.v1.flags", "tf.compat.v1.app.flags"])
def test_flags_are_read_at_the_top_of_a_program_too(flags: str) -> None:
    """absl alone refuses before `app.run`; TensorFlow reads the command line where the first value is asked for."""
    found = in_fresh_process(
        "import json, sys\n"
        "import stratagem.tf as tf\n"
        "sys.argv = ['program', '--task_type=ps', '--index=2']\n"
        f"flags = {flags}\n"
        "flags.DEFINE_string('task_type', 'worker', 'Kind of task.')\n"
        "flags.DEFINE_integer('index', 0, 'Its number.')\n"
        "FLAGS = flags.FLAGS\n"
        "before = [FLAGS.is_parsed(), hasattr(FLAGS, '__wrapped__'), FLAGS.is_parsed()]\n"
        "read = [FLAGS.task_type, FLAGS.index]\n"
        "FLAGS.index = 3\n"
        "print(json.dumps([*before, *read, FLAGS.index, FLAGS['index'].value, 'index' in FLAGS, FLAGS.is_parsed()]))\n"
    )
    assert found == [False, False, False, "ps", 2, 3, 3, True, True]


def test_an_estimator_under_the_old_names(tmp_path: Path) -> None:
    """The network of a tutorial, with the global step and an old optimizer; 20 steps of gradient descent."""
    x = np.linspace(-1, 1, 32, dtype=np.float32)[:, None]

    def input_fn() -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices((x, 3 * x)).repeat().batch(32)

    def model_fn(features: object, labels: object, mode: str) -> tf.estimator.EstimatorSpec:
        predictions = tf.keras.layers.Dense(1, kernel_initializer="zeros", use_bias=False)(features)
        if mode == tf.estimator.ModeKeys.PREDICT:
            return tf.estimator.EstimatorSpec(mode, predictions={"y": predictions})
        loss = keras.ops.mean((labels - predictions) ** 2)
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.5)
        train_op = optimizer.minimize(loss, tf.compat.v1.train.get_or_create_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    config = tf.estimator.RunConfig(session_config=tf.compat.v1.ConfigProto(allow_soft_placement=True))
    estimator = tf.estimator.Estimator(model_fn, model_dir=str(tmp_path), config=config)
    estimator.train(input_fn, steps=20)
    kernel = 3 * (1 - (1 - np.mean(x**2)) ** 20)  # each step takes mean(x^2) of what is missing
    predicted = next(iter(estimator.predict(lambda: tf.data.Dataset.from_tensors(np.ones((1, 1), np.float32)))))
    np.testing.assert_allclose(predicted["y"], np.array([kernel]), rtol=1e-5)
    names = dict(tf.train.list_variables(str(tmp_path)))
    assert [1, 1] in names.values()
    assert tf.train.get_checkpoint_state(str(tmp_path)).model_checkpoint_path.endswith("model.ckpt-20")


def test_a_model_function_of_tensorflow_1(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Layers, losses and a decay as functions; a hook that finds a tensor by its name; five steps by hand."""
    v1 = tf.compat.v1
    x = np.linspace(-1, 1, 8, dtype=np.float32)[:, None]

    def model_fn(features: object, labels: object, mode: str, params: dict[str, float]) -> tf.estimator.EstimatorSpec:
        with v1.variable_scope("net"):
            predictions = v1.layers.dense(
                features, 1, use_bias=False, kernel_initializer=v1.glorot_uniform_initializer(seed=1), name="out"
            )
        loss = v1.losses.mean_squared_error(labels, predictions)
        tf.identity(loss, name="the_loss")
        rate = v1.train.exponential_decay(params["rate"], v1.train.get_global_step(), 1, 0.5)
        train_op = v1.train.GradientDescentOptimizer(rate).minimize(loss, v1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, predictions={"y": predictions}, loss=loss, train_op=train_op)

    estimator = tf.estimator.Estimator(model_fn, model_dir=str(tmp_path), params={"rate": 0.5})
    input_fn = tf.estimator.inputs.numpy_input_fn(x, 3 * x[:, 0:1], batch_size=8, num_epochs=None, shuffle=False)
    with caplog.at_level(logging.INFO, logger="stratagem"):
        estimator.train(input_fn, hooks=[v1.train.LoggingTensorHook(["the_loss"], every_n_iter=1)], steps=1)
    assert "the_loss = " in caplog.text
    name = next(name for name, shape in tf.train.list_variables(str(tmp_path)) if shape == [1, 1])
    kernel = tf.train.load_variable(str(tmp_path), name).item()
    estimator.train(input_fn, steps=4)
    for step in range(1, 5):
        kernel += 0.5 * 0.5**step * 2 * np.mean(x**2) * (3 - kernel)
    np.testing.assert_allclose(estimator.get_variable_value("net/out/kernel"), np.array([[kernel]]), rtol=1e-5)


def test_an_estimator_that_comes_with_a_model(tmp_path: Path) -> None:
    column = tf.feature_column.numeric_column("x")
    classifier = tf.estimator.LinearClassifier([column], model_dir=str(tmp_path))
    x = np.linspace(-1, 1, 32, dtype=np.float32)

    def input_fn() -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(({"x": x}, (x > 0).astype(np.int32))).repeat().batch(32)

    classifier.train(input_fn, steps=20)
    assert classifier.evaluate(input_fn, steps=1)["accuracy"] == 1.0
