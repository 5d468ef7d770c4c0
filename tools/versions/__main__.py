"""`python -m tools.versions`: a suite of its own on each Python, JAX and Keras, and the table in docs/versions.md.

One row after another: an environment (in `.venv-versions`, kept for the next run), then the tests that stand on
versions. The page is written after each row. The exit code is 1 when a row of releases fails.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import time
import tomllib

from tools.versions.environments import ROOT, NotTriedError, make_environment, pythons, run_tests, versions_in
from tools.versions.matrix import Packages, Row, matrix
from tools.versions.page import Line, lines_of, page
from tools.versions.results import FAILS, NOT_TRIED, Report, one_line, verdict, wanting

PAGE = ROOT / "docs" / "versions.md"

Tried = tuple[dict[str, str], Report, int]
"""The versions of a row, what pytest did, and its exit code."""


def try_row(row: Row, found: dict[str, str]) -> Tried | str:
    """Run one row; return why where it cannot be tried.

    Args:
        row: The row.
        found: The Pythons of this machine, by version.
    """
    if row.python not in found:
        return f"no Python {row.python} on this machine"
    try:
        python = make_environment(row, found[row.python])
    except NotTriedError as error:
        return one_line(str(error))
    versions = versions_in(python)
    say(f"{row.name}: {', '.join(f'{name} {version}' for name, version in versions.items())}")
    return versions, *run_tests(row, python)


def line_of(row: Row, tried: Tried | str) -> Line:
    """Return the line of a row for the table."""
    today = f"{datetime.date.today():%Y-%m-%d}"
    if isinstance(tried, str):
        return Line(row.name, result=NOT_TRIED, note=tried, date=today)
    versions, report, code = tried
    result, note = verdict(report, code)
    return Line(row.name, **versions, result=result, note=note, date=today)


def write(rows: list[Row], tried: dict[Row, Tried | str]) -> dict[str, Line]:
    """Write the page: what was tried now, and of other rows what stood there. Return the lines of this run."""
    reports = [each[1] for row, each in tried.items() if not isinstance(each, str) and row.packages != Packages.BASIC]
    new = {row.name: line_of(row, each) for row, each in tried.items()}
    old = lines_of(PAGE.read_text()) if PAGE.exists() else {}
    missing = {row.name: Line(row.name, result=NOT_TRIED, note="not yet") for row in rows}
    lines = {**missing, **old, **new}
    PAGE.write_text(page([lines[row.name] for row in rows], wanting(reports)))
    return new


def say(message: str) -> None:
    """Tell the person who waits what happens."""
    print(f"== {message}", file=sys.stderr, flush=True)


def main() -> int:
    """Run the rows that were asked for; return 1 if one of releases failed."""
    rows = matrix(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [row.folder for row in rows]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="ROW", help="leave out the others")
    parser.add_argument("--list", action="store_true", help="print the names of the rows, and end")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(f"{row.folder:24} {row.name}" for row in rows))
        return 0
    found, tried, lines = pythons(), {}, {}
    for row in rows:
        if row.folder not in arguments.only:
            continue
        begin = time.monotonic()
        say(row.name)
        tried[row] = try_row(row, found)
        lines = write(rows, tried)
        line = lines[row.name]
        say(f"{row.name}: {line.result}, {(time.monotonic() - begin) / 60:.1f} minutes; {line.note}")
    return int(any(row.is_release and lines[row.name].result == FAILS for row in tried))


if __name__ == "__main__":
    sys.exit(main())
