"""Generations with tasks that start no process: what each of them gets, and what follows it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from stratagem.core.clock import Clock
from stratagem.core.counters import CountersFile
from stratagem.launch import generations
from stratagem.launch.generations import Run
from stratagem.launch.machine import Machine
from stratagem.launch.output import TaskLog
from stratagem.launch.plan import Request, TaskPlan
from stratagem.launch.restart import Restarts
from stratagem.launch.supervise import Supervisor


class Group:
    """Stands for `run_tasks`: each generation ends as it was told, worker 0 after so many steps."""

    def __init__(self, *ends: tuple[int, int], joins: bool = True, keeps_folder: bool = True) -> None:
        self._ends = list(ends)
        self._joins = joins
        self._keeps_folder = keeps_folder
        self.tasks: list[list[TaskPlan]] = []

    def __call__(self, tasks: Sequence[TaskPlan], logs: Mapping[str, TaskLog], *_: object, **__: object) -> Supervisor:
        self.tasks.append(list(tasks))
        code, steps = self._ends.pop(0)
        file = CountersFile(Path(tasks[0].environment["STRATAGEM_COUNTERS_FILE"]))
        file.stepped(steps)
        if self._joins:
            file.join()
        logs["worker 0"].write([f"ended with {code}"])
        for log in () if self._keeps_folder else list(logs["worker 0"].path.parent.iterdir()):
            log.unlink()
        supervisor = Supervisor([task.name for task in tasks], 1.0, Clock())
        supervisor.ended({"worker 0": code})
        return supervisor


def run(group: Group, restarts: Restarts, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Run, int]:
    monkeypatch.setattr(generations, "run_tasks", group)
    request = Request(("train.py",), workers=2)
    each = Run(request, restarts, Machine((0, 1), 2), folder, grace_seconds=1.0, variables={})
    return each, each.run()


def test_a_run_that_ends_well_has_one_generation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group((0, 7))
    each, code = run(group, Restarts(), tmp_path, monkeypatch)

    assert (code, each.went_well, each.folder) == (0, True, tmp_path)
    assert [task.environment["STRATAGEM_GENERATION"] for task in group.tasks[0]] == ["1", "1"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["worker-0.log", "worker-1.log"]


def test_workers_that_never_met_are_told_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(Group((0, 7), joins=False), Restarts(), tmp_path / "apart", monkeypatch)[1] == 0
    assert "stratagem: 2 workers ended, and none of them made a MultiWorkerMirroredStrategy." in capsys.readouterr().err
    assert run(Group((3, 7), joins=False), Restarts(), tmp_path / "failed", monkeypatch)[1] == 3
    assert "MultiWorkerMirroredStrategy" not in capsys.readouterr().err
    assert run(Group((0, 7)), Restarts(), tmp_path / "together", monkeypatch)[1] == 0
    assert run(Group((0, 7), keeps_folder=False), Restarts(), tmp_path / "emptied", monkeypatch)[1] == 0
    assert capsys.readouterr().err == ""


def test_a_failure_is_followed_by_another_generation_with_logs_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    group = Group((3, 5), (0, 9))
    each, code = run(group, Restarts(at_most=1), tmp_path, monkeypatch)

    assert (code, each.went_well) == (0, False)
    assert [tasks[1].environment["STRATAGEM_GENERATION"] for tasks in group.tasks] == ["1", "2"]
    assert (tmp_path / "generation-1" / "worker-0.log").read_text() == "ended with 3\n"
    said = re.sub(r"\d+\.\d s", "T", capsys.readouterr().err)
    assert f"after step 5 ({tmp_path}/generation-1/worker-0.log). Generation 2 begins.\n" in said
    assert said.endswith("\ngeneration 2, 2 workers: ended well after T, after step 9\n")


def test_generations_without_a_step_go_on_with_fewer_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group((3, 0), (3, 0), (4, 0))
    _, code = run(group, Restarts(at_most=2, backoff_seconds=0.0, min_workers=1), tmp_path, monkeypatch)

    assert code == 4
    assert [[task.name for task in tasks] for tasks in group.tasks] == [["worker 0", "worker 1"]] * 2 + [["worker 0"]]
