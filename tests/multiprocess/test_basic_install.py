"""A basic install is enough for all that no extra is for, and an extra that is missing is named where it is needed.

The packages of extras are blocked, which costs no environment; `make versions` tries the same in one that lacks them.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.fresh import run_python, variables_of

pytestmark = pytest.mark.multiprocess

_EXTRAS = (
    "array_record",
    "flatbuffers",
    "fsspec",
    "google",  # protobuf
    "google_crc32c",
    "grain",
    "libcst",
    "matplotlib",
    "pandas",
    "PIL",
    "pyarrow",
    "sklearn",
    "tensorboardX",
    "zmq",
)
"""What `import` shall not find."""

_MODEL = """
import numpy as np
import stratagem
from stratagem import keras

x = np.linspace(-1, 1, 32, dtype="float32").reshape(16, 2)
y = x.sum(axis=1, keepdims=True)


def make_model():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    return model
"""

_FIT = """
stratagem.testing.virtual_devices(2)
for make in (stratagem.OneDeviceStrategy, stratagem.MirroredStrategy, stratagem.CentralStorageStrategy):
    strategy = make("cpu:0") if make is stratagem.OneDeviceStrategy else make()
    with strategy.scope():
        model = make_model()
    dataset = stratagem.data.Dataset.from_tensor_slices((x, y)).shuffle(16).batch(8)
    losses = model.fit(dataset, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < 0.1 * losses[0], losses
    assert model.predict(x, verbose=0).shape == (16, 1)
    print(make.__name__, "trains")
"""

_LOOP = """
import tempfile

strategy = stratagem.MirroredStrategy()
with strategy.scope():
    model, optimizer = make_model(), keras.optimizers.SGD(0.1)
    checkpoint = stratagem.train.Checkpoint(model=model, optimizer=optimizer)


@stratagem.function
def step(batch):
    def on_replica(x, y):
        with stratagem.GradientTape() as tape:
            loss = stratagem.nn.compute_average_loss(keras.ops.mean((model(x) - y) ** 2, axis=-1))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss

    return strategy.reduce("SUM", strategy.run(on_replica, args=batch), axis=None)


data = strategy.experimental_distribute_dataset(stratagem.data.Dataset.from_tensor_slices((x, y)).batch(8).repeat(20))
losses = [float(step(batch)) for batch in data]
assert losses[-1] < 0.1 * losses[0], losses
folder = tempfile.mkdtemp()
checkpoint.save(folder + "/ckpt")
again = make_model()
newest = stratagem.train.latest_checkpoint(folder)
stratagem.train.Checkpoint(model=again).restore(newest).expect_partial()
assert np.array_equal(again.get_weights()[0], model.get_weights()[0])
model.save(folder + "/model.keras")
backup = stratagem.callbacks.BackupAndRestore(folder + "/backup", save_freq=1)
again.fit(x, y, batch_size=8, epochs=2, verbose=0, callbacks=[backup])
print("trains, saves and restores")
"""

_ESTIMATOR = """
import stratagem.tf as tf


def model_fn(features, labels, mode):
    prediction = tf.keras.layers.Dense(1)(features)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"sum": prediction})
    loss = tf.compat.v1.losses.mean_squared_error(labels, prediction)
    train_op = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn():
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(8).repeat(40)


estimator = tf.estimator.Estimator(model_fn, "model", tf.estimator.RunConfig(save_summary_steps=None))
train = tf.estimator.TrainSpec(input_fn, max_steps=40)
metrics, _ = tf.estimator.train_and_evaluate(estimator, train, tf.estimator.EvalSpec(input_fn, steps=2))
assert metrics["loss"] < 0.1, metrics
assert len(list(estimator.predict(lambda: x))) == 16

columns = [tf.feature_column.numeric_column("a")]
labels = (x[:, 0] > 0).astype("int32")
config = tf.estimator.RunConfig(train_distribute=stratagem.MirroredStrategy(), save_summary_steps=None)
classifier = tf.estimator.DNNClassifier([4], columns, "classifier", config=config)
classifier.train(lambda: tf.data.Dataset.from_tensor_slices(({"a": x[:, 0]}, labels)).batch(8).repeat(20))
assert int(classifier.get_variable_value("global_step")) == 40
print("trains, evaluates and predicts")
"""

_WORKERS = """
with stratagem.MultiWorkerMirroredStrategy().scope():
    model = make_model()
