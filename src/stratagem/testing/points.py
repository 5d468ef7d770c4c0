"""Faults that a program under test causes itself: it waits until the test releases it, or loses its network."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from urllib.parse import quote

from stratagem.core import environment


def block_point(name: str) -> None:
    """Wait here until the test calls `release(name)` on this worker; do nothing outside a test.

    It prints a line that the test can wait for. So a test can act on a worker at a known place, without sleeping.

    Args:
        name: The name of the place, for instance "step 3". Each name can be used once.

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


def drop_connections() -> int:
    """Cut every TCP connection of this process, as a network failure does (Linux). Later connections work.

    Returns:
        The number of connections that were cut.

    Example:
        >>> import socket
        >>> with socket.create_server(("127.0.0.1", 0)) as listener:
        ...     with socket.create_connection(listener.getsockname()) as connection:
        ...         drop_connections() > 0, connection.recv(1)
        (True, b'')
    """
    cut = 0
    for entry in list(os.scandir("/proc/self/fd")):
        try:
            with socket.socket(fileno=os.dup(int(entry.name))) as other:
                if other.family in (socket.AF_INET, socket.AF_INET6) and other.type == socket.SOCK_STREAM:
                    other.getpeername()  # an error where it only listens
                    other.shutdown(socket.SHUT_RDWR)
                    cut += 1
        except OSError:  # no socket, not connected, or closed since
            continue
    return cut


def reached_line(name: str) -> str:
    """Return the line of output that a worker prints when it waits at a point."""
    return f"waits at block point {name!r}"


def point_path(folder: Path, pid: int, name: str) -> Path:
    """Return the named pipe of a point."""
    return folder / f"{pid}-{quote(name, safe='')}"
