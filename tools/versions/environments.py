"""The environment of a row, and the run of its tests."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Final

from tools.floor import lower_bounds
from tools.versions.matrix import Packages, Row, pip_commands
from tools.versions.results import Report, read_report

ROOT: Final = Path(__file__).parents[2]
CACHE: Final = ROOT / ".venv-versions"
"""Where the environments stay for the next run; `make clean` removes them."""

_UNITS: Final = (
    *("backup", "checkpoint", "compression", "core", "estimator", "feed", "fit", "keras", "loop", "mesh"),
    *("program", "ps", "replica", "strategy", "testing", "tf"),
)
SUITE: Final = (
    "tests/conformance",
    "tests/multiprocess",
    "tests/faults",
    "tests/examples",
    "tests/programs",
    *(f"tests/unit/{folder}" for folder in _UNITS),
    "tests/test_conftest.py",
    "tests/test_docs.py",
)
"""The tests that stand on versions; of these, what `make test` runs."""

QUICK: Final = "quick or not (multiprocess or thorough or table)"
BASIC_SUITE: Final = "tests/multiprocess/test_basic_install.py"

PYTHON_OF_PROGRAMS: Final = "STRATAGEM_TESTS_PYTHON"
"""Environment variable: the Python that tests of fresh environments run programs with (tests/fresh.py)."""

_SECONDS: Final = 25 * 60.0
"""No row takes longer, or it has failed."""

_VERSIONS: Final = """
import importlib.metadata, json, platform
def version(*names):
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return ""
found = {"jax": version("jax"), "jaxlib": version("jaxlib"), "keras": version("keras", "keras-nightly")}
print(json.dumps({"python": platform.python_version(), **found, "numpy": version("numpy")}))
"""


class NotTriedError(Exception):
    """A row cannot be tried here; the message is the reason."""


def pythons() -> dict[str, str]:
    """Return the path of each Python of this machine, by version."""
    done = subprocess.run(["sh", "tools/pythons.sh"], cwd=ROOT, capture_output=True, text=True, check=True)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


def make_environment(row: Row, python: str) -> Path:
    """Make the environment of a row, or bring it up to date, and return its Python.

    Args:
        row: The row.
        python: The interpreter to make it with.

    Raises:
        NotTriedError: No set of packages can be installed, or there is no pre-release.
    """
    if row.packages is Packages.JAX_PRE:
        _require_pre_release(python)
    own = CACHE / row.folder / "bin" / "python"
    if not own.exists():
        subprocess.run([python, "-m", "venv", str(own.parents[1])], check=True)
    constraints = own.parents[1] / "constraints.txt"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    constraints.write_text("\n".join(lower_bounds(project)) + "\n")
    for command in pip_commands(row.packages, str(constraints)):
        done = subprocess.run(
            [str(own), "-m", "pip", "--disable-pip-version-check", "--quiet", *command],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
            reason = errors[0].removeprefix("ERROR: ") if errors else f"exit code {done.returncode}"
            raise NotTriedError(f"pip {' '.join(command[:1])}: {reason}")
    return own


def versions_in(python: Path) -> dict[str, str]:
    """Return the versions of Python and of the packages of the table, by name."""
    done = subprocess.run([str(python), "-c", _VERSIONS], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def run_tests(row: Row, python: Path) -> tuple[Report, int]:
    """Run the tests of a row.

    Args:
        row: The row.
        python: The Python of its environment.

    Returns:
        What pytest did, and its exit code; 124 when it took too long.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        if row.packages is Packages.BASIC:  # has no pytest: this environment's runs programs with that one's Python
            command = [sys.executable, "-m", "pytest", BASIC_SUITE, "-n", "0", "-k", "not make_train"]
            variables = {**os.environ, PYTHON_OF_PROGRAMS: str(python)}
        else:
            side_by_side = ["-n", "auto", "--maxprocesses", "4", "--dist", "loadfile", "--no-loadscope-reorder"]
            command = [str(python), "-m", "pytest", *SUITE, *side_by_side, "-m", QUICK]
            variables = dict(os.environ)
        command += ["-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        code = _run_within(_SECONDS, command, variables)
        return (read_report(report.read_text()) if report.exists() else Report(0)), code


def _run_within(seconds: float, command: list[str], variables: dict[str, str]) -> int:
    process = subprocess.Popen(command, cwd=ROOT, env=variables, start_new_session=True)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return 124
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _require_pre_release(python: str) -> None:
    """Raise NotTriedError where the index has no pre-release of JAX behind its newest release."""
    newest = [_newest(python, *options) for options in ((), ("--pre",))]
    if newest[0] == newest[1]:
        raise NotTriedError(f"the index has nothing newer than JAX {newest[0]}")


def _newest(python: str, *options: str) -> str:
    command = [python, "-m", "pip", "index", "versions", "jax", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    first = done.stdout.partition("\n")[0]  # "jax (0.12.0.1)"
    return first.partition("(")[2].rstrip(")") or "unknown"
