"""The programs in `tensorflow/` are written for TensorFlow: the tests run them, nobody imports them."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import pytest
from tests import translated

PROGRAMS = Path(__file__).parent / "tensorflow"

Run = Callable[..., dict[str, Any]]
"""Run a program, with texts of it replaced by others; return its variables."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    translated.data_at_hand(monkeypatch.setattr)

    def run_program(name: str, changes: dict[str, str] | None = None) -> dict[str, Any]:
        folder = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        monkeypatch.chdir(folder)
        keras.utils.set_random_seed(1)
        return runpy.run_path(str(translated.lay(PROGRAMS / name, folder, changes)), run_name="__main__")

    yield run_program
    keras.config.set_dtype_policy("float32")
    keras.utils.clear_session()
