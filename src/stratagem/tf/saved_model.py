"""`tf.saved_model`: Keras models in folders, and what is loaded of them to predict with.

The folder is that of `model.save(folder)`: it holds `model.keras` (`stratagem.tf.keras.folders`). TensorFlow Serving
does not read it; `model.export` of Keras writes what servers take.
Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/saved_model
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import keras

from stratagem.core.errors import InputError
from stratagem.loop.function import function
from stratagem.mesh.mesh import Tree
from stratagem.tf import keras as tf_keras
from stratagem.tf.keras.folders import FILE
from stratagem.tf.namespace import explaining

DEFAULT_SERVING_SIGNATURE_DEF_KEY: Final = "serving_default"
"""The name of the one signature."""

SERVING: Final = "serve"
"""A tag, which is passed over."""


@dataclass(frozen=True)
class SaveOptions:
    """Accepted as in TensorFlow (`tf.saved_model.SaveOptions`), and without effect.

    Args:
        experimental_io_device: The device that writes.
        namespace_whitelist: Namespaces of operations.
        save_debug_info: Whether to save traces of calls.
        function_aliases: Names of functions.
        experimental_custom_gradients: Whether to save gradients of the program's own.
    """

    experimental_io_device: str | None = None
    namespace_whitelist: Any = None
    save_debug_info: bool = False
    function_aliases: Any = None
    experimental_custom_gradients: bool = True


@dataclass(frozen=True)
class LoadOptions:
    """Accepted as in TensorFlow (`tf.saved_model.LoadOptions`), and without effect.

    Args:
        allow_partial_checkpoint: Whether values may be missing.
        experimental_io_device: The device that reads.
        experimental_skip_checkpoint: Whether to leave values out.
    """

    allow_partial_checkpoint: bool = False
    experimental_io_device: str | None = None
    experimental_skip_checkpoint: bool = False


def save(obj: Any, export_dir: str | os.PathLike[str], signatures: Any = None, options: Any = None) -> None:
    """Save a model to a folder (`tf.saved_model.save`).

    Args:
        obj: A Keras model.
        export_dir: The folder.
        signatures: Accepted as in TensorFlow: there is one, the model's call.
        options: Accepted as in TensorFlow.

    Raises:
        InputError: It is no Keras model.
    """
    if not isinstance(obj, keras.Model):
        raise InputError(
            f"tf.saved_model.save was given a {type(obj).__name__}.",
            "Its functions are programs of this process; there is no file for them.",
            "Save a Keras model; or the variables alone, with tf.train.Checkpoint(obj=obj).write(path).",
        )
    tf_keras.models.save_model(obj, export_dir)


def load(export_dir: str | os.PathLike[str], tags: Any = None, options: Any = None) -> LoadedModel:
    """Load a model for prediction from the folder of `save` or `model.save` (`tf.saved_model.load`).

    Args:
        export_dir: The folder.
        tags: Accepted as in TensorFlow.
        options: Accepted as in TensorFlow.

    Raises:
        InputError: The folder holds no model, or one of TensorFlow's.

    Example:
        >>> folder = getfixture("tmp_path") / "model"
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones", name="sum")])
        >>> save(model, folder)
        >>> predict = load(folder).signatures["serving_default"]
        >>> {name: value.tolist() for name, value in predict(keras.ops.ones((1, 2))).items()}
        {'sum': [[2.0]]}
    """
    return LoadedModel(tf_keras.models.load_model(export_dir, compile=False))


def contains_saved_model(export_dir: str | os.PathLike[str]) -> bool:
    """Return whether a folder holds a model that `load` takes."""
    return os.path.exists(os.path.join(os.fspath(export_dir), FILE))


class LoadedModel:
    """A model that was loaded to predict with. A program that trains it loads it with `tf.keras.models.load_model`.

    Attributes:
        model: The Keras model.
        signatures: Its call under the name "serving_default": a function of the inputs, in order or by name, that
            returns the outputs by name.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._call = function(lambda inputs, training=False: model(inputs, training=training))
        self.signatures: Mapping[str, Any] = {DEFAULT_SERVING_SIGNATURE_DEF_KEY: self._by_name}

    def __call__(self, inputs: Tree, training: bool = False) -> Tree:
        """Return the model's outputs."""
        return self._call(inputs, training=training)

    @property
    def variables(self) -> list[Any]:
        """The model's variables."""
        return self.model.variables

    @property
    def trainable_variables(self) -> list[Any]:
        """Those that training changes."""
        return self.model.trainable_variables

    def _by_name(self, *inputs: Any, **named: Any) -> dict[str, Any]:
        given: Any = named or (inputs[0] if len(inputs) == 1 else list(inputs))
        if named and not isinstance(getattr(self.model, "input", None), dict):
            given = next(iter(named.values())) if len(named) == 1 else list(named.values())
        outputs = self._call(given)
        if isinstance(outputs, dict):
            return outputs
        leaves = keras.tree.flatten(outputs)
        return dict(zip(_names_of_outputs(self.model, len(leaves)), leaves, strict=True))


def _names_of_outputs(model: Any, count: int) -> list[str]:
    """Return the names of the layers that outputs come from, where it is known."""
    if isinstance(model, keras.Sequential):
        return [model.layers[-1].name]
    return getattr(model, "output_names", None) or [f"output_{i}" for i in range(count)]


__getattr__ = explaining(__name__)
