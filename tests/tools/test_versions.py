"""The rows of `make versions`, what is read of their tests, and the page that is written. Nothing is installed here."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from tools.versions import __main__ as command
from tools.versions import environments
from tools.versions.matrix import Packages, Row, matrix, pip_commands
from tools.versions.page import Line, lines_of, page, table
from tools.versions.results import Report, read_report, verdict, wanting

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NEWEST = Row("3.13", Packages.NEWEST)


def case(name: str, inside: str = "") -> str:
    return f'<testcase classname="tests.unit.fit.test_bind" name="{name}" time="0.1">{inside}</testcase>'


def report(*cases: str) -> Report:
    return read_report(f'<?xml version="1.0"?><testsuites><testsuite>{"".join(cases)}</testsuite></testsuites>')


def test_rows_are_each_python_with_the_newest_the_floor_and_what_is_to_come() -> None:
    assert [(row.folder, row.is_release) for row in matrix(PROJECT)] == [
        ("3.11-newest", True),
        ("3.12-newest", True),
        ("3.13-newest", True),
        ("3.14-newest", True),
        ("3.11-oldest", True),
        ("3.13-basic", True),
        ("3.13-keras-nightly", False),
        ("3.13-jax-pre", False),
    ]


@pytest.mark.parametrize(
    ("packages", "expected"),
    [
        (Packages.OLDEST, ["install --constraint floor.txt --editable .[test]"]),
        (Packages.BASIC, ["install --upgrade --upgrade-strategy eager ."]),
        (
            Packages.KERAS_NIGHTLY,
            [
                "install --upgrade --upgrade-strategy eager --editable .[test]",
                "uninstall --yes keras",
                "install --pre --upgrade keras-nightly",
            ],
        ),
    ],
)
def test_what_pip_is_asked(packages: Packages, expected: list[str]) -> None:
    assert [" ".join(each) for each in pip_commands(packages, "floor.txt")] == expected


def test_the_extra_of_the_rows_has_what_the_tests_import() -> None:
    """And not the tools of `make lint`, which are 300 MB."""
    extras = PROJECT["optional-dependencies"]
    names = {requirement.partition(">=")[0] for requirement in extras["test"]}
    assert {"pytest", "pytest-timeout", "pytest-xdist", "grain"} <= names
    assert {requirement.partition(">=")[0] for requirement in extras["dev"]} == {
        "stratagem[docs,test]",
        "basedpyright",
        "ruff",
    }


def test_suite_is_there_and_chosen_as_in_the_makefile() -> None:
    for each in (*environments.SUITE, environments.BASIC_SUITE):
        assert (ROOT / each).exists(), each
    assert f"QUICK := {environments.QUICK}\n" in (ROOT / "Makefile").read_text()


def test_report_of_pytest_is_read() -> None:
    found = report(
        case("test_a"),
        case("test_b", '<failure message="KeyError: 1&#10;  more">long</failure>'),
        case("test_c", '<error message="failed on setup with x">long</error>'),
        case("test_d", '<skipped type="pytest.skip" message="needs an NVIDIA GPU">x</skipped>'),
        case("test_e", '<skipped type="pytest.xfail" message="Keras 3.16 scans itself">x</skipped>'),
    )
    name = "tests.unit.fit.test_bind::test_"
    assert found == Report(
        1,
        {f"{name}b": "KeyError: 1", f"{name}c": "failed on setup with x"},
        {f"{name}d": "needs an NVIDIA GPU", f"{name}e": "Keras 3.16 scans itself"},
    )


def test_file_that_cannot_be_imported_is_read() -> None:
    error = '<error message="collection failure">a.py:1: in x\nE   ImportError: cannot import name y\nE   more</error>'
    found = read_report(f'<testsuite><testcase classname="" name="tests.unit.a">{error}</testcase></testsuite>')
    assert found.failed == {"tests.unit.a": "ImportError: cannot import name y"}


@pytest.mark.parametrize(
    ("found", "code", "expected"),
    [
        (Report(10), 0, ("works", "10 tests")),
        (Report(10, {}, {"a": "needs an NVIDIA GPU"}), 0, ("works", "10 tests")),
        (
            Report(10, {}, {"a": "before\n JAX 0.8 | x", "b": "before JAX 0.8 / x"}),
            0,
            ("works with a note", "10 tests; left out: before JAX 0.8 / x (2)"),
        ),
        (
            Report(9, {"tests.unit.a::b": "KeyError: 1"}),
            1,
            ("**fails**", "1 of 10 tests: unit.a::b; most often: KeyError: 1 (1)"),
        ),
        (
            Report(0, {f"t::{number}": f"KeyError: {number // 5}" for number in range(8)}),
            1,
            ("**fails**", "8 of 8 tests: t::0, t::1, t::2, t::3, t::4, t::5, and 2 more; most often: KeyError: 0 (5)"),
        ),
        (Report(10), 124, ("**fails**", "pytest ended with exit code 124, before all tests had run")),
        (Report(0), 4, ("**fails**", "pytest ended with exit code 4, before all tests had run")),
        (Report(0), 0, ("**fails**", "pytest ended with exit code 0, before all tests had run")),
    ],
)
def test_verdict(found: Report, code: int, expected: tuple[str, str]) -> None:
    assert verdict(found, code) == expected


def test_what_a_machine_lacks_is_told_apart_from_versions() -> None:
    reports = [Report(1, {}, {"a": "no torch", "b": "no torch", "c": "Keras 3.16"}), Report(1, {}, {"a": "no torch"})]
    assert wanting(reports) == {"no torch": 2}


def test_page_is_read_as_it_was_written() -> None:
    lines = [
        Line(NEWEST.name, "3.13.0", "0.12.0.1", "0.12.0.1", "3.15.1", "2.5.5", "works", "10 tests", "2026-11-23"),
        Line("Python 3.14, newest releases", result="not tried", note="no Python 3.14 on this machine"),
    ]
    text = page(lines, {"needs an NVIDIA GPU": 4})
    assert lines_of(text) == {line.row: line for line in lines}
    assert table(lines) in text
    assert "in the last run: needs an NVIDIA GPU (4)." in text


def test_rows_that_were_not_run_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "PAGE", tmp_path / "versions.md")
    other = Row("3.12", Packages.NEWEST)
    versions = {"python": "3.12.1", "jax": "0.12.0.1", "jaxlib": "0.12.0.1", "keras": "3.15.1", "numpy": "2.5.5"}
    command.write([other, NEWEST], {other: (versions, Report(7), 0)})
    first = lines_of(command.PAGE.read_text())
    assert first[other.name].result == "works"
    assert first[NEWEST.name] == Line(NEWEST.name, result="not tried", note="not yet")

    command.write([other, NEWEST], {NEWEST: "no Python 3.13 on this machine"})
    second = lines_of(command.PAGE.read_text())
    assert second[other.name] == first[other.name]
    assert second[NEWEST.name].note == "no Python 3.13 on this machine"


def test_python_that_is_not_there_is_not_tried() -> None:
    assert command.try_row(Row("3.99", Packages.NEWEST), {}) == "no Python 3.99 on this machine"


def test_row_without_a_pre_release_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "_newest", lambda python, *options: "0.12.0.1")
    found = command.try_row(Row("3.13", Packages.JAX_PRE), {"3.13": "python3.13"})
    assert found == "the index has nothing newer than JAX 0.12.0.1"
