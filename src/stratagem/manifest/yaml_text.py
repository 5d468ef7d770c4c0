"""YAML with comments, written without a library: the base install has none, and the usual one drops comments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

WIDTH: Final = 100
"""A list of single values that fits is written in one line."""

_PLAIN: Final = re.compile(r"(?:-{0,2}[A-Za-z_/<$])(?:[\w./@$()<>%+=:-]*[\w./@$()<>%+=-])?")
"""Text that needs no quotes, wherever it stands: without blanks, commas, brackets of lists, and a colon at its end."""

_WORDS: Final = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n", "<<"))
"""Words that YAML takes for something else than text, in any case."""

_SINGLE_QUOTED: Final = re.compile(r"[\x20-\x26\x28-\x7e]*")
"""Text that may stand between single quotes as it is."""


class Note(NamedTuple):
    """A value with a comment above it.

    Args:
        value: What is written.
        text: The comment, one line or several.
    """

    value: Any
    text: str


class Anchor(NamedTuple):
    """A value that other places of the document refer to by `Merged`."""

    name: str
    value: Mapping[str, Any]


class Merged(NamedTuple):
    """The entries of an anchor, as value of the key "<<"."""

    name: str


def documents(head: str, *values: Any) -> str:
    """Return a file of YAML.

    Args:
        head: The comment at its top.
        *values: Its documents.

    Example:
        >>> print(documents("Two numbers.", {"a": 1}, {"b": Note(2, "the second")}))
        # Two numbers.
        a: 1
        ---
        # the second
        b: 2
        <BLANKLINE>
    """
    comment = "".join(f"{line}\n" for line in _comment(head, ""))
    return comment + "---\n".join("".join(f"{line}\n" for line in lines_of(value)) for value in values)


def lines_of(value: Any, indent: int = 0) -> Iterator[str]:
    r"""Yield the lines of a mapping or a list.

    Args:
        value: Mappings, lists, text, numbers, booleans and None; `Note` round any of them.
        indent: How many blanks stand before each line.

    Example:
        >>> print("\n".join(lines_of({"args": ["--epochs=3", "yes"], "env": [{"name": "A", "value": "1"}]})))
        args: [--epochs=3, "yes"]
        env:
          - name: A
            value: "1"
    """
    if isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _entry(f"{'<<' if isinstance(entry, Merged) else scalar(key)}:", entry, indent)
    else:
        for entry in value:
            yield from _item(entry, indent)


def scalar(value: Any) -> str:
    r"""Return a single value as YAML, in one line.

    Example:
        >>> [scalar(value) for value in ("train.py", "2", 2, True, None, 'say "no"', "no", "a: b")]
        ['train.py', '"2"', '2', 'true', 'null', '\'say "no"\'', '"no"', '"a: b"']
    """
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    if ('"' in value or "\\" in value) and _SINGLE_QUOTED.fullmatch(value):
        return f"'{value}'"
    return json.dumps(value, ensure_ascii=not value.isprintable())


def _entry(lead: str, value: Any, indent: int) -> Iterator[str]:
    """Yield the lines of one key with its value."""
    space = " " * indent
    if isinstance(value, Note):
        yield from _comment(value.text, space)
        value = value.value
    if isinstance(value, Anchor):
        lead, value = f"{lead} &{value.name}", value.value
    if isinstance(value, Merged):
        yield f"{space}{lead} *{value.name}"
    elif isinstance(value, str) and _is_block(value):
        yield f"{space}{lead} {'|' if value.endswith(chr(10)) else '|-'}"
        yield from (f"{space}  {line}".rstrip() for line in value.splitlines())
    elif not isinstance(value, Mapping | list | tuple):
        yield f"{space}{lead} {scalar(value)}"
    elif not value:
        yield f"{space}{lead} {'{}' if isinstance(value, Mapping) else '[]'}"
    elif (in_line := _in_line(value)) is not None and len(f"{space}{lead} {in_line}") <= WIDTH:
        yield f"{space}{lead} {in_line}"
    else:
        yield f"{space}{lead}"
        yield from lines_of(value, indent + 2)


def _item(value: Any, indent: int) -> Iterator[str]:
    """Yield the lines of one element of a list; what it begins with stands behind the dash."""
    if isinstance(value, Note):
        yield from _comment(value.text, " " * indent)
        value = value.value
    if not isinstance(value, Mapping) or not value:
        yield from _entry("-", value, indent)
        return
    has_begun = False
    for line in lines_of(value, indent + 2):
        is_comment = line.lstrip().startswith("#")
        if has_begun:
            yield line
        elif is_comment:
            yield line[2:]
        else:
            yield f"{' ' * indent}- {line[indent + 2 :]}"
        has_begun = has_begun or not is_comment


def _in_line(value: Any) -> str | None:
    """Return a list of single values in one line; None where it is something else."""
    if not isinstance(value, Sequence) or not all(_is_single(each) for each in value):
        return None
    return f"[{', '.join(map(scalar, value))}]"


def _is_single(value: Any) -> bool:
    return value is None or isinstance(value, int | float) or (isinstance(value, str) and "\n" not in value)


def _is_block(text: str) -> bool:
    """Whether text stands over several lines as it is: what is left of it by `|` or `|-` is the text itself."""
    lines = text.split("\n")
    clean = all(line.isprintable() and line == line.rstrip() for line in lines)
    return len(lines) > 1 and clean and bool(lines[0]) and lines[0][0] != " " and not text.endswith("\n\n")


def _comment(text: str, space: str) -> Iterator[str]:
    yield from (f"{space}# {line}".rstrip() for line in text.splitlines())
