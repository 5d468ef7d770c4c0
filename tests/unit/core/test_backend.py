"""The backend is settled before Keras is loaded, and a wrong one is explained. In processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def _run(program: str, backend: str | None) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"}
    if backend is not None:
        variables["KERAS_BACKEND"] = backend
    return subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, timeout=50)


def test_stratagem_first_means_jax() -> None:
    result = _run("import stratagem, keras; print(keras.backend.backend())", None)
    assert result.stdout.strip() == "jax", result.stderr


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("import stratagem; stratagem.MirroredStrategy()", "would be loaded (KERAS_BACKEND is set) with the backend"),
        ("import keras, stratagem; stratagem.MirroredStrategy()", "was loaded with the backend 'numpy'"),
    ],
)
def test_another_backend_is_explained(program: str, found: str) -> None:
    result = _run(program, "numpy")
    assert result.returncode == 1
    assert found in result.stderr
    assert "set KERAS_BACKEND=jax" in result.stderr
