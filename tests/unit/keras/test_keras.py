"""`stratagem.keras` is Keras, at run time and for type checkers."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import assert_type

import keras
import pytest

import stratagem
import stratagem.keras
import stratagem.keras as keras_again
from stratagem import keras as keras_of_stratagem
from stratagem.keras import layers
from stratagem.keras.layers import Dense
from stratagem.keras.optimizers import Adam

FOLDER = Path(stratagem.__file__).parent / "keras"


def test_it_is_the_very_module() -> None:
    assert keras_of_stratagem is keras_again is stratagem.keras is keras
    assert layers is keras.layers
    assert Dense is keras.layers.Dense
    assert_type(Dense(3), keras.layers.Dense)  # what a type checker makes of it
    assert_type(keras_of_stratagem.layers.Dense(3), keras.layers.Dense)
    assert_type(Adam(0.1), keras.optimizers.Adam)


@pytest.mark.parametrize("name", ["layers", "optimizers.schedules", "datasets.mnist", "applications.resnet50"])
def test_modules_below_are_keras_own(name: str) -> None:
    before = importlib.import_module(f"keras.{name}")
    spec = before.__spec__
    assert importlib.import_module(f"stratagem.keras.{name}") is before
    assert importlib.import_module(f"keras.{name}") is before
    assert sys.modules[f"keras.{name}"] is before
    assert before.__spec__ is spec
    assert before.__name__ == f"keras.{name}"


def test_what_keras_does_not_have_is_not_there() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'keras\.nonsense'"):
        importlib.import_module("stratagem.keras.nonsense")
    with pytest.raises(ImportError, match=r"cannot import name 'Dese' from 'keras\.layers'"):
        exec("from stratagem.keras.layers import Dese")


def test_type_checkers_find_a_file_for_each_module_of_keras() -> None:
    home = Path(keras.__file__).parent
    modules = {file.parent.name for file in home.glob("*/__init__.py") if file.parent.name not in ("src", "_tf_keras")}
    files = {file.stem: file.read_text() for file in FOLDER.glob("*.py") if file.stem != "__init__"}
    assert modules - files.keys() == set()
    for name, text in files.items():
        assert text == (
            f'"""Names of `keras.{name}`, for type checkers."""\n\n'
            f"from keras.{name} import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]\n"
        )
