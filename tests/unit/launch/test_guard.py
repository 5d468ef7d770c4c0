"""The guard with processes that only wait."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from stratagem.launch.guard import Guard, signal_group

Start = Callable[[str], subprocess.Popen[str]]
WAITS = "print(flush=True); signal.pause()"


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process at the head of a group of its own; it is ready when this returns."""
    started: list[subprocess.Popen[str]] = []

    def start(program: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-I", "-S", "-c", f"import signal; {program}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "\n"
        return process

    yield start
    for process in started:
        signal_group(process.pid, signal.SIGKILL)
        process.communicate()


def test_what_is_on_the_list_when_the_launcher_is_gone_is_ended(start: Start) -> None:
    listed, ended = start(WAITS), start(WAITS)
    reaper = threading.Thread(target=listed.wait)  # as the system does when a launcher is gone
    reaper.start()
    with Guard(10.0) as guard:
        for process in (listed, ended):
            guard.started(process.pid)
        guard.ended(ended.pid)
    reaper.join()
    assert listed.returncode == -signal.SIGTERM
    assert ended.poll() is None


def test_who_does_not_end_in_time_is_killed(start: Start) -> None:
    stubborn = start(f"signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITS}")
    with Guard(0.01) as guard:
        guard.started(stubborn.pid)
    assert stubborn.wait(10.0) == -signal.SIGKILL


def test_a_signal_to_nobody_says_so(start: Start) -> None:
    process = start(WAITS)
    assert signal_group(process.pid, 0)
    assert signal_group(process.pid, signal.SIGKILL)
    process.wait()
    assert not signal_group(process.pid, signal.SIGTERM)
