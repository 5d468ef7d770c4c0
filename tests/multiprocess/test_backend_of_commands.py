"""The command `stratagem` in a shell that asks for another backend: it runs, and so do the processes it starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fresh import run_python

pytestmark = pytest.mark.multiprocess

_WRONG = {"KERAS_BACKEND": "tensorflow", "JAX_PLATFORMS": "cpu"}
_SCRIPT = "from stratagem import keras\nprint('the task has', keras.backend.backend())\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--help"], "Train Keras models on many devices and many machines."),
        (["run", "--help"], "Run SCRIPT on every worker of a cluster."),
        (
            ["plan", "--parameters", "1000", "--step-ms", "5", "--workers", "2"],
            "0.0 MB of gradients; a step",
        ),
        (["migrate", "train.py"], "No use of TensorFlow was found."),
        (["doctor"], "ok"),
        (["run", "train.py"], "[worker 0] the task has jax"),
        (["top", "--help"], "Show where the tasks of a run spend their time."),
        (["replay", "--help"], "Run a step of SCRIPT again, and compare the results."),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_command_works(arguments: list[str], expected: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_SCRIPT)
    done = run_python("-m", "stratagem", *arguments, home=tmp_path, variables=_WRONG)
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout + done.stderr


def test_installed_command_works(tmp_path: Path) -> None:
    """The console script has the name of the command as its argument 0."""
    script = tmp_path / "stratagem"
    script.write_text("import sys\nfrom stratagem.launch.cli import main\nsys.exit(main())\n")
    done = run_python(str(script), "--version", home=tmp_path, variables=_WRONG)
    assert (done.returncode, done.stdout[:19]) == (0, "stratagem, version "), done.stderr
