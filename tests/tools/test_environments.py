"""Which Python the commands take, and where they put what they install. With Pythons that only say who they are."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

_FAKE = """#!/bin/sh
case "$*" in
    *base_executable*) readlink -f "$0" ;;
    *%d.%d*) echo {version} ;;
    *sys.exit*) exit 0 ;;
    --version) echo "Python {version}.0" ;;
    "-m venv "*) mkdir -p "$3/bin" && ln -s "$(readlink -f "$0")" "$3/bin/python" ;;
    *) echo "$*" >> "$LOG" ;;
esac
"""


class Machine:
    """A machine with some Pythons, and a copy of the tools.

    Args:
        folder: Where all of it lies.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path, self.pyenv, self.project = folder / "path", folder / "pyenv", folder / "project"
        for made in (self.path, self.pyenv / "versions", self.project):
            made.mkdir(parents=True)
        for name in (
            "bash",
            "cut",
            "dirname",
            "head",
            "ln",
            "make",
            "mkdir",
            "readlink",
            "rm",
            "sed",
            "sh",
            "sort",
            "tail",
            "touch",
        ):
            found = shutil.which(name)
            assert found is not None, name
            (self.path / name).symlink_to(found)
        for name in ("tools", ".ci"):
            shutil.copytree(ROOT / name, self.project / name)
        for name in ("Makefile", "pyproject.toml"):
            shutil.copy(ROOT / name, self.project)

    def has(self, version: str, name: str | None = None) -> Path:
        """Put a Python on the PATH, or, without a name, among pyenv's versions."""
        place = self.path / name if name else self.pyenv / "versions" / f"{version}.0" / "bin" / "python"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(_FAKE.format(version=version))
        place.chmod(0o755)
        return place

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        own = {"PATH": str(self.path), "PYENV_ROOT": str(self.pyenv), "LOG": str(self.folder / "log"), **variables}
        return subprocess.run(command, env=own, cwd=self.project, capture_output=True, text=True, check=False)

    @property
    def installs(self) -> list[str]:
        """What pip was asked to install."""
        return [line for line in (self.folder / "log").read_text().splitlines() if "install" in line]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_pythons_are_found_oldest_first_once_for_each_version(machine: Machine) -> None:
    newest, oldest = machine.has("3.13", "python3.13"), machine.has("3.11", "python3")
    between = machine.has("3.12")
    machine.has("3.13")
    assert machine.run("sh", "tools/pythons.sh").stdout == f"3.11 {oldest}\n3.12 {between}\n3.13 {newest}\n"


def test_python_that_is_too_old_or_does_not_run_is_none(machine: Machine) -> None:
    for name, text in {"python3.12": "#!/bin/sh\nexit 127\n", "python3": "#!/bin/sh\nexit 0\n"}.items():
        (machine.path / name).write_text(text)  # a name that pyenv has and did not choose; Python 3.10 prints nothing
        (machine.path / name).chmod(0o755)
    only = machine.has("3.13", "python3.13")
    assert machine.run("sh", "tools/pythons.sh").stdout == f"3.13 {only}\n"
    assert machine.run("sh", "tools/pythons.sh", "python3.12").returncode == 1


def test_python_that_is_asked_for_is_found_where_pyenv_keeps_it(machine: Machine) -> None:
    machine.has("3.11", "python3.11")
    kept = machine.has("3.13")
    assert machine.run("sh", "tools/pythons.sh", "python3.13").stdout == f"3.13 {kept}\n"
    assert machine.run("sh", "tools/pythons.sh", str(kept)).stdout == f"3.13 {kept}\n"
    assert machine.run("sh", "tools/pythons.sh", "python3.1").returncode == 1


def test_each_python_that_is_asked_for_has_its_own_folder(machine: Machine) -> None:
    machine.has("3.11", "python3.11")
    asked = machine.has("3.13", "python3.13")
    assert machine.run("make", "train").returncode != 0  # these Pythons bring no command stratagem
    assert machine.run("make", "train", "PYTHON=python3.13").returncode != 0
    assert machine.installs == ["-m pip install --quiet --editable .[examples]"] * 2
    assert (machine.project / ".venv/bin/python").resolve() == machine.path / "python3.11"
    assert (machine.project / ".venv-3.13/bin/python").resolve() == asked


def test_nothing_is_installed_twice_until_something_changes(machine: Machine) -> None:
    machine.has("3.12", "python3")
    for _ in range(2):
        assert machine.run("sh", "tools/install.sh", ".venv", "dev").returncode == 0
    assert machine.installs == ["-m pip install --quiet --editable .[dev]"]
    later = (machine.project / ".venv/installed-dev").stat().st_mtime + 1
    os.utime(machine.project / "pyproject.toml", (later, later))
    assert machine.run("sh", "tools/install.sh", ".venv", "dev").returncode == 0
    assert machine.installs == ["-m pip install --quiet --editable .[dev]"] * 2


def test_environment_of_another_interpreter_is_made_anew(machine: Machine) -> None:
    """The same version from somewhere else: pyenv's in place of the system's."""
    first, second = machine.has("3.13", "python3.13"), machine.has("3.13")
    for asked in (first, second):
        assert machine.run("make", "train", f"PYTHON={asked}").returncode != 0
        assert (machine.project / ".venv-3.13/bin/python").resolve() == asked


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ([], "make: no Python 3.11 or newer was found, on the PATH or among pyenv's versions."),
        (["PYTHON=python3.14"], "make: PYTHON=python3.14 is no Python 3.11 or newer that runs."),
    ],
)
def test_python_that_is_not_there_is_said(machine: Machine, asked: list[str], said: str) -> None:
    done = machine.run("make", "train", *asked)
    assert done.returncode == 2
    assert f"{said}\n  Why it matters: Stratagem needs Python 3.11.\n  What to do: install one" in done.stderr


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        (
            ["3.11", "3.12", "3.13"],
            ["test 3.11", "test-newest 3.13", "test-rest PART=1/16 3.11", "test-tpu-compile 3.11"],
        ),
        (["3.12"], ["test 3.12", "test-rest PART=1/16 3.12", "test-tpu-compile 3.12"]),
        ([], ["test"]),
    ],
)
def test_continuous_integration_takes_the_oldest_and_the_newest(
    machine: Machine, versions: list[str], expected: list[str]
) -> None:
    paths = {str(machine.has(version, f"python{version}")): version for version in versions}
    (machine.path / "make").unlink()
    (machine.path / "make").write_text('#!/bin/sh\necho "$@"\n')
    (machine.path / "make").chmod(0o755)
    done = machine.run("bash", ".ci/run")
    assert done.returncode == 0, done.stderr
    found = [line.split(" PYTHON=") for line in done.stdout.splitlines()]
    assert [" ".join([target, *(paths[path] for path in python)]) for target, *python in found] == expected