losses = model.fit(x, y, batch_size=8, epochs=20, verbose=0).history["loss"]
assert losses[-1] < 0.1 * losses[0], losses
print("trains on", stratagem.get_strategy().num_replicas_in_sync or "", "ok")
"""


def start_without_extras(*arguments: str, home: Path, but: str = "") -> subprocess.CompletedProcess[str]:
    """Run Python where no extra is there to be imported, but the packages named."""
    blocked = set(_EXTRAS) - set(but.split())
    first = home / "first"  # Python runs what lies there before anything else, in all processes
    first.mkdir(exist_ok=True)
    (first / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({blocked}))\n")
    paths = [str(first), *filter(None, [variables_of(home).get("PYTHONPATH")])]
    return run_python(*arguments, home=home, variables={"PYTHONPATH": ":".join(paths), "JAX_PLATFORMS": "cpu"})


def run_without_extras(*arguments: str, home: Path) -> str:
    """Return what Python prints when no extra is there to be imported."""
    done = start_without_extras(*arguments, home=home)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        pytest.param(
            _FIT, "OneDeviceStrategy trains\nMirroredStrategy trains\nCentralStorageStrategy trains\n", id="fit"
        ),
        pytest.param(_LOOP, "trains, saves and restores\n", id="loop"),
        pytest.param(_ESTIMATOR, "trains, evaluates and predicts\n", id="estimator"),
    ],
)
def test_program_needs_no_extra(program: str, expected: str, tmp_path: Path) -> None:
    assert run_without_extras("-c", _MODEL + program, home=tmp_path) == expected


def test_command_line_needs_no_extra(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_MODEL + _WORKERS)
    output = run_without_extras("-m", "stratagem", "run", "--workers", "2", "train.py", home=tmp_path)
    assert "[worker 0] trains on" in output
    assert "[worker 1] trains on" in output
    plan = ("plan", "--parameters", "1000000", "--step-ms", "5", "--workers", "2")
    assert "4.0 MB of gradients" in run_without_extras("-m", "stratagem", *plan, home=tmp_path)
    assert "FAIL" not in run_without_extras("-m", "stratagem", "doctor", home=tmp_path)


_NEEDS = {
    "stratagem.ParameterServerStrategy()": "ps",
    "stratagem.coordinator": "ps",
    "stratagem.experimental.partitioners": "ps",
    "stratagem.train.Server": "ps",
    "list(stratagem.data.TFRecordDataset('a.tfrecord'))": "files",
    "with stratagem.io.TFRecordWriter('b.tfrecord') as writer: writer.write(b'')": "files",
    "stratagem.train.Example": "files",
    "list(stratagem.data.ArrayRecordDataset('a.array_record'))": "files",
    "list(stratagem.data.ParquetDataset('a.parquet'))": "files",
    "stratagem.data.image_dataset_from_directory('.')": "files",
    "stratagem.io.decode_image(b'')": "files",
    "stratagem.tf.io.gfile.GFile('memory://a').read()": "remote",
    "with stratagem.tf.summary.create_file_writer('logs').as_default(): stratagem.tf.summary.scalar('a', 1, step=1)": (
        "summaries"
    ),
    "estimator().export_saved_model('exports', lambda: {'x': x})": "export",
}
"""What needs an extra, and which."""

_OUTCOMES = """
import json
import sys

import stratagem.tf
from stratagem.estimator import Estimator, EstimatorSpec, RunConfig, optimizers


def model_fn(features, labels, mode):
    loss = keras.ops.mean(keras.layers.Dense(1)(features["x"]))
    if mode == "infer":
        return EstimatorSpec(mode, predictions={"y": loss})
    return EstimatorSpec(mode, loss=loss, train_op=optimizers.AdamOptimizer(0.1).minimize(loss))


def estimator():
    trained = Estimator(model_fn, "model", RunConfig(save_summary_steps=None))
    return trained.train(lambda: ({"x": x}, y), max_steps=1)


def outcome(statement):
    try:
        exec(statement)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


print(json.dumps({statement: outcome(statement) for statement in sys.argv[1:]}))
"""


def test_extra_that_is_missing_is_named_where_it_is_needed(tmp_path: Path) -> None:
    for name in ("a.tfrecord", "a.array_record", "a.parquet"):
        (tmp_path / name).write_bytes(b"\0" * 64)
    outcomes = json.loads(run_without_extras("-c", _MODEL + _OUTCOMES, *_NEEDS, home=tmp_path))
    assert outcomes.keys() == _NEEDS.keys()
    hints = {statement: f'pip install "stratagem[{extra}]"' for statement, extra in _NEEDS.items()}
    outcomes = {statement: outcome.replace("'", '"') for statement, outcome in outcomes.items()}
    assert [outcomes[statement] for statement, hint in hints.items() if hint not in outcomes[statement]] == []


@pytest.mark.quick
def test_command_that_needs_an_extra_names_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import tensorflow as tf\n")
    done = start_without_extras("-m", "stratagem", "migrate", "train.py", home=tmp_path)
    assert done.returncode == 2
    assert 'pip install "stratagem[migrate]"' in done.stderr


@pytest.mark.parametrize(
    "arguments", [("records.py", "--epochs", "1"), ("images.py", "--epochs", "1")], ids=lambda a: a[0]
)
def test_example_runs_after_make_train(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """These packages are those of the extra `examples`."""
    program = Path(__file__).parents[2] / "examples" / arguments[0]
    packages = "PIL google google_crc32c zmq"
    done = start_without_extras(str(program), *arguments[1:], home=tmp_path, but=packages)
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout
