"""The driver of `make bench`: its parts are real processes, its table ends up in README.md."""

from __future__ import annotations

import doctest
import os
import re
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
    file = write_script(tmp_path, "(plots / 'a.svg').touch(); return [Figure('a step', 'two', 2.5, 'ms', 1.25, 'one')]")

    found = script("suite").measured(file, 60, tmp_path)

    assert found == [script("figures").Figure("a step", "two", 2.5, "ms", 1.25, "one")]
    assert (tmp_path / "a.svg").exists()


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


def figures_in(script: Script, page: Path) -> dict[str, list[Any]]:
    """Return the figures of a table in a page, by script."""
    found: dict[str, list[Any]] = {}
    heading = name = ""
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) != 4 or cells[0].startswith("-") or cells[0] in ("measured", "strategy"):
            continue
        if title := re.fullmatch(r"\*\*(.+)\*\* `(\w+)\.py`", cells[0]):
            heading, name = title.groups()
        else:
            number, unit = cells[1].split()
            ratio = float(cells[2]) if cells[2] else None
            figure = script("figures").Figure(heading, cells[0], float(number.replace(",", "")), unit, ratio, cells[3])
            found.setdefault(name, []).append(figure)
    return found


def test_readme_shows_five_rows_of_the_run_that_it_links_to(script: Script) -> None:
    [linked] = re.findall(r"\[all figures of this run, and its plots\]\((.+?)\)", (ROOT / "README.md").read_text())
    whole = figures_in(script, ROOT / linked)

    shown = figures_in(script, ROOT / "README.md")

    assert script("suite").BUDGETS.keys() == whole.keys()
    assert shown == script("suite").for_readme(whole)
    assert sum(map(len, shown.values())) == 5


def test_readme_says_which_script_failed_and_leaves_out_peers_that_are_not_there(script: Script) -> None:
    suite, figure = script("suite"), script("figures").Figure
    heading = "step of the MNIST network"
    ours = figure(heading, "Stratagem, OneDeviceStrategy", 20.8, "ms", 0.99, "Keras on JAX")
    found = {
        "step_time": [figure(heading, "Keras on JAX", 21.1, "ms"), ours],
        "collectives": [figure("sum", "1 KiB", 1.0, "ms")],
        "parameter_servers": "took longer than 100 s",
    }

    assert suite.for_readme(found) == {"step_time": [ours], "parameter_servers": "took longer than 100 s"}


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
