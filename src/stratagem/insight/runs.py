"""The runs of this user on this machine, which `stratagem top` finds: one small file for each, in a private folder."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stratagem.core.errors import ClusterError


@dataclass(frozen=True)
class KnownRun:
    """A run of this machine.

    Args:
        pid: The process of its launcher.
        command: What it runs.
        began: When it began, in seconds since 1970.
        files: The file with the counters of each task, by its name.
        events: The latest events, each with its time.
    """

    pid: int
    command: str
    began: float
    files: dict[str, str]
    events: list[tuple[float, str]]


def folder_of_runs() -> Path:
    """Return the folder, which only this user can read; make it if it does not exist.

    Raises:
        ClusterError: Another user has made it.
    """
    folder = Path(tempfile.gettempdir()) / f"stratagem-runs-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ClusterError(
            f"{folder} is not a private folder of this user.",
            "Another user could make `stratagem top` show a run that does not exist.",
            "Remove the folder, or set TMPDIR to another folder.",
        )
    return folder


class Listing:
    """The entry of one run, until the `with` block ends.

    Args:
        command: What it runs.
        began: When it began, in seconds since 1970.
    """

    def __init__(self, command: str, began: float) -> None:
        self._command = command
        self._began = began

    def __enter__(self) -> Listing:
        return self

    def write(self, files: Mapping[str, Path], events: Sequence[tuple[float, str]]) -> None:
        """Write the present tasks and the events."""
        paths = {name: str(path) for name, path in files.items()}
        with contextlib.suppress(OSError, ClusterError):  # a run without an entry trains as well
            path = folder_of_runs() / _own_name()
            draft = path.with_suffix(".draft")
            draft.write_text(
                json.dumps(asdict(KnownRun(os.getpid(), self._command, self._began, paths, list(events[-20:])))),
                encoding="utf-8",
            )
            draft.replace(path)

    def __exit__(self, *_: object) -> None:
        """Remove the entry, and the folder if this entry was the last one."""
        with contextlib.suppress(OSError, ClusterError):
            folder = folder_of_runs()
            (folder / _own_name()).unlink(missing_ok=True)
            folder.rmdir()


def _own_name() -> str:
    return f"{os.getpid()}.json"


def known_runs() -> list[KnownRun]:
    """Return the runs of this user whose launchers are running, the newest first. Remove all other entries.

    Raises:
        ClusterError: The folder is not this user's.
    """
    return sorted(_living(folder_of_runs()), key=lambda run: run.began, reverse=True)


def _living(folder: Path) -> Iterator[KnownRun]:
    for path in folder.glob("*.json"):
        try:
            said: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            run = KnownRun(**{**said, "events": [(moment, text) for moment, text in said["events"]]})
            os.kill(run.pid, 0)
        except ProcessLookupError:
            path.unlink(missing_ok=True)
        except (OSError, ValueError, TypeError, KeyError):
            continue
        else:
            yield run
