"""Samples of the counters of tasks, once a second, and their history, which stays small in runs of any length."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from stratagem.cluster.stragglers import Reading
from stratagem.core.counters import ENDED, Counters, CountersFile, file_of_other_hosts, resident_bytes
from stratagem.core.spent import Spent

MOST_SAMPLES: Final = 1200
"""Samples that a history keeps. When it has more, every other one is dropped, and fewer are added from then on."""

_PROC: Final = Path("/proc/self")


class Sample(NamedTuple):
    """A task at a moment.

    Args:
        moment: Seconds since 1970.
        clock: The same moment on the system's monotonic clock.
        pid: The number of its process; 0 before it runs.
        steps: Steps that it has finished.
        doing: What it is doing: the name of a field of `Spent`, or "ended".
        spent: What its seconds were spent on so far.
        loss: Its latest loss; NaN if none is known.
        memory: Bytes of memory that it uses; 0 if that is not known.
        joined: Whether it trains together with others.
        host: The name of its machine, if that is another one.
        ready: Batches that were read ahead when the last one was asked for; -1 if it reads none ahead.
        pending: Functions that it has scheduled on workers and that have not ended; -1 if it schedules none.
    """

    moment: float
    clock: float
    pid: int
    steps: int
    doing: str
    spent: Spent
    loss: float
    memory: int
    joined: bool = False
    host: str = ""
    ready: int = -1
    pending: int = -1

    def title(self, task: str) -> str:
        """Return what people call the task: its name, and its machine if that is another one.

        Args:
            task: Its name.
        """
        return f"{task} ({self.host})" if self.host else task

    @property
    def reading(self) -> Reading:
        """The sample in the form that the rule for slow workers takes."""
        return Reading(self.clock, self.steps, self.spent)

    def as_dict(self) -> dict[str, Any]:
        """Return the sample for JSON, without a loss that is not finite."""
        found = {**self._asdict(), "spent": self.spent._asdict()}
        if not math.isfinite(self.loss):
            found["loss"] = None
        return found

    @classmethod
    def from_dict(cls, said: dict[str, Any]) -> Sample:
        """Return the sample that `as_dict` described."""
        loss = math.nan if said["loss"] is None else said["loss"]
        return cls(**{**said, "spent": Spent(**said["spent"]), "loss": loss})


def take_samples(files: Mapping[str, Path]) -> dict[str, Sample]:
    """Return what tasks count, by name: those of this host, and those of other hosts that process 0 knows.

    Args:
        files: The file of the counters of each task, by its name.
    """
    samples = {name: take_sample(path) for name, path in files.items()}
    for path in files.values():
        elsewhere = _of_other_hosts(file_of_other_hosts(path))
        samples |= {name: each for name, each in elsewhere.items() if name not in files}
    return {name: each for name, each in samples.items() if each.pid}


def _of_other_hosts(path: Path) -> dict[str, Sample]:
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {name: Sample.from_dict(sample) for name, sample in said.items()}


def take_sample(path: Path) -> Sample:
    """Return a sample of the counters of a task.

    Args:
        path: The file of its counters.
    """
    counters = CountersFile.read(path)
    clock = time.monotonic()
    memory = resident_bytes(counters.pid) if counters.pid else 0
    lives = memory > 0 or (counters.pid > 0 and not _PROC.is_dir())
    doing = Spent._fields[counters.part] if lives and counters.part < ENDED else "ended"
    if doing == "between" and not counters.steps:
        doing = "starting"
    spent = counters.spent if doing == "ended" else _until(counters, doing, clock)
    return Sample(
        time.time(),
        clock,
        counters.pid,
        counters.steps,
        doing,
        spent,
        counters.loss,
        memory,
        counters.joined,
        ready=counters.ready,
        pending=counters.pending,
    )


def _until(counters: Counters, doing: str, now: float) -> Spent:
    """Return what was spent until now: what was counted with the last step, and what the task has done since."""
    begun = max(counters.counted, counters.since)
    return counters.spent._replace(**{doing: getattr(counters.spent, doing) + max(0.0, now - begun)})


class History:
    """The samples of one task.

    Attributes:
        last: The newest sample.
    """

    def __init__(self) -> None:
        self.last: Sample | None = None
        self._kept: list[Sample] = []
        self._every = 1
        self._count = 0

    @property
    def samples(self) -> list[Sample]:
        """Samples at even distances, oldest first, and the newest one."""
        is_kept = not self._kept or self._kept[-1] is self.last
        return self._kept if is_kept or self.last is None else [*self._kept, self.last]

    def add(self, sample: Sample) -> None:
        """Add the newest sample."""
        self.last = sample
        if self._count % self._every == 0:
            self._kept.append(sample)
        self._count += 1
        if len(self._kept) > MOST_SAMPLES:
            self._kept = self._kept[::2]
            self._every *= 2


def rate(earlier: Sample, later: Sample) -> float:
    """Return steps a second between two samples; 0 if no time has passed, or the process is another one."""
    seconds = later.clock - earlier.clock
    return (later.steps - earlier.steps) / seconds if seconds > 0 and later.pid == earlier.pid else 0.0
