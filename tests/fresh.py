"""Processes as somebody starts them who has set nothing: no variable but PATH, an empty home."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

WARNINGS = (
    "error",
    # Keras 3.15's own: the exceptions of pyproject.toml, which has the reasons.
    "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning",
    "ignore:Explicitly requested dtype int64 requested in ShapeDtypeStruct is not available:UserWarning",
    "ignore:Explicitly requested dtype float64 requested in ShapeDtypeStruct is not available:UserWarning",
)
"""What `python -W` is given."""

PYTHON = os.environ.get("STRATAGEM_TESTS_PYTHON", sys.executable)
"""`make versions` lets an environment without pytest run the programs."""

_LIGHT_START = str(Path(__file__).parent / "light_start")


def variables_of(home: Path) -> dict[str, str]:
    """Return the environment of such a process.

    Args:
        home: A folder that the process may write to.
    """
    # PYTHONPATH is for who tests a checkout that is not installed; the light start is for the tests' own processes.
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != _LIGHT_START]
    own = {"PYTHONPATH": os.pathsep.join(paths)} if paths else {}
    return {"PATH": os.environ["PATH"], "HOME": str(home), **own}


def run_python(
    *arguments: str, home: Path, variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python in a fresh environment; its warnings are errors.

    Args:
        arguments: What follows `python`.
        home: Home and working folder of the process.
        variables: What this user has set all the same.
    """
    return subprocess.run(
        [PYTHON, *(f"-W{warning}" for warning in WARNINGS), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=home,
        env=variables_of(home) | (variables or {}),
    )
