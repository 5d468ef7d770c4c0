"""Files are divided among workers only where every batch keeps its rows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from stratagem.data import Dataset, TextLineDataset
from stratagem.data.sharding.whole_files import why_uneven


@pytest.fixture
def pattern(tmp_path: Path) -> str:
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text("line\n" * 6)
    return str(tmp_path / "*.txt")


def in_turn(pattern: str, **arguments: int) -> Dataset:
    return Dataset.list_files(pattern, shuffle=False).interleave(TextLineDataset, **arguments)


@pytest.mark.parametrize(
    ("build", "workers", "reason"),
    [
        (lambda files: in_turn(files, cycle_length=4).batch(8), 2, None),
        (lambda files: in_turn(files, cycle_length=4).map(len).batch(8), 4, None),
        (lambda files: in_turn(files, cycle_length=4).batch(8), 3, "4 files do not divide by 3 workers"),
        (lambda files: in_turn(files, cycle_length=2).batch(8), 2, "2 of the 4 files are read at a time"),
        (lambda files: in_turn(files, cycle_length=4).batch(6), 2, "a batch of 6 does not take as many"),
        (lambda files: in_turn(files, cycle_length=4, block_length=4).batch(16), 2, "a batch of 8 does not take"),
        (lambda files: in_turn(files, cycle_length=4).shuffle(4).batch(8), 2, "shuffle.. mixes the rows"),
        (lambda files: in_turn(files, cycle_length=4), 2, "batch.. is not the last step"),
        (lambda files: Dataset.range(8).batch(4), 2, "there are no files"),
        (lambda files: TextLineDataset(Dataset.list_files(files)).batch(4), 2, "list of files is not read in its"),
    ],
)
def test_reasons(pattern: str, build: Callable[[str], Dataset], workers: int, reason: str | None) -> None:
    found = why_uneven(build(pattern)._node, workers)
    assert found is None if reason is None else re.search(reason, str(found))
