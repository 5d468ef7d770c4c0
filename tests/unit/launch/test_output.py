from __future__ import annotations

import fcntl
import io
import os
import signal
import struct
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratagem.core.clock import Deadline
from stratagem.launch.output import Lines, Screen, TaskLog, failure_report, stdout_screen
from stratagem.launch.supervise import Failure


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([b"one\ntwo\n"], ["one", "two"]),
        ([b"on", b"e\r", b"\ntwo"], ["one", "two"]),
        ([b"\n\n"], ["", ""]),
        ([b"\r 1/2 [=>]", b"\b\b\b\b\r 2/2 [==]  \n"], [" 2/2 [==]"]),
        ([b"50%\r100%\r"], ["100%"]),
        ([b"\r\x1b[K 3/3 done\n"], [" 3/3 done"]),
        (["━".encode()[:1], "━".encode()[1:], b"\n"], ["━"]),
        ([b"\xff\n"], ["\ufffd"]),
    ],
)
def test_lines_are_what_a_terminal_shows_at_their_end(chunks: list[bytes], expected: list[str]) -> None:
    lines = Lines()
    found = [line for chunk in chunks for line in lines.feed(chunk)] + lines.close()

    assert found == expected


def test_unfinished_line_is_its_last_state() -> None:
    lines = Lines()
    lines.feed(b"Epoch 1/2\n\r 1/70 a\b\b\b\r 2/70")
    assert lines.unfinished == " 2/70"
    lines.feed(b"\r")
    assert lines.unfinished == " 2/70"


def test_a_bar_that_is_redrawn_for_ever_does_not_pile_up() -> None:
    lines = Lines()
    for step in range(10_000):
        lines.feed(f"\rstep {step}".encode())

    assert lines.unfinished == "step 9999"
    assert len(lines._rest) < 5000


def test_plain_screen_has_no_colours_and_nothing_live() -> None:
    stream = io.StringIO()
    screen = Screen(stream, ["worker 0"], is_terminal=False, colour=False)
    screen.show_live("worker 0", "50%")
    screen.show("worker 0", ["\x1b[1mbold\x1b[0m", "plain"])

    assert stream.getvalue() == "[worker 0] bold\n[worker 0] plain\n"


def test_lines_of_others_appear_above_the_live_line() -> None:
    stream = io.StringIO()
    screen = Screen(stream, ["worker 0", "worker 1"], is_terminal=True, colour=False, columns=lambda: 80)
    screen.show_live("worker 0", "50%")
    screen.show("worker 1", ["hello"])
    screen.show_live("worker 0", "")

    assert stream.getvalue() == "[worker 0] 50%\r\x1b[K[worker 1] hello\n[worker 0] 50%\r\x1b[K"


def test_live_line_never_wraps() -> None:
    stream = io.StringIO()
    screen = Screen(stream, ["worker 0"], is_terminal=True, colour=True, columns=lambda: 40)
    screen.show_live("worker 0", "\x1b[1m" + "x" * 100 + "\x1b[0m")

    assert stream.getvalue() == "\x1b[36m[worker 0]\x1b[0m \x1b[1m" + "x" * 28 + "\x1b[0m"


def test_screen_without_a_reader_goes_quiet() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as stream:
        screen = Screen(stream, ["worker 0"], is_terminal=False, colour=False)
        screen.show("worker 0", ["one"])
        assert screen.is_gone
        screen.show("worker 0", ["two"])


def test_a_full_disk_below_the_output_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with open("/dev/full", "w") as stream:
        screen = Screen(stream, ["worker 0"], is_terminal=False, colour=False)
        for line in ("one", "two"):
            screen.show("worker 0", [line])
    assert not screen.is_gone, "tasks go on"
    said = capsys.readouterr().err
    assert said.startswith("stratagem: standard output cannot be written any more: [Errno 28] No space left")
    assert said.count("What to do: Make room on the disk, and keep logs with --log-dir.\n") == 1


def test_a_full_disk_below_the_logs_ends_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "worker-0.log").symlink_to("/dev/full")
    log = TaskLog(tmp_path / "worker-0.log")
    for line in ("one", "two"):
        log.write([line])
    log.close()
    assert log.tail() == ["one", "two"]
    said = capsys.readouterr().err
    assert said.startswith(f"stratagem: the log {log.path} cannot be written any more: [Errno 28] No space left")
    assert said.count("What to do: Make room on the disk, or name another folder with --log-dir.\n") == 1


