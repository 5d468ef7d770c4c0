"""The launcher and its guard are killed at once: the tasks end, though nobody is left to end them."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stratagem.testing.launched import tasks_of

pytestmark = [pytest.mark.multiprocess, pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux has it")]

PROGRAM = """
import threading
import stratagem
stratagem.MultiWorkerMirroredStrategy()
print("trains", flush=True)
threading.Event().wait()
"""

SECONDS = 30_000
"""Longest time of a task after the launcher, in milliseconds: 0.1 s, and more on a busy machine."""


def guard_of(launcher: int) -> int:
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    return next(int(pid) for pid in children if b"guard.py" in Path(f"/proc/{pid}/cmdline").read_bytes())


def test_tasks_end_when_launcher_and_guard_are_killed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    launcher = subprocess.Popen(
        [sys.executable, "-m", "stratagem", "run", "--workers", "2", "--log-dir", str(tmp_path), str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with launcher:
        assert launcher.stdout is not None
        waiting = {"[worker 0] trains\n", "[worker 1] trains\n"}
        while waiting:
            line = launcher.stdout.readline()
            assert line, f"ended with {launcher.wait()}, and {waiting} did not come"
            waiting.discard(line)
        tasks = {name: os.pidfd_open(pid) for name, pid in tasks_of(launcher.pid).items()}
        os.kill(guard_of(launcher.pid), signal.SIGKILL)
        launcher.kill()
    assert sorted(tasks) == ["worker 0", "worker 1"]
    for name, descriptor in tasks.items():
        ended = select.poll()
        ended.register(descriptor, select.POLLIN)
        assert ended.poll(SECONDS) == [(descriptor, select.POLLIN)], f"{name} lives on"
        os.close(descriptor)
