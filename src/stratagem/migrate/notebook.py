"""Convert the code cells of notebooks to one program, and back."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from stratagem.core.errors import InputError

_MARK: Final = "# stratagem migrate: "
_HIDDEN: Final = re.compile(rf"^[ \t]*(?:pass  )?{_MARK}(.*)$", re.MULTILINE)
_END: Final = "# stratagem migrate, end of cell"
_MAGIC: Final = re.compile(r"\s*(%%?[a-zA-Z]|!(?!=)|\?|[\w.]+\?\??\s*$|[\w, ]+=\s*[%!])")
"""A line for IPython: `%matplotlib inline`, `!pip install x`, `files = !ls`, `tf.data?`."""
_OF_PYTHON: Final = re.compile(r"%%(time|timeit|capture|prun|writefile\s+(-a\s+)?\S+\.py)\b")
"""The first line of a cell whose other lines are Python."""


@dataclass(frozen=True)
class Notebook:
    """A notebook, and its program.

    Args:
        text: The text of the file.
        numbers: The cells that hold code, by their place among all cells, from 0.
        program: The code of these cells; lines for IPython are hidden in comments.
        unread: The cells that are not Python.
    """

    text: str
    numbers: tuple[int, ...]
    program: str
    unread: tuple[int, ...]

    def position(self, line: int) -> tuple[int, int]:
        """Return the place of a line of the program: its cell, counted from 1 among all cells, and its line in it."""
        before = self.program.split("\n")[: line - 1]
        ends = [number for number, text in enumerate(before) if text == _END]
        return self.numbers[len(ends)] + 1, line - (ends[-1] + 1 if ends else 0)

    def text_with(self, program: str) -> str:
        """Return the text of the file with a new program.

        Args:
            program: The new program, made from `self.program`.
        """
        content = json.loads(self.text)
        codes = program.split(f"{_END}\n")
        for number, code in zip(self.numbers, codes, strict=False):
            source = _HIDDEN.sub(lambda found: found[1], code).removesuffix("\n")
            cell = content["cells"][number]
            cell["source"] = source.splitlines(keepends=True) if isinstance(cell["source"], list) else source
        return _dump(content, self.text)


def read(text: str) -> Notebook:
    r"""Return a notebook.

    Args:
        text: The text of its file.

    Raises:
        InputError: It is not a notebook of format 4.

    Example:
        >>> cell = {"cell_type": "code", "source": ["%matplotlib inline\n", "import tensorflow as tf"]}
        >>> print(read(json.dumps({"nbformat": 4, "cells": [cell]})).program, end="")
        pass  # stratagem migrate: %matplotlib inline
        import tensorflow as tf
        # stratagem migrate, end of cell
    """
    try:
        cells = json.loads(text)["cells"]
        sources = {n: "".join(cell["source"]) for n, cell in enumerate(cells) if cell["cell_type"] == "code"}
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"This is not a notebook of format 4: {error!r}.",
            "Open the notebook with Jupyter and save it, or export it as a Python file.",
        ) from error
    codes, unread = [], []
    for number, source in sources.items():
        code = _code(source)
        if code is None:
            unread.append(number + 1)
            code = _all_hidden(source)
        codes.append(f"{code}\n{_END}\n")
    return Notebook(text, tuple(sources), "".join(codes), tuple(unread))


def _code(source: str) -> str | None:
    """Return the Python code of a cell; None if the cell is not Python."""
    if source.lstrip().startswith("%%") and not _OF_PYTHON.match(source.lstrip()):
        return _all_hidden(source)  # another language
    for code in (source, "\n".join(_without_magics(source.split("\n")))):
        try:
            ast.parse(code)
        except (SyntaxError, ValueError):
            continue
        return code
    return None


def _without_magics(lines: list[str]) -> Iterator[str]:
    """Yield lines, with lines for IPython and their continuations hidden in comments."""
    continues = False
    for line in lines:
        is_magic = continues or _MAGIC.match(line) is not None
        statement = "" if continues else f"{line[: len(line) - len(line.lstrip())]}pass  "
        yield f"{statement}{_MARK}{line}" if is_magic else line
        continues = is_magic and line.rstrip().endswith("\\")


def _all_hidden(source: str) -> str:
    return "\n".join(f"{_MARK}{line}" for line in source.split("\n"))


def _dump(content: dict[str, Any], old: str) -> str:
    """Return JSON in the style of the old text, so that only what is new differs."""
    old_content = json.loads(old)
    for indent in (1, 2, 4, 0, None):
        for ascii_only in (False, True):
            text = json.dumps(old_content, indent=indent, ensure_ascii=ascii_only)
            if text == old.rstrip("\n"):
                return json.dumps(content, indent=indent, ensure_ascii=ascii_only) + old[len(text) :]
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
