"""`tf.saved_model`: models and modules in folders, and what is loaded of them.

A Keras model is saved as by `model.save(folder)`: the folder holds `model.keras` (`stratagem.tf.keras.folders`). The
folder of anything else holds `saved_model.safetensors` (`stratagem.tf.saved_model.writing`): variables, and the
programs of functions, which run without the Python that they were made of. A model that is saved with signatures has
both. TensorFlow Serving reads neither.
Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/saved_model
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Final

import keras

from stratagem.tf import keras as tf_keras
from stratagem.tf.keras.folders import FILE
from stratagem.tf.namespace import explaining
from stratagem.tf.saved_model import loading, writing
from stratagem.tf.saved_model.models import DEFAULT_SERVING_SIGNATURE_DEF_KEY, LoadedModel

__all__ = [
    "DEFAULT_SERVING_SIGNATURE_DEF_KEY",
    "GPU",
    "SERVING",
    "TPU",
    "TRAINING",
    "LoadOptions",
    "LoadedModel",
    "SaveOptions",
    "contains_saved_model",
    "load",
    "save",
]

SERVING: Final = "serve"
TRAINING: Final = "train"
GPU: Final = "gpu"
TPU: Final = "tpu"
"""Tags, which are passed over."""


@dataclass(frozen=True)
class SaveOptions:
    """Options that are accepted as in TensorFlow and have no effect (`tf.saved_model.SaveOptions`).

    Args:
        experimental_io_device: The device that writes.
        namespace_whitelist: Namespaces of operations.
        save_debug_info: Whether to save traces of calls.
        function_aliases: Names of functions.
        experimental_custom_gradients: Whether to save custom gradients.
    """

    experimental_io_device: str | None = None
    namespace_whitelist: Any = None
    save_debug_info: bool = False
    function_aliases: Any = None
    experimental_custom_gradients: bool = True


@dataclass(frozen=True)
class LoadOptions:
    """Options that are accepted as in TensorFlow and have no effect (`tf.saved_model.LoadOptions`).

    Args:
        allow_partial_checkpoint: Whether values may be missing.
        experimental_io_device: The device that reads.
        experimental_skip_checkpoint: Whether to leave values out.
    """

    allow_partial_checkpoint: bool = False
    experimental_io_device: str | None = None
    experimental_skip_checkpoint: bool = False


def save(obj: Any, export_dir: str | os.PathLike[str], signatures: Any = None, options: Any = None) -> None:
    """Save a Keras model, or a module with its variables and functions, to a folder (`tf.saved_model.save`).

    A module is saved with each `tf.function` that has an `input_signature` or has been called, for the shapes of these
    calls; a size may be None. Functions are saved as if there were no strategy. A function that calls `strategy.run` is
    left out, and so are assertions. Values are saved whole. With several workers, all must call it: the chief writes,
    and so does a worker that was given another folder.

    Args:
        obj: A Keras model, a `tf.Module`, a `tf.train.Checkpoint`, a variable, or a result of `load`.
        export_dir: The folder.
        signatures: A function with an `input_signature`, a result of `get_concrete_function`, or a dictionary of these.
            None chooses the only function of a module that has an `input_signature`, or the call of a Keras model.
        options: Accepted as in TensorFlow.

    Raises:
        CheckpointError: The file cannot be written, here or on another worker.
        InputError: The object cannot be saved; or a signature is not such a function, or cannot be saved.

    Example:
        >>> import stratagem.tf as tf
        >>> class Times(tf.Module):
        ...     def __init__(self):
        ...         self.factor = tf.Variable(3.0)
        ...     @tf.function(input_signature=[tf.TensorSpec([None])])
        ...     def __call__(self, x):
        ...         return self.factor * x
        >>> folder = getfixture("tmp_path") / "times"
        >>> save(Times(), folder)
        >>> load(folder)(tf.constant([1.0, 2.0])).tolist()
        [3.0, 6.0]
    """
    folder = os.fspath(export_dir)
    if isinstance(obj, LoadedModel):
        obj = obj.model
    if isinstance(obj, keras.Model) and signatures is None:
        obj.save(folder)
    else:
        writing.write(obj, folder, signatures)


def load(export_dir: str | os.PathLike[str], tags: Any = None, options: Any = None) -> Any:
    """Load what `save` or `model.save` has written to a folder (`tf.saved_model.load`).

    Variables are made again, in the scope of the open strategy. With several workers, all must call it.

    Args:
        export_dir: The folder.
        tags: Accepted as in TensorFlow.
        options: Accepted as in TensorFlow.

    Returns:
        For a Keras model, a `LoadedModel`, which predicts. For a variable, a variable. For anything else, an object
        with `signatures` and the attributes that hold variables and functions; functions take the arguments that they
        were saved for.

    Raises:
        CheckpointError: The file is damaged.
        InputError: The folder holds no model, or a model of TensorFlow.

    Example:
        >>> folder = getfixture("tmp_path") / "model"
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones", name="sum")])
        >>> save(model, folder)
        >>> predict = load(folder).signatures["serving_default"]
        >>> {name: value.tolist() for name, value in predict(keras.ops.ones((1, 2))).items()}
        {'sum': [[2.0]]}
    """
    folder = os.fspath(export_dir)
    if writing.is_in(folder) and not os.path.exists(os.path.join(folder, FILE)):
        return loading.load(folder)
    model = tf_keras.models.load_model(folder, compile=False)
    return LoadedModel(model, loading.signatures_of_model(folder, model) if writing.is_in(folder) else None)


def contains_saved_model(export_dir: str | os.PathLike[str]) -> bool:
    """Return whether a folder holds something that `load` can read."""
    folder = os.fspath(export_dir)
    return os.path.exists(os.path.join(folder, FILE)) or writing.is_in(folder)


__getattr__ = explaining(__name__)
