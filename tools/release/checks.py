"""Checks of a release that need no network: the repository, the changelog, and what the built files hold."""

from __future__ import annotations

import re
import subprocess
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Final

_OF_WHEEL: Final = (
    "stratagem/py.typed",
    "stratagem/keras/layers.py",
    "stratagem/tf/math/__init__.pyi",
    "stratagem/guides/README.md",
    "stratagem/guides/SECURITY.md",
    "stratagem/guides/launching.md",
    "stratagem/demo/program.py",
    "stratagem/demo/digits.npz",
    "stratagem/demo/DIGITS.md",
)
"""Files that the wheel must have, beside its metadata: one of each kind."""

_OF_SDIST: Final = (
    *("pyproject.toml", "hatch_build.py", "README.md", "CHANGELOG.md", "LICENSE", "SECURITY.md", "tools/type_stubs.py"),
    *("src/stratagem/__init__.py", "src/stratagem/demo/digits.npz", "docs/README.md", "examples/multi_worker.py"),
    *("notebooks/one_line_changed.ipynb", "tests/conftest.py"),
)
_NOT_IN_WHEEL: Final = re.compile(r"(^|/)(tests?/|test_\w+\.py$|notebooks?/|conftest\.py$|__pycache__/)|\.(ipynb|pyc)$")
_MOST_BYTES: Final = 10_000_000
"""A wheel that is larger holds something that does not belong there."""


@dataclass(frozen=True)
class Check:
    """A line of the checklist.

    Args:
        name: What is looked at.
        problems: What is wrong, empty where nothing is.
        note: A figure, or what is left to the releaser.
    """

    name: str
    problems: tuple[str, ...] = ()
    note: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def __str__(self) -> str:
        note = f" ({self.note})" if self.note else ""
        return "\n".join(
            [f"[{'ok' if self.is_ok else 'NOT OK'}] {self.name}{note}", *(f"    {each}" for each in self.problems)]
        )


def repository(root: Path, version: str) -> Iterator[Check]:
    """Yield what there is to say of the repository.

    Args:
        root: The checkout.
        version: The version of the files that were built.
    """
    changed = _git(root, "status", "--porcelain").splitlines()
    yield Check("the tree is clean", tuple(changed[:10]))
    tags = _git(root, "tag", "--points-at", "HEAD").split()
    wanted = f"v{version}"
    problem = f"This commit has {', '.join(tags) or 'no tag'}; the files are of version {version}. git tag {wanted}"
    yield Check(f"the tag is {wanted}", () if wanted in tags else (problem,))
    yield changelog((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True).stdout


def changelog(text: str, version: str) -> Check:
    """Return whether the changelog has a dated section for a version, with something in it.

    Args:
        text: The changelog.
        version: The version.
    """
    found = re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$(.*?)(?=^## |\Z)", text, re.M | re.S)
    problem = f"It has no heading `## [{version}] - YYYY-MM-DD`: write it below `## [Unreleased]`."
    if found is not None:
        problem = "Its section holds no entry." if "\n- " not in found[1] else ""
    return Check(f"CHANGELOG.md has a section for {version}", (problem,) if problem else ())


def wheel(file: Path) -> Iterator[Check]:
    """Yield what there is to say of a wheel.

    Args:
        file: The wheel.
    """
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        info = next(name.partition("/")[0] for name in names if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode("utf-8"))
    licences = (f"{info}/licenses/LICENSE", f"{info}/licenses/src/stratagem/demo/DIGITS.md", f"{info}/entry_points.txt")
    yield Check("the wheel has what it needs", _missing(names, (*_OF_WHEEL, *licences)), f"{len(names)} files")
    wrong = tuple(f"It holds {name}." for name in names if _NOT_IN_WHEEL.search(name) and "/dist-info/" not in name)
    yield Check("the wheel holds neither tests nor notebooks", wrong[:10])
    size = file.stat().st_size
    yield Check("the wheel is small", () if size <= _MOST_BYTES else ("It is too large.",), f"{size / 1e6:.1f} MB")
    yield described(metadata)


def described(metadata: Message) -> Check:
    """Return whether the metadata say what an index of packages shows.

    Args:
        metadata: The file METADATA of a wheel.
    """
    wanted = {
        "License-Expression": "Apache-2.0 AND CC-BY-4.0",
        "Requires-Python": ">=3.11",
        "Description-Content-Type": "text/markdown",
    }
    problems = [
        f"{name} is {metadata[name]!r}, not {value!r}." for name, value in wanted.items() if metadata[name] != value
    ]
    classifiers = metadata.get_all("Classifier") or []
    versions = [f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)]
    problems += [
        f"It lacks the classifier {name}." for name in ("Typing :: Typed", *versions) if name not in classifiers
    ]
    urls = metadata.get_all("Project-URL") or []
    note = (
        "" if urls else "no URL: write [project.urls] when the project has a public address, and README's links with it"
    )
    return Check("the metadata are complete", tuple(problems), note)


def sdist(file: Path) -> Check:
    """Return whether a source distribution has what a build and the tests need.

    Args:
        file: The archive.
    """
    with tarfile.open(file) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    size = f"{len(names)} files, {file.stat().st_size / 1e6:.1f} MB"
    return Check("the sdist has what a build needs", _missing(names, _OF_SDIST), size)


def _missing(names: Iterable[str], wanted: Iterable[str]) -> tuple[str, ...]:
    there = set(names)
    return tuple(f"It lacks {name}." for name in wanted if name not in there)
