"""Findings about a program: each has a kind, a text, and the places it is about."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple


class Kind(enum.Enum):
    """Kinds of findings, in the order of the report."""

    MISSING = "missing"
    """The program would stop there."""
    REWRITE = "rewrite"
    """`stratagem migrate --write` changes it."""
    MEANING = "meaning"
    """It runs, but does something different than under TensorFlow."""
    UNKNOWN = "unknown"
    """The text of the program does not show what happens there."""
    WORKS = "works"
    """It needs no change."""


class Place(NamedTuple):
    """Position in a file: line and column, counted from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Finding:
    """One thing to know about a program.

    Args:
        kind: The kind of finding.
        what: The code that it is about, in short form: a full name (`tf.contrib.slim`), or a call.
        text: What is different, or what to write instead; empty if the code works.
        places: The places of this code, in the order of the text.
    """

    kind: Kind
    what: str
    text: str
    places: tuple[Place, ...]
