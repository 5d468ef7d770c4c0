"""The driver of `make bench`: its parts are real processes, its table ends up in README.md."""

from __future__ import annotations

import doctest
import os
import select
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

Script = Callable[[str], Any]


def write_script(folder: Path, body: str) -> Path:
    file = folder / "some_script.py"
    file.write_text(f"from figures import Figure\ndef figures(plots):\n    {body}\n")
    return file


def test_examples_of_the_table(script: Script) -> None:
    assert doctest.testmod(script("figures")) == (0, 3)


def test_part_returns_its_figures_and_draws_where_it_is_told(script: Script, tmp_path: Path) -> None:
    file = write_script(tmp_path, "(plots / 'a.png').touch(); return [Figure('a step', 'two', 2.5, 'ms', 1.25, 'one')]")

    found = script("suite").measured(file, 60, tmp_path)

    assert found == [script("figures").Figure("a step", "two", 2.5, "ms", 1.25, "one")]
    assert (tmp_path / "a.png").exists()


def test_part_that_fails_is_told_with_its_last_line(script: Script, tmp_path: Path) -> None:
    suite = script("suite")
    file = write_script(tmp_path, "raise ValueError('no such size')")

    with pytest.raises(suite.PartError, match="ended with exit code 1, ValueError: no such size"):
        suite.measured(file, 60, tmp_path)


def test_part_that_takes_too_long_is_ended(script: Script, tmp_path: Path) -> None:
    suite = script("suite")
    file = write_script(tmp_path, "import threading; threading.Event().wait()")

    with pytest.raises(suite.PartError, match=r"took longer than 0\.2 s"):
        suite.measured(file, 0.2, tmp_path)


def test_what_a_part_has_started_ends_with_it(script: Script, tmp_path: Path) -> None:
    child = "[sys.executable, '-c', 'import threading; threading.Event().wait()']"
    file = write_script(tmp_path, f"import subprocess, sys; return [Figure('', '', subprocess.Popen({child}).pid, '')]")

    [figure] = script("suite").measured(file, 60, tmp_path)

    try:
        process = os.pidfd_open(int(figure.value))
    except ProcessLookupError:
        return
    ended, _, _ = select.select([process], [], [], 10)
    os.close(process)
    assert ended == [process]


def test_others_run_when_one_fails(script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite, figures = script("suite"), script("figures")
    for name, body in (("good", "return [Figure('a step', 'one', 27.04, 'ms')]"), ("bad", "raise ValueError('no')")):
        write_script(tmp_path, body).rename(tmp_path / f"{name}.py")
    (tmp_path / "part.py").symlink_to(suite.HERE / "part.py")
    (tmp_path / "figures.py").symlink_to(suite.HERE / "figures.py")
    monkeypatch.setattr(suite, "HERE", tmp_path)
    monkeypatch.setattr(suite, "BUDGETS", {"bad": 60, "good": 60})

    found = suite.run(["bad", "good"], tmp_path)

    assert figures.table(found).splitlines()[2:] == [
        "| **failed** `bad.py`: ended with exit code 1, ValueError: no | | | |",
        "| **a step** `good.py` |         |       |    |",
        "| one                  | 27.0 ms |       |    |",
    ]


def test_suite_ends_in_15_minutes(script: Script) -> None:
    suite = script("suite")

    assert sum(suite.BUDGETS.values()) <= 15 * 60
    for name in suite.BUDGETS:
        assert "def figures(plots: Path) -> list[Figure]:" in (suite.HERE / f"{name}.py").read_text()


def test_readme_has_a_place_for_the_table(script: Script) -> None:
    figures = script("figures")
    page = (ROOT / "README.md").read_text()

    written = figures.with_block(page, "| new |")

    assert f"{figures.BEGIN}\n\n| new |\n\n{figures.END}" in written
    assert figures.with_block(written, "| newer |") == figures.with_block(page, "| newer |")


@pytest.mark.parametrize("marks", ["", "{begin}", "{end} {begin}", "{begin} {end} {begin}", "{begin} {end} {end}"])
def test_page_without_a_place_for_the_table_is_not_written(script: Script, marks: str) -> None:
    figures = script("figures")

    with pytest.raises(ValueError, match="once each, in this order"):
        figures.with_block(marks.format(begin=figures.BEGIN, end=figures.END), "| new |")
