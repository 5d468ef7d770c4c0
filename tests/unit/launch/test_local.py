"""Tasks as processes of this machine: small ones that load nothing."""

from __future__ import annotations

import io
import os
import selectors
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from stratagem.core.clock import Clock, Deadline
from stratagem.core.errors import ClusterError, StartupError
from stratagem.launch.local import Signals, TaskProcess, bound_to, open_logs, run_tasks
from stratagem.launch.output import Screen
from stratagem.launch.plan import TaskPlan
from stratagem.launch.supervise import Supervisor

BARE = (sys.executable, "-I", "-S", "-c")


def task(index: int, *command: str) -> TaskPlan:
    return TaskPlan("worker", index, index == 0, command, {"OWN": str(index)})


def run(tasks: Sequence[TaskPlan], folder: Path) -> tuple[Supervisor, str]:
    logs, stream = open_logs(tasks, folder), io.StringIO()
    screen = Screen(stream, [each.name for each in tasks], is_terminal=False, colour=False)
    try:
        with Signals() as signals:
            outcome = run_tasks(tasks, logs, screen, grace_seconds=5.0, signals=signals, variables={"ALL": "a"})
    finally:
        for log in logs.values():
            log.close()
    return outcome, stream.getvalue()


def test_each_task_has_its_variables_and_its_log(tmp_path: Path) -> None:
    say = "import os; print(os.environ['ALL'] + os.environ['OWN'])"
    outcome, shown = run([task(0, *BARE, say), task(1, *BARE, say)], tmp_path)

    assert (outcome.exit_code, outcome.failure) == (0, None)
    assert sorted(shown.splitlines()) == ["[worker 0] a0", "[worker 1] a1"]
    assert (tmp_path / "worker-1.log").read_text() == "a1\n"


def test_the_first_failure_ends_the_other_task(tmp_path: Path) -> None:
    outcome, _ = run([task(0, *BARE, "import signal; signal.pause()"), task(1, *BARE, "raise SystemExit(3)")], tmp_path)

    assert outcome.exit_code == 3
    assert outcome.failure is not None
    assert (outcome.failure.task, outcome.failure.num_ended) == ("worker 1", 1)


def test_what_a_task_leaves_running_is_killed_with_it() -> None:
    child = f"subprocess.Popen([{sys.executable!r}, '-I', '-S', '-c', 'import signal; signal.pause()'])"
    reader, writer = os.pipe()
    process = TaskProcess(task(0, *BARE, f"import subprocess; {child}"), {}, writer)
    os.close(writer)
    deadline = Deadline(10.0)
    while process.returncode is None and not deadline.expired:
        pass
    assert process.returncode == 0
    with selectors.DefaultSelector() as selector:  # the child holds the pipe open as long as it lives
        selector.register(reader, selectors.EVENT_READ)
        assert selector.select(10.0)
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"worker 0 could not be started: .*no-such-command"):
        run([task(0, str(tmp_path / "no-such-command"))], tmp_path)


def test_a_log_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ClusterError, match=r"The log folder .*file/logs cannot be written"):
        open_logs([task(0)], tmp_path / "file" / "logs")


def test_interrupts_are_told_and_handlers_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Signals() as signals:
        assert signals.wait(0.0, Clock()) is None
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.wait(10.0, Clock()) == signal.SIGTERM
        assert signals.interrupts() == []
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no affinity")
def test_a_process_is_bound_only_while_it_is_started() -> None:
    before = os.sched_getaffinity(0)
    with bound_to([min(before)]):
        assert os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(0) == before
    with bound_to([]):
        assert os.sched_getaffinity(0) == before
