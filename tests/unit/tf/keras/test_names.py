"""Where programs find Keras: the modules they import, and the names in them."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import keras
import numpy as np
import pytest

import stratagem
import stratagem.tf as tf
from stratagem.core.errors import UsageError
from stratagem.tf.keras import backend as K

PLACES = {
    "": "Model Sequential Input Variable layers losses __version__",
    ".activations": "relu softmax get",
    ".applications": "MobileNetV2 ResNet50 mobilenet_v2",
    ".applications.mobilenet_v2": "MobileNetV2 preprocess_input decode_predictions",
    ".backend": "mean sum epsilon set_value clear_session image_data_format ndim",
    ".callbacks": "EarlyStopping BackupAndRestore ModelCheckpoint LearningRateScheduler",
    ".callbacks.experimental": "BackupAndRestore",
    ".constraints": "MaxNorm",
    ".datasets": "mnist cifar10 imdb",
    ".datasets.mnist": "load_data",
    ".estimator": "model_to_estimator",
    ".experimental": "SidecarEvaluator",
    ".initializers": "GlorotUniform",
    ".layers": "Dense LSTM CuDNNLSTM Layer Rescaling experimental",
    ".layers.experimental": "SyncBatchNormalization preprocessing",
    ".layers.experimental.preprocessing": "Rescaling RandomFlip",
    ".losses": "MeanSquaredError Reduction sparse_categorical_crossentropy",
    ".metrics": "Mean SparseCategoricalAccuracy",
    ".mixed_precision": "set_global_policy LossScaleOptimizer experimental",
    ".mixed_precision.experimental": "set_policy Policy",
    ".models": "Model Sequential load_model save_model clone_model model_from_json",
    ".ops": "matmul",
    ".optimizers": "Adam SGD schedules legacy experimental get",
    ".optimizers.experimental": "AdamW",
    ".optimizers.legacy": "Adam SGD",
    ".optimizers.schedules": "ExponentialDecay LearningRateSchedule",
    ".preprocessing": "image sequence text image_dataset_from_directory",
    ".preprocessing.image": "ImageDataGenerator load_img img_to_array array_to_img",
    ".preprocessing.sequence": "pad_sequences TimeseriesGenerator skipgrams",
    ".preprocessing.text": "Tokenizer one_hot",
    ".random": "normal",
    ".regularizers": "l2 L1L2",
    ".saving": "register_keras_serializable load_model",
    ".utils": "to_categorical plot_model get_file Sequence Progbar SidecarEvaluator image_dataset_from_directory",
    ".utils.experimental": "DatasetCreator",
    ".wrappers": "SKLearnClassifier",
}


@pytest.mark.parametrize("module", PLACES)
def test_names_are_where_programs_import_them_from(module: str) -> None:
    found = importlib.import_module(f"stratagem.tf.keras{module}")
    for name in PLACES[module].split():
        assert getattr(found, name) is not None
        if not name.startswith("__"):
            assert name in dir(found)
    through: object = tf.keras  # and by attributes alone
    for part in filter(None, module.split(".")):
        through = getattr(through, part)
    assert getattr(through, PLACES[module].split()[0]) is getattr(found, PLACES[module].split()[0])


def test_importing_loads_nothing() -> None:
    program = (
        "import sys\n"
        "import stratagem.tf as tf\n"
        "import stratagem.tf.keras as keras\n"
        "import stratagem.tf.keras.layers, stratagem.tf.keras.preprocessing.image, stratagem.tf.keras.callbacks\n"
        "assert not {'keras', 'jax', 'tensorflow'} & set(sys.modules)\n"
        "from stratagem.tf import keras as again\n"
        "assert keras is again is tf.keras\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_what_is_ours_and_what_is_keras_own() -> None:
    assert tf.keras.Model is keras.Model
    assert tf.keras.layers.Conv2D is keras.layers.Conv2D
    assert tf.keras.layers.Dense == keras.layers.Dense  # a name whose objects are Keras's
    assert type(tf.keras.layers.Dense(1)) is keras.layers.Dense
    assert issubclass(keras.layers.Dense, tf.keras.layers.Dense)
    assert {keras.layers.Dense: 1}[tf.keras.layers.Dense] == 1
    assert tf.keras.__version__ == keras.__version__
    assert tf.keras.callbacks.BackupAndRestore is stratagem.callbacks.BackupAndRestore
    assert tf.keras.utils.image_dataset_from_directory is stratagem.data.image_dataset_from_directory
    assert tf.keras.utils.experimental.DatasetCreator is stratagem.experimental.DatasetCreator
    with pytest.raises(AttributeError, match=r"tf\.keras\.layers\.Denze is not in stratagem\.tf"):
        _ = tf.keras.layers.Denze


def test_the_functions_of_the_old_backend() -> None:
    x = np.arange(6, dtype="float32").reshape(2, 3)
    np.testing.assert_allclose(K.mean(K.square(x), axis=-1), (x**2).mean(-1), rtol=1e-6)
    np.testing.assert_allclose(K.sum(K.abs(-x), axis=0, keepdims=True), x.sum(0, keepdims=True))
    np.testing.assert_allclose(K.l2_normalize(x, axis=1)[1], x[1] / np.linalg.norm(x[1]), rtol=1e-6)
    np.testing.assert_allclose(K.batch_dot(x, x, axes=1), (x * x).sum(1, keepdims=True))
    np.testing.assert_allclose(K.batch_dot(x[:, None], x[:, :, None]), (x * x).sum(1).reshape(2, 1, 1))
    np.testing.assert_allclose(K.hard_sigmoid(np.float32([-9, 1, 9])), [0, 0.7, 1], rtol=1e-6)
    np.testing.assert_allclose(K.permute_dimensions(x, (1, 0)), x.T)
    np.testing.assert_allclose(K.gather(x, [1]), x[1:])
    np.testing.assert_allclose(K.switch(x > 2, x, -x), np.where(x > 2, x, -x))
    assert K.int_shape(keras.Input((3,))) == (None, 3)
    assert K.batch_flatten(np.ones((2, 3, 4))).shape == (2, 12)
    assert (K.flatten(x).shape, K.count_params(x), K.epsilon()) == ((6,), 6, 1e-7)
    counter = K.variable(1.0)
    K.update_add(counter, 2.0)
    K.batch_set_value([(counter, K.get_value(counter) * 2)])
    assert K.batch_get_value([counter]) == [6.0] == [K.eval(counter)]
    assert K.random_uniform((3,), 2.0, 3.0, seed=1).min() >= 2
    with pytest.raises(UsageError, match="Take `training` as an argument"):
        K.learning_phase()
    with pytest.raises(UsageError, match="schedule"):
        K.set_value(0.1, 0.2)


def test_functions_of_symbolic_tensors() -> None:
    K = tf.keras.backend
    inputs = keras.Input((2,))
    hidden = keras.layers.Dense(2, kernel_initializer="ones", name="hidden")(inputs)
    model = keras.Model(inputs, keras.layers.Dropout(0.5)(hidden))
    x = np.array([[1.0, 2.0]], "float32")
    both = K.function([model.input], [model.get_layer("hidden").output, model.output])
    assert [each.tolist() for each in both([x])] == [[[3.0, 3.0]], [[3.0, 3.0]]]
    assert K.function(model.input, hidden)(x).tolist() == [[3.0, 3.0]]
    assert K.function([hidden], [model.output])([x])[0].tolist() == [[1.0, 2.0]]
    with pytest.raises(UsageError, match="Assign to the variables after the call"):
        K.function([inputs], [hidden], updates=[1])


def test_rnn() -> None:
    def step(x: Any, states: Any) -> Any:
        total = states[0] + x
        return total, [total]

    x = np.arange(6, dtype="float32").reshape(1, 3, 2)
    last, outputs, states = tf.keras.backend.rnn(step, x, [np.zeros((1, 2), "float32")])
    assert outputs.tolist() == [[[0.0, 1.0], [2.0, 4.0], [6.0, 9.0]]]
    assert last.tolist() == states[0].tolist() == [[6.0, 9.0]]


def test_names_that_are_gone_say_what_to_write() -> None:
    for name, instead in {
        "backend.gradients": "tf.GradientTape",
        "utils.multi_gpu_model": "MirroredStrategy",
        "wrappers.scikit_learn": "SKLearnClassifier",
        "layers.Denze": "Did you mean tf.keras.layers.Dense?",
    }.items():
        module, _, leaf = name.partition(".")
        with pytest.raises(AttributeError, match=instead):
            getattr(getattr(tf.keras, module), leaf)
    with pytest.raises(ImportError, match="SKLearnClassifier"):
        importlib.import_module("stratagem.tf.keras.wrappers.scikit_learn")
