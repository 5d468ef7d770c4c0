"""The tasks that a launcher runs, for programs that kill them."""

from __future__ import annotations

import json
from pathlib import Path

from stratagem.core import environment


def tasks_of(launcher: int) -> dict[str, int]:
    """Return the process of each task that a launcher runs on this machine (Linux).

    Args:
        launcher: The process of `stratagem run`.

    Returns:
        Process ids by names such as `worker 0`.
    """
    tasks = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            variables = (stat.parent / "environ").read_bytes().split(b"\0") if parent == launcher else []
        except (OSError, IndexError, ValueError):  # it ended while we looked
            continue
        for name, _, value in (variable.partition(b"=") for variable in variables):
            if name.decode() == environment.TF_CONFIG:
                task = json.loads(value)["task"]
                tasks[f"{task['type']} {task['index']}"] = int(stat.parent.name)
    return tasks
