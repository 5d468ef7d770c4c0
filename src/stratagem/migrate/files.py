"""Find, read and write the files of programs."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import libcst as cst

from stratagem.core.errors import InputError
from stratagem.core.files import draft_of
from stratagem.migrate import notebook
from stratagem.migrate.findings import Finding, Kind, Place
from stratagem.migrate.program import Program, migrate
from stratagem.migrate.report import Located

_SUFFIXES: Final = (".py", ".ipynb")


@dataclass(frozen=True)
class Migrated:
    """A file and the result of migrating it.

    Args:
        path: Where it is.
        old: Its text.
        new: Its new text.
        encoding: The encoding of both.
        findings: The findings about it.
    """

    path: Path
    old: str
    new: str
    encoding: str
    findings: tuple[Located, ...]

    def write(self) -> None:
        """Replace the old text by the new text, completely or not at all.

        Raises:
            OSError: The file cannot be written.
        """
        file = self.path.resolve()  # a link stays a link
        with draft_of(file) as draft:
            draft.write_bytes(self.new.encode(self.encoding))
            draft.chmod(file.stat().st_mode)


def programs_in(paths: tuple[Path, ...]) -> Iterator[Path]:
    """Yield the Python files and notebooks that paths name; folders are read in alphabetical order.

    Hidden folders and virtual environments are left out.

    Args:
        paths: Files, whatever their names, and folders.
    """
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        for inner in sorted(path.iterdir()):
            is_left_out = inner.name.startswith((".", "__pycache__")) or (inner / "pyvenv.cfg").exists()
            if not is_left_out and (inner.is_dir() or inner.suffix in _SUFFIXES):
                yield from programs_in((inner,))


def migrate_file(path: Path) -> Migrated:
    """Return the result of migrating a file, without writing it.

    Args:
        path: A Python file, or a notebook (`.ipynb`).

    Raises:
        InputError: The file cannot be read, or is not Python.
    """
    text, encoding = _read(path)
    book = notebook.read(text) if path.suffix == ".ipynb" else None
    program = _migrate(text if book is None else book.program)

    def location(place: Place) -> str:
        if book is None:
            return f"{path}:{place.line}:{place.column}"
        cell, line = book.position(place.line)
        return f"{path}:cell {cell}:{line}:{place.column}"

    new = program.text
    if book is not None:
        new = text if program.text == book.program else book.text_with(program.text)
    findings = [Located(finding, tuple(map(location, finding.places))) for finding in program.findings]
    if book is not None and book.unread:
        unread = Finding(Kind.UNKNOWN, "a cell that is not Python", "The cell stays unchanged.", ())
        findings.append(Located(unread, tuple(f"{path}:cell {cell}:1:1" for cell in book.unread)))
    return Migrated(path, text, new, encoding, tuple(findings))


def _migrate(text: str) -> Program:
    """Return the result of migrating a program.

    Raises:
        InputError: It is not Python, or what became of it is not.
    """
    try:
        program = migrate(text)
    except cst.ParserSyntaxError as error:
        raise InputError(
            f"Line {error.raw_line} is not Python{_reason(text)}.",
            "Correct it, or run 2to3 if the program is for Python 2.",
        ) from error
    if program.text != text:
        try:
            ast.parse(program.text)
        except SyntaxError as error:
            raise InputError(
                f"The new text is not Python: {error}.",
                "The file would no longer run, so it stays as it is.",
                "Change its imports by hand, and report the program as an issue.",
            ) from error
    return program


def _reason(text: str) -> str:
    """Return Python's own syntax error of a program; nothing if this Python can parse it."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError) as error:
        return f": {error.msg if isinstance(error, SyntaxError) else error}"
    return ""


def _read(path: Path) -> tuple[str, str]:
    """Return the text of a file and its encoding, which a comment in its first lines may name."""
    try:
        data = path.read_bytes()
        encoding = "utf-8" if path.suffix == ".ipynb" else tokenize.detect_encoding(io.BytesIO(data).readline)[0]
        return data.decode(encoding), encoding
    except OSError as error:
        raise InputError(f"The file cannot be read: {error.strerror}.", "Name a file that can be read.") from error
    except (SyntaxError, UnicodeDecodeError) as error:
        raise InputError(
            f"The file is not in the encoding that it declares, or not in UTF-8 if it declares none: {error}.",
            "Python would not run this file either.",
            "Save it as UTF-8, or name its encoding in its first line: # -*- coding: latin-1 -*-",
        ) from error
