"""Backups of workers that may change: they save with the others, whoever is the chief, and a restarted run resumes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.faults.test_elastic_shards import ELASTIC, check, run
from tests.faults.trains_with_spares import STEPS

pytestmark = pytest.mark.multiprocess

ALL_AT_14 = [f"{rank}:14:SIGKILL" for rank in range(3)]


@pytest.mark.parametrize(
    ("options", "stage", "faults"),
    [
        (["--workers", "3"], "none", []),
        (["--workers", "3"], "none", ["0:5:SIGKILL"]),
        (["--workers", "3"], "parameters", ["1:7:SIGKILL"]),
        (ELASTIC, "optimizer", ["0:4:SIGKILL"]),
    ],
    ids=str,
)
def test_a_run_of_which_nobody_is_left_resumes(
    tmp_path: Path, options: list[str], stage: str, faults: list[str]
) -> None:
    """Also where another chief has saved than at the start, and where a worker that came later was among them."""
    spares = ["--spares", str(len(faults) or 1)] if options is not ELASTIC else []
    all_faults = [*faults, *ALL_AT_14]
    done = run([*options, *spares, "--max-restarts", "2"], tmp_path, stage, "backs-up", *all_faults)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    resumed = re.findall(r"Going on at epoch 2, behind batch (\d+), from a backup", said)
    assert resumed, said
    assert 12 - STEPS <= int(resumed[0]) <= 14 - STEPS  # a backup every three steps
    check(tmp_path, to_the_bit=options is not ELASTIC)
    assert not (tmp_path / "backup").exists()  # deleted at the end


def test_a_new_worker_overwrites_no_backup(tmp_path: Path) -> None:
    """The chief dies behind its first backup; the one that takes its place begins with nothing."""
    done = run(["--workers", "3", "--spares", "1"], tmp_path, "none", "backs-up", "0:4:SIGKILL", *ALL_AT_14)
    assert done.returncode == 43, done.stdout + done.stderr
    kept = sorted(file.name for file in (tmp_path / "backup").glob("backup-*"))
    assert len(kept) >= 2  # one may not have been deleted yet
    assert int(re.findall(r"\d+", kept[-1])[0]) >= 4


def test_the_only_worker_that_is_left_backs_up(tmp_path: Path) -> None:
    """It is no model outside the strategy, of which each worker would have another."""
    done = run(["--elastic", "1:2"], tmp_path, "none", "backs-up", "1:5:SIGKILL")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "World 2: 1 worker" in done.stderr
    check(tmp_path, to_the_bit=False)
