from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stratagem.core.counters import CountersFile, file_of_other_hosts, resident_bytes
from stratagem.core.progress import Phase, Progress
from stratagem.core.spent import Spent
from stratagem.insight.samples import MOST_SAMPLES, History, Sample, rate, take_sample, take_samples


def sample(moment: float = 0.0, steps: int = 0, pid: int = 11, **others: object) -> Sample:
    """Return a sample of which only this matters."""
    return Sample(moment, moment, pid, steps, "computing", Spent(), math.nan, 0)._replace(**others)


def test_a_sample_counts_what_the_task_is_doing_until_now(tmp_path: Path) -> None:
    path = tmp_path / "counters"
    assert take_sample(path).pid == 0
    progress = Progress(file=CountersFile(path))
    assert take_sample(path).doing == "starting"
    with progress.during(Phase.STEP, steps=3):
        assert take_sample(path).doing == "computing"
    progress.note_loss(0.5)
    with progress.during(Phase.INPUT):
        first, second = take_sample(path), take_sample(path)
    assert (first.pid, first.steps, first.doing, first.loss) == (os.getpid(), 3, "input", 0.5)
    assert second.spent.input > first.spent.input > 0
    assert second.spent.computing == first.spent.computing > 0
    assert first.memory > 10 << 20
    progress.enter(Phase.ENDED)
    assert take_sample(path).doing == "ended"
    assert take_sample(path).spent == take_sample(path).spent


def test_a_task_that_was_killed_spends_nothing_more(tmp_path: Path) -> None:
    path = tmp_path / "counters"
    code = (
        "import sys; from pathlib import Path; from stratagem.core.counters import CountersFile; "
        "from stratagem.core.progress import Progress, Phase; p = Progress(file=CountersFile(Path(sys.argv[1]))); "
        "p.enter(Phase.STEP); p.enter(Phase.INPUT, 1)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    first, second = take_sample(path), take_sample(path)
    assert (first.steps, first.doing, first.memory) == (1, "ended", 0)
    assert first.spent == second.spent


def test_tasks_of_other_hosts_are_those_that_a_task_here_knows_of(tmp_path: Path) -> None:
    files = {"worker 0": tmp_path / "0.counters", "worker 1": tmp_path / "1.counters"}
    progress = Progress(file=CountersFile(files["worker 0"]))
    progress.enter(Phase.STEP, 3)
    assert list(take_samples(files)) == ["worker 0"]
    elsewhere = {"worker 0": sample(5.0, 9), "worker 2": sample(5.0, 4, 22, host="b", spent=Spent(input=2.0), loss=0.5)}
    file_of_other_hosts(files["worker 0"]).write_text(
        json.dumps({name: each.as_dict() for name, each in elsewhere.items()})
    )
    found = take_samples(files)
    assert (list(found), found["worker 0"].steps) == (["worker 0", "worker 2"], 3)
    assert found["worker 2"] == elsewhere["worker 2"]
    assert (found["worker 2"].title("worker 2"), found["worker 0"].title("worker 0")) == ("worker 2 (b)", "worker 0")
    file_of_other_hosts(files["worker 0"]).write_text("[half a li")
    assert list(take_samples(files)) == ["worker 0"]


def test_a_sample_goes_through_json() -> None:
    for loss in (0.25, math.nan, math.inf):
        before = sample(3.0, 7, loss=loss, spent=Spent(input=2.0), joined=True)
        after = Sample.from_dict(json.loads(json.dumps(before.as_dict(), allow_nan=False)))
        assert after._replace(loss=0.0) == before._replace(loss=0.0)
        assert after.loss == loss or (math.isnan(after.loss) and not math.isfinite(loss))


def test_a_history_stays_small_and_keeps_the_first_and_the_last() -> None:
    history = History()
    for moment in range(10 * MOST_SAMPLES):
        history.add(sample(float(moment)))
    moments = [each.moment for each in history.samples]
    assert len(moments) <= MOST_SAMPLES + 1
    assert (moments[0], moments[-1]) == (0.0, 10 * MOST_SAMPLES - 1)
    steps = {later - earlier for earlier, later in itertools.pairwise(moments[:-1])}
    assert steps == {16.0}


def test_a_rate_is_of_one_process() -> None:
    assert rate(sample(1.0, 10), sample(3.0, 20)) == pytest.approx(5.0)
    assert rate(sample(1.0, 10), sample(3.0, 2, pid=12)) == 0.0
    assert rate(sample(1.0), sample(1.0)) == 0.0


def test_the_memory_of_a_process_that_is_gone_is_not_known() -> None:
    assert resident_bytes(2**22 + 1) == 0
