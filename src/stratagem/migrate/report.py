"""The report of `stratagem migrate`, for a person at a terminal."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import click

from stratagem.migrate.findings import Finding, Kind

_WIDTH: Final = 100
_PLACES: Final = 6
"""So many places of one finding are shown."""

_TITLES: Final = {
    Kind.MISSING: ("red", "Missing: the program stops here", "missing"),
    Kind.REWRITE: ("cyan", "Rewritten by --write", "to rewrite"),
    Kind.MEANING: ("yellow", "Means something else", "mean something else"),
    Kind.UNKNOWN: ("magenta", "Not clear from the text: check it", "to check"),
    Kind.WORKS: ("green", "Works as it is", "work as they are"),
}
"""For each kind its color, its title, and what the last line says of it."""


class Located(NamedTuple):
    """A finding of one file, with its places as terminals recognize them for links: `train.py:12:5`."""

    finding: Finding
    places: tuple[str, ...]


def report(located: Iterable[Located], *, is_written: bool = False) -> str:
    """Return all findings by kind, and a last line that counts them.

    Args:
        located: The findings of all files.
        is_written: Whether the files were rewritten.

    Example:
        >>> finding = Finding(Kind.MISSING, "tf.Session", "Call the function.", ())
        >>> click.echo(report([Located(finding, ("train.py:12:6", "train.py:30:6"))]))
        Missing: the program stops here
          train.py:12:6: tf.Session
              Call the function.
              also train.py:30:6
        <BLANKLINE>
        1 missing.
    """
    merged: dict[tuple[Kind, str, str], list[str]] = {}
    for finding, places in located:
        merged.setdefault((finding.kind, finding.what, finding.text), []).extend(places)
    parts, counts = [], []
    for kind in Kind:
        entries = [(what, text, places) for (of, what, text), places in merged.items() if of is kind]
        if not entries:
            continue
        color, title, counted = _TITLES[kind]
        if kind is Kind.REWRITE and is_written:
            title, counted = "Rewritten", "rewritten"
        lines = _names(entries) if kind is Kind.WORKS else [line for entry in entries for line in _entry(*entry)]
        parts.append("\n".join([click.style(title, fg=color, bold=True), *lines]))
        counts.append(click.style(f"{len(entries)} {counted}", fg=color))
    return "\n\n".join([*parts, f"{', '.join(counts)}." if counts else "No use of TensorFlow was found."])


def difference(path: str, old: str, new: str) -> str:
    r"""Return the changes of a file as a unified diff.

    Example:
        >>> click.echo(difference("a.py", "import tensorflow as tf\n", "import stratagem.tf as tf\n"), nl=False)
        --- a.py
        +++ a.py
        @@ -1 +1 @@
        -import tensorflow as tf
        +import stratagem.tf as tf
    """
    lines = difflib.unified_diff(old.splitlines(keepends=True), new.splitlines(keepends=True), path, path)
    return "".join(map(_colored, lines))


def _entry(what: str, text: str, places: list[str]) -> Iterator[str]:
    yield f"  {click.style(places[0], bold=True)}: {what}"
    yield from _wrapped(text, 6)
    if len(places) > 1:
        more = f" and {len(places) - _PLACES} more" if len(places) > _PLACES else ""
        yield from _wrapped(f"also {', '.join(places[1:_PLACES])}{more}", 6)


def _names(entries: list[tuple[str, str, list[str]]]) -> list[str]:
    """Return names that work, each with its lines, several in a row."""
    shown = [f"{what} ({_lines(places)})" for what, _, places in entries]
    return _wrapped(", ".join(shown), 2)


def _lines(places: list[str]) -> str:
    files = {place.split(":")[0] for place in places}
    if len(files) > 1:
        return f"{len(places)} places in {len(files)} files"
    lines = dict.fromkeys(place.partition(":")[2].rpartition(":")[0] for place in places)
    return ", ".join([*list(lines)[:_PLACES], *(["..."] if len(lines) > _PLACES else [])])


def _wrapped(text: str, indent: int) -> list[str]:
    """Return text in lines of the report's width; what is indented already is code, and stays in one line."""
    space = " " * indent
    wrapper = textwrap.TextWrapper(
        _WIDTH, initial_indent=space, subsequent_indent=space, break_on_hyphens=False, break_long_words=False
    )
    lines = [[space + line] if line.startswith(" ") else wrapper.wrap(line) for line in text.splitlines()]
    return [line for wrapped in lines for line in wrapped]


def _colored(line: str) -> str:
    color = {"+": "green", "-": "red"}.get(line[0])
    ended = line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
    return ended if color is None else click.style(ended, fg=color)
