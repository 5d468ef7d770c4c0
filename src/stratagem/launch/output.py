"""Output of the tasks: from the bytes that they write to one readable terminal and one log for each task.

Lines of different tasks never mix. A progress bar rewrites its line with carriage returns: the
chief's is shown live at the foot of the terminal, and of every bar only the last state becomes a line.
"""

from __future__ import annotations

import codecs
import io
import os
import re
import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Final, TextIO

from stratagem.core.errors import explain
from stratagem.launch.supervise import Failure

_LONGEST_TAIL: Final = 60
"""Lines of a failed task that are shown again: a JAX traceback fits, and the heading stays on the screen."""

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_NOISE = re.compile(r"\[Gloo\] Rank \d+ is connected to ")
"""What Gloo prints of every new group of processes; it knows no way to be quiet. The log keeps it."""

_TRACEBACK: Final = "Traceback (most recent call last):"
_COLOURS: Final = (36, 33, 35, 32, 34, 31)


class Lines:
    """Cut a stream of bytes into lines, as a terminal would show them at their end."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""

    @property
    def unfinished(self) -> str:
        """The line that has no line break yet, as it looks now."""
        return _settled(self._rest)

    def feed(self, data: bytes) -> list[str]:
        """Take bytes; return the lines that they finish."""
        *finished, self._rest = (self._rest + self._decoder.decode(data)).split("\n")
        # A bar that is redrawn for hours must not pile up: only its last state can still matter.
        if len(self._rest) > 4096:
            self._rest = "\r" + _last_state(self._rest) if "\r" in self._rest else self._rest
        return [_settled(line) for line in finished]

    def close(self) -> list[str]:
        """Return what is left when the stream has ended, as a list of at most one line."""
        rest, self._rest = self._rest + self._decoder.decode(b"", final=True), ""
        return [_settled(rest)] if rest else []


def _last_state(line: str) -> str:
    """Return the part after the last carriage return that still shows something."""
    for state in reversed(line.split("\r")):
        if _plain(state).replace("\b", "").strip():
            return state
    return ""


def _settled(line: str) -> str:
    state = _last_state(line) if "\r" in line else line
    return state.replace("\b", "").replace("\x1b[K", "").rstrip()


@dataclass(eq=False)
class Screen:
    """The terminal or file that shows the lines of all tasks, each after the name of its task.

    Args:
        stream: A terminal or a file.
        names: Names of the tasks; each gets a colour.
        is_terminal: Whether a line can be shown live and in colour.
        colour: Whether to colour names.
        columns: Returns the width of the terminal.

    Attributes:
        is_gone: Whether nobody reads the stream any more (`stratagem run ... | head`).
    """

    stream: TextIO
    names: Iterable[str]
    _: KW_ONLY
    is_terminal: bool
    colour: bool
    columns: Callable[[], int] = lambda: shutil.get_terminal_size().columns
    is_gone: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self._live = ""
        self._prefixes = {
            name: f"\x1b[{_COLOURS[position % len(_COLOURS)]}m[{name}]\x1b[0m " if self.colour else f"[{name}] "
            for position, name in enumerate(self.names)
        }

    def columns_of(self, name: str) -> int:
        """Return how many columns are left for the text of a task."""
        return max(20, self.columns() - len(name) - 4)

    def show(self, name: str, lines: Iterable[str]) -> None:
        """Print finished lines of a task, above the live line if there is one."""
        text = "".join(
            f"{self._prefixes[name]}{line if self.colour else _plain(line)}\n"
            for line in lines
            if not _NOISE.match(line)
        )
        if text:
            self._write(self._erased() + text + self._live)

    def show_live(self, name: str, line: str) -> None:
        """Replace the live line. Does nothing when there is no terminal."""
        if self.is_terminal:
            erased = self._erased()
            line = line if self.colour else _plain(line)
            self._live = self._prefixes[name] + _truncated(line, self.columns_of(name)) if line else ""
            self._write(erased + self._live)

    def _erased(self) -> str:
        return "\r\x1b[K" if self._live else ""

    def _write(self, text: str) -> None:
        if self.is_gone:
            return
        try:
            self.stream.write(text)
            self.stream.flush()
        except BrokenPipeError:
            self.is_gone = True
            drop(self.stream)
        except OSError as error:
            drop(self.stream)
            tell(
                explain(
                    f"stratagem: standard output cannot be written any more: {error}.",
                    "From now on the output of the tasks is only in their logs. The tasks continue.",
                    "Make room on the disk, and keep logs with --log-dir.",
                )
            )


def drop(stream: TextIO) -> None:
    """Let nothing more be written to a stream that has failed; what Python still holds back for it is dropped too."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def tell(text: str) -> None:
    """Print a line of the launcher's own to standard error; where that cannot be written, go on without."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        drop(sys.stderr)


def _plain(line: str) -> str:
    return _ESCAPE.sub("", line)


def _truncated(line: str, columns: int) -> str:
    """Cut a line to a width without cutting through a colour; a line that wraps could not be redrawn."""
    if len(_plain(line)) <= columns:
        return line
    kept, width = [], 0
    for part in re.split(f"({_ESCAPE.pattern})", line):
        if _ESCAPE.fullmatch(part):
            kept.append(part)
        else:
            kept.append(part[: max(0, columns - width)])
            width += len(part)
    return "".join(kept)


class TaskLog:
    """The file that keeps the lines of one task, and the last of them.

    Args:
        path: The file, written anew.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("w", encoding="utf-8")
        self._is_lost = False
        self._last: deque[str] = deque(maxlen=_LONGEST_TAIL)

    def write(self, lines: Iterable[str]) -> None:
        """Add lines, at once readable in the file. Where the disk is full, say so once, and go on: tasks train."""
        plain = [_plain(line) for line in lines]
        self._last.extend(plain)
        if self._is_lost:
            return
        try:
            self._file.writelines(line + "\n" for line in plain)
            self._file.flush()
        except OSError as error:
            self._is_lost = True
            drop(self._file)
            tell(
                explain(
                    f"stratagem: the log {self.path} cannot be written any more: {error}.",
                    "From now on the output of the task is only shown here. The tasks continue.",
                    "Make room on the disk, or name another folder with --log-dir.",
                )
            )

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def tail(self) -> list[str]:
        """Return the last traceback and what follows it, or the last lines if there is none."""
        last = list(self._last)
        starts = [number for number, line in enumerate(last) if line.startswith(_TRACEBACK)]
        return last[starts[-1] :] if starts else last[-20:]


