from __future__ import annotations

from pathlib import Path

import pytest

from stratagem.cluster.hello import Peer
from stratagem.cluster.other_hosts import notes_other_hosts
from stratagem.cluster.spec import Task
from stratagem.cluster.watchdog import Standing
from stratagem.core.counters import CountersFile, file_of_other_hosts
from stratagem.core.progress import Phase
from stratagem.core.spent import Spent
from stratagem.insight.samples import take_samples

OWN, NEAR, FAR, SILENT = (Peer(Task("worker", index), host, 11 + index) for index, host in enumerate("aabb"))


def test_the_launcher_reads_what_tasks_of_other_hosts_do(tmp_path: Path) -> None:
    file = tmp_path / "worker-0.counters"
    CountersFile(file)
    spent = Spent(starting=1.0, computing=2.0)
    note = notes_other_hosts(OWN, {"STRATAGEM_COUNTERS_FILE": str(file)})
    note(
        [
            Standing(OWN, Phase.STEP, 8, clock=50.0),
            Standing(NEAR, Phase.STEP, 8, clock=50.0),
            Standing(FAR, Phase.STEP, 7, clock=70.0, loss=0.25, memory=1 << 20, spent=spent),
            Standing(SILENT),  # it has said nothing yet
        ]
    )
    found = take_samples({"worker 0": file})
    assert sorted(found) == ["worker 0", "worker 2"]
    far = found["worker 2"]
    assert (far.host, far.pid, far.steps, far.clock, far.joined) == ("b", 13, 7, 70.0, True)
    assert (far.doing, far.spent, far.loss, far.memory) == ("computing", spent, 0.25, 1 << 20)
    assert far.moment == pytest.approx(found["worker 0"].moment, abs=5.0)
    note([Standing(OWN), Standing(FAR, Phase.ENDED, 9, clock=71.0, silence=100.0)])
    later = take_samples({"worker 0": file})["worker 2"]
    assert (later.doing, later.steps) == ("ended", 9)
    assert far.moment - later.moment == pytest.approx(100.0, abs=5.0)
    CountersFile(file)  # the process that takes the place of one that was killed
    assert not file_of_other_hosts(file).exists()


def test_nothing_is_written_for_one_host_or_without_a_launcher(tmp_path: Path) -> None:
    file = tmp_path / "worker-0.counters"
    near, far = Standing(NEAR, clock=1.0), Standing(FAR, clock=1.0)
    notes_other_hosts(OWN, {"STRATAGEM_COUNTERS_FILE": str(file)})([near])
    notes_other_hosts(OWN, {})([near, far])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_gone_ends_nothing(tmp_path: Path) -> None:
    note = notes_other_hosts(OWN, {"STRATAGEM_COUNTERS_FILE": str(tmp_path / "gone" / "worker-0.counters")})
    note([Standing(FAR, clock=1.0)])
    assert list(tmp_path.iterdir()) == []
