"""`Observer`: a thread of the launcher that samples the counters of the tasks, for everything that shows them.

It reads files that the tasks map into their memory. So the tasks do nothing for it, and a failure of an observer does
not reach them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from stratagem.cluster.stragglers import Straggler, Stragglers
from stratagem.core.log import logger
from stratagem.insight.samples import History, Sample, take_samples

SAMPLE_SECONDS: Final = 1.0
"""Seconds between two looks at the tasks."""

END_SECONDS: Final = 5.0
"""Longest wait for the last look, because its listeners may write to a disk that does not answer."""

MOST_EVENTS: Final = 1000
"""Events that are kept: the first ones, because they show how a problem began."""


class Event(NamedTuple):
    """Something that happened in a run.

    Args:
        moment: When, in seconds since 1970.
        text: What, in one line.
    """

    moment: float
    text: str


@dataclass(eq=False)
class Observer:
    """Samples and events of a run, and the thread that takes the samples.

    Args:
        command: The command of the run, for people.
        tell: Tells the user about a slow worker, if workers do not do so themselves.
        listeners: Functions that the observer's thread calls after each look, with the newest sample of each task.

    Attributes:
        began: When it began, in seconds since 1970.
        histories: The samples of each task, by its name.
        events: What happened.
        stragglers: The slow workers that were found, by name.
    """

    command: str
    tell: Callable[[str], object] = lambda line: None
    listeners: list[Callable[[Mapping[str, Sample]], object]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.began = time.time()
        self.histories: dict[str, History] = {}
        self.events: list[Event] = []
        self.stragglers: dict[str, Straggler] = {}
        self._files: dict[str, Path] = {}
        self._present: list[str] = []
        self._rule = Stragglers()
        self._workers: list[str] = []
        self._lock = threading.Lock()
        self._listening = threading.Lock()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stratagem-observer", daemon=True)

    def __enter__(self) -> Observer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join(END_SECONDS)

    @property
    def files(self) -> dict[str, Path]:
        """The files in which the present tasks count, by their names."""
        return dict(self._files)

    def present(self) -> dict[str, Sample]:
        """Return the newest samples of the present tasks by name, those of this machine first."""
        newest = {name: self.histories[name].last for name in self._present}
        return {name: sample for name, sample in newest.items() if sample is not None}

    def follow(self, files: Mapping[str, Path]) -> None:
        """Look at these tasks from now on. The earlier ones have ended.

        Args:
            files: The file with the counters of each task, by its name.
        """
        with self._lock:
            self._files = dict(files)
            self._present = list(files)
            self._rule = Stragglers()
            self._keep(files)

    def _keep(self, names: Iterable[str]) -> None:
        """Have a history for each task. Other threads go through the present dictionary, so it does not change."""
        new = {name: History() for name in names if name not in self.histories}
        if new:
            self.histories = {**self.histories, **new}

    def note(self, text: str) -> None:
        """Note an event: the first line of a text."""
        if len(self.events) < MOST_EVENTS:
            self.events.append(Event(time.time(), text.strip().splitlines()[0] if text.strip() else ""))

    def look(self) -> dict[str, Sample]:
        """Sample all tasks now; return the samples by name."""
        with self._lock:
            samples = take_samples(self._files)
            self._keep(samples)
            for name, sample in samples.items():
                self.histories[name].add(sample)
            self._present += [name for name in samples if name not in self._present]
            workers = {name: sample for name, sample in samples.items() if sample.joined}
            # Those that have met count together; a task that trains with nobody holds up nobody.
            if list(workers) != self._workers:
                self._workers, self._rule = list(workers), Stragglers()
            found = self._rule.look([sample.reading for sample in workers.values()])
        if found is not None:
            name = list(workers)[found.task]
            self.stragglers[name] = found
            self.note(found.described(name))
            self.tell(found.described(name))
        with self._listening:  # the last look of a generation comes from the launcher's own thread
            for listener in self.listeners:
                with contextlib.suppress(OSError):  # a disk that is full is told of elsewhere
                    listener(samples)
        return samples

    def as_dict(self) -> dict[str, Any]:
        """Return the newest samples and the events for JSON."""
        newest = {name: history.last for name, history in self.histories.items()}
        return {
            "command": self.command,
            "began": self.began,
            "tasks": {name: sample.as_dict() for name, sample in newest.items() if sample is not None},
            "events": [list(event) for event in self.events],
        }

    def _run(self) -> None:
        while not self._ends.wait(SAMPLE_SECONDS):
            try:
                self.look()
            except Exception:  # who looks on must not end what is looked at
                logger.exception("The launcher can no longer observe its tasks. The tasks continue.")
                return
