"""docs/versions.md: the page with the table, written whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, fields
from typing import Final

_HEADER: Final = ("row", "Python", "JAX", "jaxlib", "Keras", "NumPy", "result", "note", "date")

_PAGE: Final = """# Versions

The table shows which versions of Python, JAX and Keras were tested, and the result.

{table}

- *works*: all tests pass.
- *works with a note*: all tests pass, except those that are marked for this version, with the reason.
- *fails*: the failing tests are named.
- *not tried*: the reason is given.

Each Python has the newest packages that it supports, unless the row says otherwise. The oldest versions are the lower
bounds of `pyproject.toml`; `make test-floor` runs the whole suite on them.

`make versions` writes this page, so edits are lost. For each row it creates an environment, installs the packages, and
runs the tests that depend on versions: the seam into Keras, private names of JAX and Keras, the tape, the conformance
suite in this process and on two workers, parameter servers, checkpoints, the launcher, the names of TensorFlow, and the
programs of these pages.

{wanting}

```sh
make versions                                        # all rows, one after another
make versions VERSIONS_ARGS="--only 3.13-newest"     # one row; the others stay as they are in the table
make versions VERSIONS_ARGS=--list                   # the names of the rows
```
"""


@dataclass(frozen=True)
class Line:
    """One line of the table; what was not tried has no versions.

    Args:
        row: Its name.
        python: The version of Python, and so on.
        result: The verdict.
        note: What is to be known of it.
        date: The day of the run.
    """

    row: str
    python: str = ""
    jax: str = ""
    jaxlib: str = ""
    keras: str = ""
    numpy: str = ""
    result: str = ""
    note: str = ""
    date: str = ""


def table(lines: Iterable[Line]) -> str:
    """Return the table in Markdown.

    Example:
        >>> print(table([Line("Python 3.14, newest releases", result="not tried", note="no such Python here")]))
        | row | Python | JAX | jaxlib | Keras | NumPy | result | note | date |
        | --- | --- | --- | --- | --- | --- | --- | --- | --- |
        | Python 3.14, newest releases |  |  |  |  |  | not tried | no such Python here |  |
    """
    rows = [_HEADER, ("---",) * len(_HEADER), *map(astuple, lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def lines_of(page: str) -> dict[str, Line]:
    """Return the lines of a page's table, by row.

    Example:
        >>> line = Line("Python 3.13, newest releases", "3.13.0", "0.12.0.1", result="works", date="2026-11-23")
        >>> lines_of(table([line])) == {line.row: line}
        True
    """
    found = {}
    for text in page.splitlines():
        cells = [cell.strip() for cell in text.strip().removeprefix("|").removesuffix("|").split("|")]
        if len(cells) == len(fields(Line)) and cells[0] not in (_HEADER[0], "---"):
            found[cells[0]] = Line(*cells)
    return found


def page(lines: Iterable[Line], wanting: Mapping[str, int]) -> str:
    """Return the whole page.

    Args:
        lines: The lines of the table.
        wanting: Why tests were left out for want of something on the machine, and how many each.
    """
    reasons = "; ".join(f"{reason} ({count})" for reason, count in wanting.items())
    said = f"This machine lacks something for some tests. They were left out in the last run: {reasons or 'nothing'}."
    return _PAGE.format(table=table(lines), wanting=said)