def failure_report(failure: Failure, log: TaskLog) -> str:
    """Return what is printed last when a task has failed.

    Args:
        failure: The first failure.
        log: The log of the task that failed.
    """
    others = {0: "", 1: " The other task was ended."}.get(
        failure.num_ended, f" The other {failure.num_ended} tasks were ended."
    )
    heading = f"== {failure.task} {failure.reason} after {failure.seconds:.1f} s.{others}"
    tail = log.tail()
    body = [f"Its last lines (all of them: {log.path}):", *tail] if tail else [f"It wrote nothing ({log.path})."]
    remedy = [f"  What to do: {failure.remedy}"] if failure.remedy else []
    return "\n".join(["", heading, *body, *remedy])


def stdout_screen(names: Iterable[str], *, no_color: bool) -> Screen:
    """Return the screen on standard output.

    Args:
        names: Names of the tasks.
        no_color: Whether the user wants no colours.
    """
    stream = sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        # Keras draws its bar in characters that a terminal of another encoding lacks.
        stream.reconfigure(errors="replace")
        if isinstance(stream.buffer, io.RawIOBase):
            # With PYTHONUNBUFFERED, the end of a task cuts a long write short, and nobody writes the rest.
            descriptor, encoding = stream.fileno(), stream.encoding
            stream = open(descriptor, "w", encoding=encoding, errors="replace", closefd=False)  # noqa: SIM115
    is_terminal = stream.isatty()
    return Screen(stream, names, is_terminal=is_terminal, colour=is_terminal and not no_color)
