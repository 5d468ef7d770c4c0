"""Functions that are named on a command line are found, or what is wrong with the name is said."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stratagem.core.errors import InputError
from stratagem.core.named import load

REMEDY = "Name a function that returns a dataset."

MODULE = """
from other_part import COUNT

numbers = 3

def dataset():
    return COUNT
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "their_training.py").write_text(MODULE)
    (tmp_path / "other_part.py").write_text("COUNT = 5\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("their_training", "other_part"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_a_function_of_a_file_or_a_module(folder: Path) -> None:
    by_path = load(f"{folder}/their_training.py:dataset", "--dataset", REMEDY)
    assert by_path() == 5
    assert load("their_training:dataset", "--dataset", REMEDY)() == 5, "the folder of the file is looked in"


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("train", "it does not name a module and a function"),
        ("no_such_module.train:dataset", "there is no module no_such_module"),
        ("{folder}/missing.py:dataset", "there is no file {folder}/missing.py"),
        ("{folder}/their_training.py:datasets", "their_training.py has no datasets; it has dataset"),
        ("{folder}/their_training.py:numbers", "numbers is not a function but int"),
    ],
)
def test_a_function_that_does_not_exist(folder: Path, place: str, found: str) -> None:
    place = place.format(folder=folder)
    with pytest.raises(InputError) as raised:
        load(place, "--dataset", REMEDY)
    said = str(raised.value)
    assert said.startswith(f"--dataset {place}: ")
    assert found.format(folder=folder) in said
    assert said.endswith(f"What to do: {REMEDY}")
