"""Profiles of all workers in one folder: the files of each worker, and how the launcher joins their traces.

TensorBoard's profile plugin opens the folder as one run with a host for each worker. `trace.json.gz` holds the events
of all workers on one axis of time, for https://ui.perfetto.dev or chrome://tracing.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

from stratagem.core.errors import ClusterError

_PIDS: Final = 100_000
"""Numbers of processes in the joined trace: those of each worker begin at a multiple of this."""


class ProfiledSteps(NamedTuple):
    """Range of steps that are recorded, and the folder of the profiles.

    Args:
        first: The first step, from 1.
        last: The last step.
        folder: The folder of the profiles.
    """

    first: int
    last: int
    folder: Path

    @classmethod
    def of(cls, steps: str, folder: Path) -> ProfiledSteps:
        """Return the range that a user has written.

        Args:
            steps: FIRST:LAST.
            folder: The folder of the profiles.

        Raises:
            ClusterError: The text is not a range of steps.

        Example:
            >>> ProfiledSteps.of("20:30", Path("profile"))[:2]
            (20, 30)
        """
        found = re.fullmatch(r"(\d+):(\d+)", steps)
        first, last = map(int, found.groups()) if found else (0, 0)
        if not 1 <= first <= last:
            raise ClusterError(
                f"--profile is {steps!r}.",
                "It sets which steps of each worker are recorded: two whole numbers, 1 or more.",
                "Write for instance --profile 20:30. The first step compiles.",
            )
        return cls(first, last, folder)

    def written(self) -> str:
        """Return it as an environment variable."""
        return f"{self.first}:{self.last}:{self.folder.absolute()}"

    @classmethod
    def read(cls, variable: str) -> ProfiledSteps:
        """Return what `written` wrote."""
        first, last, folder = variable.split(":", 2)
        return cls(int(first), int(last), Path(folder))

    @property
    def run_folder(self) -> Path:
        """The folder of the files of all workers, as TensorBoard looks for it."""
        return self.folder / "plugins" / "profile" / f"steps_{self.first}_to_{self.last}"

    def trace_of(self, worker: str) -> Path:
        """Return the file of the events of a worker.

        Args:
            worker: Its name, without spaces.
        """
        return self.run_folder / f"{worker}.trace.json.gz"

    def beginning_of(self, worker: str) -> Path:
        """Return the file with the time at which a worker began to record, in nanoseconds since 1970.

        Args:
            worker: Its name, without spaces.
        """
        return self.run_folder / f"{worker}.began"


def forget_earlier(steps: ProfiledSteps) -> None:
    """Exclude the traces of an earlier run in the same folder from the joined file."""
    for path in steps.run_folder.glob("*.began"):
        path.unlink(missing_ok=True)


def join_traces(steps: ProfiledSteps) -> Path | None:
    """Write the events of all workers to one file, on one axis of time; return it, or None if there are none.

    Args:
        steps: The recorded steps.
    """
    paths = sorted(steps.run_folder.glob("*.began"))
    began = {path.stem: int(path.read_text(encoding="ascii")) for path in paths if steps.trace_of(path.stem).exists()}
    if not began:
        return None
    first = min(began.values())
    events: list[dict[str, Any]] = []
    for number, (worker, moment) in enumerate(began.items()):
        with gzip.open(steps.trace_of(worker), "rt", encoding="utf-8") as file:
            recorded = json.load(file)["traceEvents"]
        events += [_shifted(event, worker, number, (moment - first) / 1e3) for event in recorded if event]
    joined = steps.folder / "trace.json.gz"
    with gzip.open(joined, "wt", encoding="utf-8") as file:
        json.dump({"displayTimeUnit": "ns", "traceEvents": events}, file)
    return joined


def _shifted(event: dict[str, Any], worker: str, number: int, microseconds: float) -> dict[str, Any]:
    """Return an event of a worker with numbers of its own, later by so much."""
    event = {**event, "pid": int(event.get("pid", 0)) + number * _PIDS}
    if "ts" in event:
        event["ts"] += microseconds
    given: dict[str, Any] = event.get("args", {})
    if event.get("name") == "process_name":
        event["args"] = {"name": f"{worker} {given['name']}"}
    if event.get("name") == "process_sort_index":
        event["args"] = {"sort_index": number * _PIDS + given["sort_index"]}
    return event
