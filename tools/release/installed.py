"""The wheel in a fresh environment, as somebody meets it who has set nothing: installed, tried, timed."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.release.checks import Check

_SMOKE: Final = """
import importlib.resources
import numpy as np
import stratagem
from stratagem import keras

stratagem.testing.virtual_devices(2)
with stratagem.MirroredStrategy().scope():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
x = np.linspace(-1, 1, 32, dtype="float32").reshape(16, 2)
losses = model.fit(x, x.sum(axis=1, keepdims=True), batch_size=8, epochs=20, verbose=0).history["loss"]
assert losses[-1] < 0.1 * losses[0], losses
assert importlib.resources.files("stratagem").joinpath("py.typed").is_file()
import stratagem.tf as tf
assert float(tf.reduce_sum(tf.constant([1.0, 2.0]))) == 3.0
print(stratagem.__version__, stratagem.__file__)
"""


class Step:
    """A command in the environment, and how long it took.

    Args:
        command: What to run.
        home: Its working folder and home, empty at first.
    """

    def __init__(self, command: list[str], home: Path) -> None:
        start = time.monotonic()
        done = subprocess.run(command, cwd=home, env=_variables(home), capture_output=True, text=True, check=False)
        self.seconds = time.monotonic() - start
        self.output = done.stdout
        last = (done.stdout + done.stderr).strip().splitlines()[-8:]
        self.problems = () if done.returncode == 0 else (f"It ended with exit code {done.returncode}.", *last)


def _variables(home: Path) -> dict[str, str]:
    """Return an environment with no more than a path, an empty home and where pip gets its packages."""
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name == "PATH"}
    return {**kept, "HOME": str(home), "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_CACHE_DIR": "1"}


def first_block(readme: str) -> str:
    r"""Return the first block of README that is marked to be run.

    Args:
        readme: The text of README.md.

    Example:
        >>> first_block("```sh\nls\n```\n```python run\nprint(1)\n```\n")
        'print(1)\n'
    """
    found = re.search(r"^```python run\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    return found[1] if found else "raise SystemExit('README.md has no block that is marked to be run')\n"


def tried(wheel: Path, version: str, python: str, python_version: str, readme: str, folder: Path) -> Iterator[Check]:
    """Yield what comes of a wheel in a fresh environment.

    Args:
        wheel: The wheel.
        version: Its version.
        python: The interpreter.
        python_version: Its version, for the checklist.
        readme: The text of README.md.
        folder: An empty folder for the environment and a home.
    """
    home, environment = folder / "home", folder / "environment"
    home.mkdir()
    subprocess.run([python, "-m", "venv", str(environment)], check=True, capture_output=True)
    own, stratagem = str(environment / "bin" / "python"), str(environment / "bin" / "stratagem")
    installed = Step([own, "-m", "pip", "install", "--quiet", str(wheel)], home)
    yield Check(f"{python_version}: pip install", installed.problems, f"{installed.seconds:.1f} s")
    if installed.problems:
        return
    shown = Step([stratagem, "--version"], home)
    said = shown.problems or (() if version in shown.output else (f"It says {shown.output.strip()!r}.",))
    yield Check(f"{python_version}: stratagem --version", said, f"{shown.seconds:.1f} s")
    guide = Step([stratagem, "help", "launching"], home)
    yield Check(f"{python_version}: stratagem help launching", guide.problems, f"{guide.seconds:.1f} s")
    demo = Step([stratagem, "demo"], home)
    result = re.search(r"On 360 digits it has not seen: .*", demo.output)
    problems = demo.problems or (() if result else ("It shows no accuracy.",))
    yield Check(f"{python_version}: stratagem demo", problems, f"{demo.seconds:.1f} s; {result[0] if result else ''}")
    smoke = Step([own, "-c", _SMOKE], home)
    inside = (str(environment) in smoke.output) or bool(smoke.problems)
    problems = smoke.problems if inside else (f"It ran another Stratagem: {smoke.output.strip()}.",)
    yield Check(f"{python_version}: smoke test", problems, f"{smoke.seconds:.1f} s")
    pasted = Step([own, "-c", first_block(readme)], home)
    yield Check(f"{python_version}: README's first block", pasted.problems, f"{pasted.seconds:.1f} s")
