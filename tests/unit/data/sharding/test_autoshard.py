"""Which policy is chosen, and what the log says of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from stratagem.core.errors import InputError
from stratagem.data import AutoShardPolicy, Dataset, Options, TextLineDataset
from stratagem.data.experimental import SHARD_HINT
from stratagem.data.sharding.autoshard import choose_policy, why_uneven

PLAIN = Dataset.range(8).batch(4)
HINTED = Dataset.range(8).shard(SHARD_HINT, SHARD_HINT).batch(4)


def options(policy: AutoShardPolicy) -> Options:
    out = Options()
    out.experimental_distribute.auto_shard_policy = policy
    return out


@pytest.mark.parametrize(
    ("policy", "dataset", "workers", "chosen", "reason"),
    [
        (
            AutoShardPolicy.AUTO,
            PLAIN,
            2,
            AutoShardPolicy.DATA,
            "auto-shard DATA (AUTO, as there are no files): each of 2 workers reads its rows of every batch",
        ),
        (
            AutoShardPolicy.DATA,
            PLAIN,
            3,
            AutoShardPolicy.DATA,
            "auto-shard DATA: each of 3 workers reads its rows of every batch",
        ),
        (
            AutoShardPolicy.OFF,
            PLAIN,
            2,
            AutoShardPolicy.OFF,
            "auto-shard OFF: each of 2 workers reads the whole dataset",
        ),
        (
            AutoShardPolicy.HINT,
            HINTED,
            2,
            AutoShardPolicy.HINT,
            "auto-shard HINT: each of 2 workers reads the part that shard(SHARD_HINT, SHARD_HINT) gives it",
        ),
        (
            AutoShardPolicy.DATA,
            PLAIN,
            1,
            AutoShardPolicy.DATA,
            "auto-shard DATA: the only worker reads its rows of every batch",
        ),
    ],
)
def test_choice(policy: AutoShardPolicy, dataset: Dataset, workers: int, chosen: AutoShardPolicy, reason: str) -> None:
    assert choose_policy(options(policy), dataset, workers)[:2] == (chosen, reason)


def test_rows_that_must_keep_their_order_are_not_divided_by_files() -> None:
    reason = (
        "auto-shard DATA (not FILE, as the order of the rows matters): each of 2 workers reads its rows of every batch"
    )
    choice = choose_policy(options(AutoShardPolicy.FILE), PLAIN, 2, in_order=True)
    assert choice[:2] == (AutoShardPolicy.DATA, reason)


@pytest.mark.parametrize(
    ("policy", "found", "remedy"),
    [
        (AutoShardPolicy.FILE, "FILE, but the dataset is not made of files; 2 workers", "DATA or AUTO"),
        (AutoShardPolicy.HINT, r"HINT, but the dataset has no shard\(SHARD_HINT", r"Write dataset\.shard\("),
    ],
)
def test_impossible(policy: AutoShardPolicy, found: str, remedy: str) -> None:
    with pytest.raises(InputError, match=rf"(?s){found}.*\n  What to do: .*{remedy}"):
        choose_policy(options(policy), PLAIN, 2)


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
