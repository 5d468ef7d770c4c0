"""The rows of the table: on which Python, with what installed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final


class Packages(Enum):
    """What is installed in the environment of a row."""

    NEWEST = "newest releases"
    OLDEST = "oldest supported"
    KERAS_NIGHTLY = "Keras's nightly build"
    JAX_PRE = "JAX's pre-release"
    BASIC = "newest releases, no extra"


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Args:
        python: The version of Python, as `3.13`.
        packages: What is installed.
    """

    python: str
    packages: Packages

    @property
    def name(self) -> str:
        """What the table calls it.

        Example:
            >>> Row("3.13", Packages.NEWEST).name
            'Python 3.13, newest releases'
        """
        return f"Python {self.python}, {self.packages.value}"

    @property
    def folder(self) -> str:
        """The name of its environment.

        Example:
            >>> Row("3.13", Packages.KERAS_NIGHTLY).folder
            '3.13-keras-nightly'
        """
        return f"{self.python}-{self.packages.name.lower().replace('_', '-')}"

    @property
    def is_release(self) -> bool:
        """Whether all packages are releases, so that the row must not fail."""
        return self.packages not in (Packages.KERAS_NIGHTLY, Packages.JAX_PRE)


NEXT_PYTHON: Final = "3.14"
"""Tried where it is there, before pyproject.toml names it."""


def matrix(project: dict[str, Any]) -> list[Row]:
    """Return all rows: each Python with the newest of all, the oldest of all, and what is to come.

    Args:
        project: The `[project]` table of pyproject.toml, whose classifiers name the Pythons.

    Example:
        >>> classifiers = ["Programming Language :: Python :: 3", "Programming Language :: Python :: 3.12"]
        >>> [row.name for row in matrix({"classifiers": classifiers})][:2]
        ['Python 3.12, newest releases', 'Python 3.14, newest releases']
    """
    found = (re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", each) for each in project["classifiers"])
    pythons = sorted((match[1] for match in found if match), key=lambda version: int(version.split(".")[1]))
    return [
        *(Row(python, Packages.NEWEST) for python in dict.fromkeys([*pythons, NEXT_PYTHON])),
        Row(pythons[0], Packages.OLDEST),
        Row(pythons[-1], Packages.BASIC),
        Row(pythons[-1], Packages.KERAS_NIGHTLY),
        Row(pythons[-1], Packages.JAX_PRE),
    ]


def pip_commands(packages: Packages, constraints: str) -> list[list[str]]:
    """Return what pip is asked to do in a new or an older environment of a row, one command after another.

    Args:
        packages: What is installed.
        constraints: The file with the oldest supported versions.

    Example:
        >>> pip_commands(Packages.BASIC, "")
        [['install', '--upgrade', '--upgrade-strategy', 'eager', '.']]
    """
    newest = ["install", "--upgrade", "--upgrade-strategy", "eager"]
    test = ["--editable", ".[test]"]
    if packages is Packages.BASIC:
        return [[*newest, "."]]
    if packages is Packages.OLDEST:
        return [["install", "--constraint", constraints, *test]]
    if packages is Packages.KERAS_NIGHTLY:  # its files lie where those of the release do
        return [[*newest, *test], ["uninstall", "--yes", "keras"], ["install", "--pre", "--upgrade", "keras-nightly"]]
    if packages is Packages.JAX_PRE:
        return [[*newest, *test], ["install", "--pre", "--upgrade", "jax", "jaxlib"]]
    return [[*newest, *test]]
