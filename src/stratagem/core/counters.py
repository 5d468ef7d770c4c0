"""Counters of a process in a file: how far it has come, and what its seconds were spent on.

The process writes into memory that it maps, so a step costs about two microseconds more. The launcher reads the file
at any time, also when the process was killed. What is read while it is written is off by one step at most.
"""

from __future__ import annotations

import contextlib
import json
import math
import mmap
import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from stratagem.core.spent import Spent

LOSS_SECONDS: Final = 1.0
"""Seconds between two losses that are noted: to read one from a device costs more than to count."""

ENDED: Final = len(Spent._fields)
"""Place, behind those in `Spent`, of a process that has come to the end of its program."""

_PID: Final = struct.Struct("<Q")
_HEAD: Final = struct.Struct("<Qd?7x")
_PHASE: Final = struct.Struct("<Qd")
_SPENT: Final = struct.Struct(f"<d{len(Spent._fields)}d")
_LOSS: Final = struct.Struct("<d")
_WAITING: Final = struct.Struct("<i")
_HEAD_AT: Final = _PID.size
_PHASE_AT: Final = _HEAD_AT + _HEAD.size
_SPENT_AT: Final = _PHASE_AT + _PHASE.size
_LOSS_AT: Final = _SPENT_AT + _SPENT.size
_READY_AT: Final = _LOSS_AT + _LOSS.size
_PENDING_AT: Final = _READY_AT + _WAITING.size
_SIZE: Final = _PENDING_AT + _WAITING.size


class Counters(NamedTuple):
    """Notes of a process.

    Args:
        steps: Steps that it has finished.
        moment: When it finished the last one, in seconds since 1970; 0 before the first.
        joined: Whether it trains together with other processes.
        part: What it is doing, as a place in `Spent`; `ENDED` at the end of its program.
        since: When it began with that, in seconds of the system's monotonic clock.
        counted: When `spent` was counted, on the same clock; 0 where it was not yet.
        spent: Its seconds until then.
        loss: The latest loss; NaN where none is known.
        pid: The number of the process; 0 where it has noted nothing.
        ready: Batches that were read ahead when the last one was asked for; -1 if it reads none ahead.
        pending: Functions that it has scheduled on others and that have not ended; -1 if it schedules none.
    """

    steps: int = 0
    moment: float = 0.0
    joined: bool = False
    part: int = 0
    since: float = 0.0
    counted: float = 0.0
    spent: Spent = Spent()
    loss: float = math.nan
    pid: int = 0
    ready: int = -1
    pending: int = -1


class CountersFile:
    """A file of counters. Killing the writer spoils nothing.

    Args:
        path: The file; made if it is not there.

    Raises:
        OSError: The disk has no room for it, or the folder is gone.
    """

    def __init__(self, path: Path) -> None:
        file_of_other_hosts(path).unlink(missing_ok=True)  # of a process whose place this one takes
        with path.open("a+b") as file:
            file.truncate(_SIZE)
            if hasattr(os, "posix_fallocate"):  # without room on the disk, a write into the memory would be SIGBUS
                os.posix_fallocate(file.fileno(), 0, _SIZE)
            self._map = mmap.mmap(file.fileno(), _SIZE)
        self._joined = False
        self._next_loss = 0.0
        self._map[:] = bytes(_SIZE)  # a process that takes the place of another begins anew
        _PID.pack_into(self._map, 0, os.getpid())
        _PHASE.pack_into(self._map, _PHASE_AT, 0, time.monotonic())
        _LOSS.pack_into(self._map, _LOSS_AT, math.nan)
        self.note_ready(-1)
        self.note_pending(-1)

    def stepped(self, steps: int) -> None:
        """Note that so many steps are finished, now."""
        _HEAD.pack_into(self._map, _HEAD_AT, steps, time.time(), self._joined)

    def counted(self, now: float, spent: list[float]) -> None:
        """Note what was spent until now.

        Args:
            now: The time, on the monotonic clock.
            spent: The fields of `Spent`.
        """
        _SPENT.pack_into(self._map, _SPENT_AT, now, *spent)

    def entered(self, part: int, now: float) -> None:
        """Note what the process does now, as a place in `Spent`."""
        _PHASE.pack_into(self._map, _PHASE_AT, part, now)

    def is_loss_due(self, now: float) -> bool:
        """Whether a newer loss is wanted."""
        return now >= self._next_loss

    def note_loss(self, loss: float, now: float) -> None:
        """Note a loss, at a time on the monotonic clock."""
        self._next_loss = now + LOSS_SECONDS
        _LOSS.pack_into(self._map, _LOSS_AT, loss)

    def note_ready(self, batches: int) -> None:
        """Note how many batches were ready when one was asked for."""
        _WAITING.pack_into(self._map, _READY_AT, batches)

    def note_pending(self, functions: int) -> None:
        """Note how many scheduled functions have not ended."""
        _WAITING.pack_into(self._map, _PENDING_AT, functions)

    def join(self) -> None:
        """Note that the process trains together with others."""
        self._joined = True
        steps, moment, _ = _HEAD.unpack_from(self._map, _HEAD_AT)
        _HEAD.pack_into(self._map, _HEAD_AT, steps, moment, True)

    @classmethod
    def read(cls, path: Path) -> Counters:
        """Return what was noted; zeros where nothing was."""
        try:
            data = path.read_bytes()
        except OSError:
            return Counters()
        if len(data) != _SIZE:
            return Counters()
        steps, moment, joined = _HEAD.unpack_from(data, _HEAD_AT)
        counted, *spent = _SPENT.unpack_from(data, _SPENT_AT)
        (loss,) = _LOSS.unpack_from(data, _LOSS_AT)
        (pid,) = _PID.unpack_from(data)
        part, since = _PHASE.unpack_from(data, _PHASE_AT)
        (ready,) = _WAITING.unpack_from(data, _READY_AT)
        (pending,) = _WAITING.unpack_from(data, _PENDING_AT)
        return Counters(steps, moment, joined, part, since, counted, Spent(*spent), loss, pid, ready, pending)


def file_of_other_hosts(path: Path) -> Path:
    """Return the file in which process 0 writes what the tasks of other hosts do.

    Args:
        path: The file of its own counters.
    """
    return path.with_suffix(".elsewhere")


def write_of_other_hosts(path: Path, tasks: Mapping[str, Mapping[str, Any]]) -> None:
    """Write what the tasks of other hosts do, in the words of `insight.samples.Sample`.

    Args:
        path: The file of the counters of the task that stands for them on this host.
        tasks: What each does, by its name.
    """
    file = file_of_other_hosts(path)
    draft = file.with_suffix(".draft")
    with contextlib.suppress(OSError):  # the launcher that made the folder is gone, or the disk is full
        draft.write_text(json.dumps(tasks), "utf-8")
        draft.replace(file)


def resident_bytes(pid: int | None = None) -> int:
    """Return the memory that a process holds, in bytes; 0 if that is not known.

    Args:
        pid: Its number; None for this process.
    """
    try:
        pages = Path(f"/proc/{pid or 'self'}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
