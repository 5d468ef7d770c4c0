from __future__ import annotations

import os
import subprocess
import sys

import jax
import pytest

from stratagem.cluster import ending
from stratagem.cluster.ending import exit_code, leave_at_once_on_failure
from stratagem.core import exits
from stratagem.core.errors import CheckpointError, PeerError, StartupError, explain


class Peers:
    """Stands for the lifeline."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.waited = 0

    def wait_for_news(self, seconds: float) -> None:
        self.waited += 1

    def claim_end(self) -> bool:
        return True

    def fail(self, found: str) -> None:
        self.told.append(found)


@pytest.mark.parametrize(("error", "code"), [(ValueError("boom"), 1), (KeyboardInterrupt(), 130)])
def test_an_uncaught_exception_is_shown_told_and_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int
) -> None:
    shown: list[BaseException] = []
    codes: list[int] = []
    peers = Peers()
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: shown.append(error))
    leave_at_once_on_failure("worker 1", lambda: peers, codes.append)
    sys.excepthook(type(error), error, None)
    assert (shown, codes) == ([error], [code])
    assert capsys.readouterr().err == "stratagem: worker 1 failed:\n"
    assert peers.told == [f"worker 1 failed: {type(error).__name__}" + (": boom" if code == 1 else "")]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PeerError("differ"), exits.FAILED),
        (CheckpointError("the disk is full"), exits.FAILED),
        (CheckpointError("worker 0 could not save").of_peer(), exits.PEER_LOST),
        (StartupError("a task is missing"), exits.PEER_LOST),
        (KeyboardInterrupt(), exits.INTERRUPTED),
    ],
)
def test_the_exit_code_tells_whether_another_try_may_help(error: BaseException, code: int) -> None:
    assert exit_code(error) == code


WRITES = """
import os, sys
from stratagem.cluster.ending import exit_code
os.read(0, 1)
try:
    if sys.argv[1] == "own":
        ends = os.pipe()
        os.close(ends[0])
        os.write(ends[1], b"a pipe of the program")
    else:
        os.write(int(sys.argv[1]), b"words")
except BrokenPipeError as error:
    os._exit(exit_code(error))
"""


@pytest.mark.parametrize(
    ("written", "reads", "code"),
    [
        ("1", False, exits.PEER_LOST),
        ("2", False, exits.PEER_LOST),
        ("1", True, 0),
        ("own", True, exits.FAILED),
    ],
)
def test_a_task_whose_output_nobody_reads_has_not_failed(written: str, reads: bool, code: int) -> None:
    """Its launcher was killed. It may write before the guard ends it; a broken pipe of its own is its failure."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITES, written],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    ) as task:
        assert task.stdin is not None
        assert task.stdout is not None
        assert task.stderr is not None
        if not reads:
            task.stdout.close()
            task.stderr.close()
        task.stdin.write(b"1")
        task.stdin.close()
        assert task.wait(60.0) == code


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (jax.errors.JaxRuntimeError("UNKNOWN: Gloo all-reduce failed"), True),
        # The first run of a program raises the same as a ValueError (seen with jaxlib 0.10.2).
        (ValueError("UNKNOWN: Gloo all-reduce failed: Connection closed by peer [127.0.0.1]:63667"), True),
        (CheckpointError("worker 0 could not save").of_peer(), True),
        (CheckpointError("the disk is full"), False),
        (ValueError("UNKNOWN"), False),
        (TypeError("UNKNOWN: a program's own words"), False),
    ],
)
def test_a_failed_collective_waits_for_the_news_of_who_is_gone(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, waits: bool
) -> None:
    peers = Peers()
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: None)
    leave_at_once_on_failure("worker 1", lambda: peers, lambda code: None)
    sys.excepthook(type(error), error, None)
    assert peers.waited == waits


def test_a_lifeline_that_does_not_end_the_process_does_not_keep_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    codes: list[int] = []
    peers = Peers()
    monkeypatch.setattr(peers, "claim_end", lambda: False)
    monkeypatch.setattr(ending, "LAST_SECONDS", 0.0)
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: None)
    leave_at_once_on_failure("worker 1", lambda: peers, codes.append)
    sys.excepthook(ValueError, ValueError(), None)
    assert codes == [exits.FAILED]
    assert "worker 1 failed" in capsys.readouterr().err


def test_without_peers_only_a_failed_start_needs_our_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: None)
    leave_at_once_on_failure("worker 1", lambda: None, codes.append)
    sys.excepthook(ValueError, ValueError(), None)
    assert codes == []
    sys.excepthook(StartupError, StartupError("alone"), None)
    assert codes == [exits.PEER_LOST]


def test_a_hook_that_fails_itself_does_not_keep_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("hook")

    codes: list[int] = []
    monkeypatch.setattr(sys, "excepthook", broken)
    leave_at_once_on_failure("worker 1", Peers, codes.append)
    with pytest.raises(RuntimeError, match="hook"):
        sys.excepthook(ValueError, ValueError(), None)
    assert codes == [1]


def test_an_interactive_prompt_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[BaseException] = []
    codes: list[int] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: shown.append(error))
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    leave_at_once_on_failure("worker 1", Peers, codes.append)
    sys.excepthook(ValueError, ValueError(), None)
    assert (len(shown), codes) == (1, [])


def test_the_peers_are_told_what_failed_and_what_to_do_and_not_how_jax_shows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peers = Peers()
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: None)
    leave_at_once_on_failure("worker 1", lambda: peers, lambda code: None)
    error = TypeError("first line\nsecond line")
    error.add_note("For simplicity, JAX has removed its internal frames from the traceback\nof this exception.")
    error.add_note(explain("Each replica holds all.", "Divide it."))
    sys.excepthook(TypeError, error, None)
    told = "worker 1 failed: TypeError: first line\nsecond line\nEach replica holds all.\n  What to do: Divide it."
    assert peers.told == [told]
