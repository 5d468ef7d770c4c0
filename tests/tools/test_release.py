"""Checks of a release: on wheels, archives, changelogs and repositories that are made up, each with one thing wrong."""

from __future__ import annotations

import importlib.metadata
import io
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from tools.release import __main__ as release
from tools.release import checks, installed

import stratagem

ROOT = Path(__file__).parents[2]
INFO = "stratagem-1.2.3.dist-info"
METADATA = """\
Metadata-Version: 2.4
Name: stratagem
Version: 1.2.3
License-Expression: Apache-2.0 AND CC-BY-4.0
Requires-Python: >=3.11
Description-Content-Type: text/markdown
Classifier: Typing :: Typed
Classifier: Programming Language :: Python :: 3.11
Classifier: Programming Language :: Python :: 3.12
Classifier: Programming Language :: Python :: 3.13
"""
NEEDED = (*checks._OF_WHEEL, f"{INFO}/licenses/LICENSE", f"{INFO}/licenses/src/stratagem/demo/DIGITS.md")


def make_wheel(folder: Path, *names: str, without: str = "") -> Path:
    file = folder / "stratagem-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for name in {*NEEDED, f"{INFO}/entry_points.txt", *names} - {without}:
            archive.writestr(name, "")
        archive.writestr(f"{INFO}/METADATA", METADATA)
    return file


def problems(found: list[checks.Check]) -> list[str]:
    return [problem for check in found for problem in check.problems]


def test_a_wheel_that_is_complete(tmp_path: Path) -> None:
    found = list(checks.wheel(make_wheel(tmp_path, "stratagem/testing/devices.py")))
    assert [check.is_ok for check in found] == [True] * 4
    assert str(found[0]) == "[ok] the wheel has what it needs (14 files)"
    assert "no URL: write [project.urls]" in str(found[3])


@pytest.mark.parametrize("name", ["stratagem/py.typed", "stratagem/demo/digits.npz", f"{INFO}/licenses/LICENSE"])
def test_a_file_that_is_missing(name: str, tmp_path: Path) -> None:
    assert problems(list(checks.wheel(make_wheel(tmp_path, without=name)))) == [f"It lacks {name}."]


@pytest.mark.parametrize(
    "name",
    ["tests/conftest.py", "stratagem/test_x.py", "notebooks/a.md", "stratagem/a.ipynb", "stratagem/__pycache__/a.pyc"],
)
def test_a_file_that_does_not_belong_there(name: str, tmp_path: Path) -> None:
    assert problems(list(checks.wheel(make_wheel(tmp_path, name)))) == [f"It holds {name}."]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("Classifier: Typing :: Typed", "It lacks the classifier Typing :: Typed."),
        ("Requires-Python: >=3.11", "Requires-Python is None, not '>=3.11'."),
    ],
)
def test_metadata_that_lack_something(line: str, problem: str) -> None:
    assert checks.described(Parser().parsestr(METADATA.replace(f"{line}\n", ""))).problems == (problem,)


def test_url_is_no_longer_left_to_the_releaser() -> None:
    described = checks.described(Parser().parsestr(f"{METADATA}Project-URL: Source, https://example.org\n"))
    assert (described.is_ok, described.note) == (True, "")


def test_an_sdist_without_notebooks(tmp_path: Path) -> None:
    file = tmp_path / "stratagem-1.2.3.tar.gz"
    with tarfile.open(file, "w:gz") as archive:
        for name in checks._OF_SDIST:
            if not name.startswith("notebooks/"):
                archive.addfile(tarfile.TarInfo(f"stratagem-1.2.3/{name}"), io.BytesIO())
    assert checks.sdist(file).problems == ("It lacks notebooks/one_line_changed.ipynb.",)
    assert [name for name in checks._OF_SDIST if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("## [1.2.3] - 2026-11-28\n\n### Added\n- x\n\n## [1.2.2] - 2026-11-01\n", None),
        ("## [1.2.3] - 2026-11-28\n\n## [1.2.2] - 2026-11-01\n- x\n", "Its section holds no entry."),
        ("## [1.2.3]\n- x\n", "It has no heading `## [1.2.3] - YYYY-MM-DD`: write it below `## [Unreleased]`."),
    ],
)
def test_changelog(text: str, problem: str | None) -> None:
    check = checks.changelog(f"# Changelog\n\n## [Unreleased]\n\n{text}", "1.2.3")
    assert check.problems == (() if problem is None else (problem,))


def test_changelog_of_the_project_has_a_place_for_what_comes() -> None:
    assert "\n## [Unreleased]\n" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def git(folder: Path, *arguments: str) -> None:
    own = ["-c", "user.name=tests", "-c", "user.email=tests@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *own, *arguments], check=True, capture_output=True)


def test_a_repository_that_is_not_ready_and_one_that_is(tmp_path: Path) -> None:
    git(tmp_path, "init")
    (tmp_path / "CHANGELOG.md").write_text("## [Unreleased]\n\n## [1.2.3] - 2026-11-28\n- x\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "all")
    (tmp_path / "more").touch()
    git(tmp_path, "tag", "v1.2.2")
    assert problems(list(checks.repository(tmp_path, "1.2.3"))) == [
        "?? more",
        "This commit has v1.2.2; the files are of version 1.2.3. git tag v1.2.3",
    ]
    (tmp_path / "more").unlink()
    git(tmp_path, "tag", "v1.2.3")
    assert [str(check) for check in checks.repository(tmp_path, "1.2.3")] == [
        "[ok] the tree is clean",
        "[ok] the tag is v1.2.3",
        "[ok] CHANGELOG.md has a section for 1.2.3",
    ]


def test_the_block_that_is_pasted_is_the_first_of_readme_that_runs() -> None:
    block = installed.first_block((ROOT / "README.md").read_text("utf-8"))
    assert "from stratagem import" in block
    assert "has no block" in installed.first_block("# Title\n")


@pytest.mark.parametrize(
    ("version", "is_built_well", "code", "said", "unsaid"),
    [
        ("1.2.3", True, 0, "git push origin v1.2.3\n    python -m twine upload", "not ok"),
        ("1.2.4.dev3", True, 0, "Left to the releaser:", "twine upload"),
        ("1.2.3", False, 1, "1 checks are not ok: nothing to upload.", "twine upload"),
    ],
)
def test_the_end_says_what_to_do(
    version: str,
    is_built_well: bool,
    code: int,
    said: str,
    unsaid: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    check = checks.Check("all", () if is_built_well else ("It is not.",))
    built = Path(f"stratagem-{version}.tar.gz"), Path(f"stratagem-{version}-py3-none-any.whl")
    monkeypatch.setattr(release, "build", lambda folder: built)
    monkeypatch.setattr(release, "all_checks", lambda *arguments: iter([check]))
    monkeypatch.setattr(sys, "argv", ["tools.release"])
    assert release.main() == code
    out = capsys.readouterr().out
    assert said in out
    assert unsaid not in out


def test_version_is_the_one_that_is_installed() -> None:
    assert stratagem.__version__ == importlib.metadata.version("stratagem")
