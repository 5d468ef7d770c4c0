"""What README and docs say runs, and their links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


class Block(NamedTuple):
    """A block of Python in a page; one that begins with ```python run is run, others are compiled."""

    page: Path
    line: int
    is_run: bool
    code: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text()
        for found in re.finditer(r"^```python( run)?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            yield Block(page, text.count("\n", 0, found.start()) + 1, found[1] is not None, found[2])


BLOCKS = list(blocks())


@pytest.mark.parametrize("block", [block for block in BLOCKS if not block.is_run], ids=str)
def test_block_compiles(block: Block) -> None:
    assert compile(block.code, str(block), "exec").co_names != ()


@pytest.mark.multiprocess
@pytest.mark.parametrize("block", [block for block in BLOCKS if block.is_run], ids=str)
def test_block_runs(block: Block, tmp_path: Path) -> None:
    """In a process of its own: many set up the devices or the cluster of their process."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block.code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr


def anchors(page: Path) -> set[str]:
    """Return the names that headings of a page get on GitHub."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    broken = []
    for target in re.findall(r"\]\((?!\w+:)([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


def test_every_page_and_example_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    names = [page.name for page in (ROOT / "docs").glob("*.md") if page.name != "README.md"]
    examples = [f"../examples/{file.name}" for file in (ROOT / "examples").glob("*.py") if file.name != "digits.py"]
    assert [name for name in [*names, *examples] if f"({name})" not in index] == []
