from __future__ import annotations

import math
import os
from pathlib import Path

from tests.clock import HandClock

from stratagem.core.counters import Counters, CountersFile
from stratagem.core.progress import Phase, Progress
from stratagem.core.spent import Spent


def test_counters_can_be_read_by_others(tmp_path: Path) -> None:
    path, clock = tmp_path / "counters", HandClock(100.0)
    assert CountersFile.read(path) == Counters()
    progress = Progress(clock, CountersFile(path))
    assert CountersFile.read(path)._replace(since=0.0, loss=0.0) == Counters(loss=0.0, pid=os.getpid())
    clock.time = 103.0
    for _ in range(3):
        with progress.during(Phase.INPUT):
            clock.time += 0.5
        with progress.during(Phase.STEP, steps=2):
            clock.time += 1.0
            progress.exchanged(0.5, 0.25)
        clock.time += 0.25
    found = CountersFile.read(path)
    assert (found.steps, found.joined, found.counted) == (6, False, 108.0)
    assert found.moment > 1.6e9
    assert found.spent == Spent(starting=3.0, input=1.5, computing=1.5, exchanging=0.75, waiting=0.75, between=0.5)
    assert (Spent._fields[found.part], found.since) == ("between", 108.0)


def test_a_step_counts_also_for_who_joins(tmp_path: Path) -> None:
    path = tmp_path / "counters"
    progress = Progress(file=CountersFile(path))
    progress.enter(Phase.OUTSIDE, 1)
    progress.join()
    assert CountersFile.read(path)[:3:2] == (1, True)
    progress.enter(Phase.OUTSIDE, 1)
    assert CountersFile.read(path)[:3:2] == (2, True)


def test_a_loss_is_wanted_once_a_second(tmp_path: Path) -> None:
    path, clock = tmp_path / "counters", HandClock(50.0)
    progress = Progress(clock, CountersFile(path))
    assert math.isnan(CountersFile.read(path).loss)
    assert progress.wants_loss
    progress.note_loss(0.25)
    assert (CountersFile.read(path).loss, progress.wants_loss) == (0.25, False)
    clock.time = 51.0
    assert progress.wants_loss
    assert not Progress(clock).wants_loss


def test_what_waits_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "counters"
    progress = Progress(file=CountersFile(path))
    assert CountersFile.read(path)[-2:] == (-1, -1)
    progress.note_ready(3)
    progress.note_pending(70_000)
    assert (CountersFile.read(path).ready, CountersFile.read(path).pending) == (3, 70_000)
    Progress().note_ready(1)  # nobody looks


def test_a_file_of_another_kind_counts_nothing(tmp_path: Path) -> None:
    (tmp_path / "counters").write_bytes(b"short")
    assert CountersFile.read(tmp_path / "counters") == Counters()
