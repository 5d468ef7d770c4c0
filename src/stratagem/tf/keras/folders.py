"""Models saved to folders, as in Keras 2, where `model.save("folder")` was the usual way.

The folder holds one file, `model.keras`: architecture, weights, and what the model was compiled with, so that a model
that is loaded trains on. It is there whole or not at all. TensorFlow's own programs do not read it.
Source of the semantics: https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/keras/Model#save
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, Final

import keras

from stratagem.checkpoint import file_names
from stratagem.core.errors import InputError

FILE: Final = "model.keras"
"""The file in a model's folder."""

MODULE: Final = "saved_model"
"""The file with functions and variables in a folder, without its ending (`stratagem.tf.saved_model`)."""

_FILES: Final = (".keras", ".h5", ".hdf5")


def saving_to_folders(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap `Model.save`: a name without an ending is a folder.

    Args:
        original: Keras's.
    """

    @functools.wraps(original)
    def save(
        self: Any,
        filepath: str | os.PathLike[str],
        overwrite: bool = True,
        save_format: str | None = None,
        include_optimizer: bool = True,
        signatures: Any = None,
        options: Any = None,
        save_traces: bool = True,
        **kwargs: Any,
    ) -> None:
        path = os.fspath(filepath)
        if save_format in ("h5", "hdf5") and not path.endswith(_FILES):
            path += ".h5"
        if path.endswith(_FILES) or "://" in path or kwargs.get("zipped") is False:
            if path.endswith(_FILES[1:]):
                kwargs["include_optimizer"] = include_optimizer
            original(self, path, overwrite, **kwargs)
            return
        folder = _checked(path)
        if signatures is not None:
            raise InputError(
                "model.save was given signatures.",
                "They would be missing from the folder.",
                "Write tf.saved_model.save(model, folder, signatures=...).",
            )
        os.makedirs(folder, exist_ok=True)
        original(self, os.path.join(folder, FILE), overwrite, **kwargs)
        file_names.file_of(os.path.join(folder, MODULE)).unlink(missing_ok=True)

    return save


def save_model(model: Any, filepath: str | os.PathLike[str], overwrite: bool = True, **options: Any) -> None:
    """Save a model (`tf.keras.models.save_model`).

    Args:
        model: The model.
        filepath: A file that ends in `.keras` or `.h5`; any other name is a folder.
        overwrite: Whether to replace an existing model without asking.
        options: The options of `Model.save` in Keras 2 (`save_format`, `include_optimizer`); others are accepted.

    Raises:
        InputError: The name of the folder is that of a file.

    Example:
        >>> import keras
        >>> folder = getfixture("tmp_path") / "model"
        >>> save_model(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]), folder)
        >>> load_model(folder).count_params()
        3
    """
    model.save(filepath, overwrite, **options)


def load_model(
    filepath: str | os.PathLike[str],
    custom_objects: Any = None,
    compile: bool = True,
    safe_mode: bool = True,
    options: Any = None,
) -> Any:
    """Return a model that was saved, compiled as it was (`tf.keras.models.load_model`).

    A folder needs no `custom_objects` for classes that are defined at the top level of the program or of a module that
    it has imported: Keras 2 needed none.

    Args:
        filepath: A file or a folder.
        custom_objects: The program's own classes and functions, by name.
        compile: Whether to compile it.
        safe_mode: Whether to refuse code in the file.
        options: Accepted as in TensorFlow.

    Raises:
        InputError: The folder holds no model, or a model of TensorFlow.
    """
    path = os.fspath(filepath)
    if os.path.isdir(path):
        path = file_of(path)
        custom_objects = {**_classes_of_program(path), **(custom_objects or {})}
    return keras.saving.load_model(path, custom_objects, compile, safe_mode)


def file_of(folder: str) -> str:
    """Return the file of a model in a folder; a folder in Keras's own format is returned unchanged.

    Raises:
        InputError: There is no model in it.
    """
    file = os.path.join(folder, FILE)
    if os.path.exists(file):
        return file
    if os.path.exists(os.path.join(folder, "saved_model.pb")):
        raise InputError(
            f"{folder!r} is a SavedModel of TensorFlow.",
            "Its graph runs in TensorFlow only.",
            "Load the model in TensorFlow, save its weights (model.save_weights('x.h5')), and load them into the model "
            "here.",
        )
    if not os.path.exists(os.path.join(folder, "config.json")):
        raise InputError(
            f"The folder {folder!r} contains no model. It contains {sorted(os.listdir(folder))[:5]}.",
            f"Give the folder that was given to model.save; it contains {FILE}.",
        )
    return folder


_OF_MODELS: Final = (
    *(keras.Layer, keras.Loss, keras.Metric, keras.Optimizer, keras.initializers.Initializer),
    *(keras.regularizers.Regularizer, keras.constraints.Constraint, keras.optimizers.schedules.LearningRateSchedule),
)
"""Classes whose subclasses a model's description may name."""


def _classes_of_program(file: str) -> dict[str, type]:
    """Return the classes of the program's own that a saved model names, by the names they are looked up by.

    Nothing is imported for it. A name that two classes have is left out: Keras then says what it looked for.
    """
    if not zipfile.is_zipfile(file):
        return {}
    with zipfile.ZipFile(file) as archive:
        described = json.loads(archive.read("config.json"))
    found: dict[str, set[type]] = {}
    for description in _descriptions(described):
        # Keras writes no module for classes of the program that runs.
        module, name = str(description["module"] or "__main__"), str(description["class_name"])
        kind = getattr(sys.modules.get(module), name, None)
        if module.partition(".")[0] != "keras" and isinstance(kind, type) and issubclass(kind, _OF_MODELS):
            found.setdefault(description.get("registered_name") or name, set()).add(kind)
    return {name: _loading(kinds.pop()) for name, kinds in found.items() if len(kinds) == 1}


def _loading(kind: Any) -> type:
    """Return what makes an object of a class from its description.

    Keras makes it from what `Layer.get_config` tells; a class whose `__init__` takes none of that is called without.
    """
    of_program = [base for base in kind.__mro__ if not base.__module__.startswith("keras.")]
    if len(inspect.signature(kind.__init__).parameters) > 1 or any("from_config" in vars(base) for base in of_program):
        return kind

    class Loading:
        @staticmethod
        def from_config(config: dict[str, Any]) -> Any:
            made = kind()
            made.trainable = config.get("trainable", True)
            return made

    Loading.__name__ = kind.__name__
    return Loading


def _descriptions(value: Any) -> Iterator[dict[str, Any]]:
    """Yield each description of an object in a model's."""
    if isinstance(value, dict):
        if {"module", "class_name"} <= value.keys():
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from _descriptions(part)


def _checked(folder: str) -> str:
    if os.path.isfile(folder):
        raise InputError(
            f"A model cannot be saved to the folder {folder!r}, because that is a file.",
            "Choose another name, or one that ends in .keras for a file.",
        )
    return folder