@pytest.fixture
def signalled() -> Iterator[threading.Event]:
    """An event that is set when a signal has been handled."""
    event = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: event.set())
    yield event
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("unbuffered", [True, False])
def test_a_signal_in_the_middle_of_a_write_loses_nothing(
    unbuffered: bool, signalled: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PYTHONUNBUFFERED makes standard output a stream whose writes may be short; each SIGCHLD can make them so."""
    reader, writer = os.pipe()
    lines = [f"{number} " + "x" * 500 for number in range(600)]
    read: list[bytes] = []

    def interrupt_and_read() -> None:
        size, deadline = fcntl.fcntl(reader, fcntl.F_GETPIPE_SZ), Deadline(10.0)
        while struct.unpack("i", fcntl.ioctl(reader, termios.FIONREAD, b"0000"))[0] < size and not deadline.expired:
            pass
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        signalled.wait(10.0)
        while data := os.read(reader, 65536):
            read.append(data)

    thread = threading.Thread(target=interrupt_and_read)
    thread.start()
    with open(writer, "wb", buffering=0 if unbuffered else -1) as raw:
        stdout = io.TextIOWrapper(raw, encoding="utf-8", write_through=unbuffered)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stdout)
            stdout_screen(["worker 0"], no_color=False).show("worker 0", lines)
        stdout.close()
    thread.join()
    os.close(reader)

    assert b"".join(read).decode().splitlines() == [f"[worker 0] {line}" for line in lines]


def test_log_keeps_plain_lines(tmp_path: Path) -> None:
    log = TaskLog(tmp_path / "worker-0.log")
    log.write(["\x1b[1mone\x1b[0m", "two"])
    log.close()

    assert log.path.read_text() == "one\ntwo\n"


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        ([f"step {number}" for number in range(30)], [f"step {number}" for number in range(10, 30)]),
        (
            ["Traceback (most recent call last):", "caught", "going on", "Traceback (most recent call last):", "E: x"],
            ["Traceback (most recent call last):", "E: x"],
        ),
    ],
)
def test_tail_is_the_last_traceback_or_the_last_lines(tmp_path: Path, lines: list[str], shown: list[str]) -> None:
    log = TaskLog(tmp_path / "worker-0.log")
    log.write(lines)
    log.close()

    assert log.tail() == shown


@pytest.mark.parametrize(
    ("num_ended", "others"),
    [(0, ""), (1, " The other task was ended."), (3, " The other 3 tasks were ended.")],
)
def test_failure_report(tmp_path: Path, num_ended: int, others: str) -> None:
    log = TaskLog(tmp_path / "worker-2.log")
    log.write(["E: x"])
    log.close()

    assert failure_report(Failure("worker 2", -9, 12.34, num_ended), log) == (
        f"\n== worker 2 was ended by SIGKILL after 12.3 s.{others}\n"
        f"Its last lines (all of them: {tmp_path}/worker-2.log):\nE: x\n"
        "  What to do: See whether the memory was full (`dmesg`, the scheduler's log). If it was, use less memory, "
        "or fewer workers."
    )


def test_failure_report_of_a_silent_task(tmp_path: Path) -> None:
    log = TaskLog(tmp_path / "worker-2.log")
    log.close()

    assert failure_report(Failure("worker 2", 1, 0.0), log).endswith(f"It wrote nothing ({tmp_path}/worker-2.log).")


@pytest.mark.parametrize(
    ("returncode", "remedy"),
    [(-signal.SIGKILL, "whether the memory was full"), (-signal.SIGSEGV, "native code"), (-signal.SIGTERM, "Ask who")],
)
def test_a_task_that_a_signal_ended_has_a_remedy(tmp_path: Path, returncode: int, remedy: str) -> None:
    log = TaskLog(tmp_path / "worker-1.log")
    log.close()
    report = failure_report(Failure("worker 1", returncode, 4.0), log)
    assert remedy in report.splitlines()[-1]
    assert report.splitlines()[-1].startswith("  What to do: ")
