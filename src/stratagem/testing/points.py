"""Points where a worker under test waits until the test lets it go on."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from stratagem.core import environment


def block_point(name: str) -> None:
    """Wait here until the test calls `release(name)` on this worker; do nothing outside a test.

    Says so in a line of output, for which the test can wait. So a test acts on a worker at a known place, without
    sleeping.

    Args:
        name: The place, for instance "step 3". Each place is passed once.

    Example:
        >>> block_point("step 3")  # not under `start_workers`: goes on at once
    """
    folder = os.environ.get(environment.BLOCK_POINTS)
    if folder is None:
        return
    pipe = point_path(Path(folder), os.getpid(), name)
    os.mkfifo(pipe)
    print(reached_line(name), flush=True)
    # Opening waits for the other side: without the interpreter's lock, so that other threads go on.
    pipe.read_bytes()


def reached_line(name: str) -> str:
    """Return the line of output that says that a worker waits at a point."""
    return f"waits at block point {name!r}"


def point_path(folder: Path, pid: int, name: str) -> Path:
    """Return the named pipe of a point."""
    return folder / f"{pid}-{quote(name, safe='')}"
