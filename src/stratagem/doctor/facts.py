"""Facts that each task knows about itself, and the problems that a comparison of all tasks shows."""

from __future__ import annotations

import platform
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import jax

from stratagem.cluster.spec import ClusterSpec, split_address
from stratagem.core.errors import name_some
from stratagem.core.files import draft_of
from stratagem.core.findings import Finding, Verdict, passed

Facts = Mapping[str, Any]
"""The facts of one task, in JSON: `task`, `versions`, `devices`, `clock`; `free` and `fault` of the backup folder."""

_PACKAGES: Final = ("stratagem", "jax", "jaxlib", "keras", "numpy")
_CLOCK_SECONDS: Final = 2.0
"""Clocks further apart make timestamps in logs and checkpoints misleading; tokens of clouds expire at minutes."""

_FREE_BYTES: Final = 5 * 2**30
"""Two generations of a large model and its optimizer."""


def own_facts(task: str, backup_dir: str | None, wall_clock: Callable[[], float] = time.time) -> dict[str, Any]:
    """Return the facts of this process. Call it on all tasks at the same moment, because they include the time.

    Args:
        task: Its name.
        backup_dir: Folder that backups will go to; a file is written there and deleted.
        wall_clock: Function that returns the seconds since 1970.
    """
    facts: dict[str, Any] = {
        "task": task,
        "clock": wall_clock(),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
        "devices": [device.device_kind for device in jax.local_devices()],
    }
    return facts if backup_dir is None else facts | _folder_facts(Path(backup_dir))


def check_names(cluster: ClusterSpec) -> Finding:
    """Look up the host of every task from here."""
    unknown = {}
    for task in cluster.tasks:
        host, port = split_address(cluster.task_address(task.type, task.index))
        try:
            socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            unknown[f"{task} ({host})"] = str(error)
    if unknown:
        reason = next(iter(unknown.values()))
        return Finding(
            "names",
            "FAIL",
            f"{socket.gethostname()} cannot look up {name_some(unknown)}: {reason}",
            "Correct the host in TF_CONFIG, or add it to DNS or /etc/hosts of every machine.",
        )
    return passed("names", f"{len(cluster.tasks)} addresses can be looked up")


def compare(all_facts: Sequence[Facts], backup_dir: str | None) -> list[Finding]:
    """Return the findings from the facts of all tasks."""
    found = [_compare_versions(all_facts), _compare_devices(all_facts), _compare_clocks(all_facts)]
    return found if backup_dir is None else [*found, _compare_folders(all_facts, backup_dir)]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # run from a source tree that was never installed
        return "source"


def _folder_facts(folder: Path) -> dict[str, Any]:
    probe = folder / f".doctor-{uuid.uuid4().hex}"
    try:
        with draft_of(probe) as draft:
            draft.write_bytes(b"written by stratagem doctor")
        probe.unlink()
        return {"free": shutil.disk_usage(folder).free, "fault": None}
    except OSError as error:
        return {"free": 0, "fault": str(error)}


def _compare_versions(all_facts: Sequence[Facts]) -> Finding:
    said = [(fact["task"], _shown(fact["versions"])) for fact in all_facts]
    repair = "Install the same versions on every machine: tasks that compile different programs wait for each other."
    return _compare_words("versions", said, "", "FAIL", repair)


def _compare_devices(all_facts: Sequence[Facts]) -> Finding:
    said = [(fact["task"], _counted(fact["devices"])) for fact in all_facts]
    repair = (
        "Every step waits for the slowest device: give all tasks equal devices, or leave out the tasks that differ."
    )
    return _compare_words("devices", said, f" on each of {len(all_facts)} task(s)", "warn", repair)


def _compare_clocks(all_facts: Sequence[Facts]) -> Finding:
    clocks = [fact["clock"] for fact in all_facts]
    spread = max(clocks) - min(clocks)
    if spread <= _CLOCK_SECONDS:
        return passed("clocks", f"at most {spread:.2f} s apart")
    slow, fast = (all_facts[clocks.index(pick(clocks))]["task"] for pick in (min, max))
    return Finding(
        "clocks", "warn", f"{fast} is {spread:.1f} s ahead of {slow}", "Run an NTP client (chrony) on every machine."
    )


def _compare_folders(all_facts: Sequence[Facts], backup_dir: str) -> Finding:
    chief, *others = all_facts
    faulty = {fact["task"]: fact["fault"] for fact in others if fact["fault"] is not None}
    if chief["fault"] is not None:
        return Finding(
            "backup",
            "FAIL",
            f"{chief['task']} cannot write to {backup_dir}: {chief['fault']}",
            "Choose a folder the chief may write to; it writes the backups.",
        )
    free = chief["free"] / 2**30
    if chief["free"] < _FREE_BYTES:
        return Finding(
            "backup",
            "warn",
            f"{backup_dir} has {free:.1f} GiB free on {chief['task']}",
            "Make room for three times the model and its optimizer: two backups, and the one being written.",
        )
    note = f"; {name_some(faulty)} cannot write there and need(s) not" if faulty else ""
    return passed("backup", f"{chief['task']} writes to {backup_dir}, {free:.0f} GiB free{note}")


def _compare_words(check: str, said: Sequence[tuple[str, str]], where: str, verdict: Verdict, repair: str) -> Finding:
    """Return whether all tasks say the same, with `where` behind it; or who says what."""
    holders: dict[str, list[str]] = {}
    for task, words in said:
        holders.setdefault(words, []).append(task)
    if len(holders) == 1:
        return passed(check, f"{said[0][1]}{where}")
    found = "\n".join(f"{words} on {name_some(tasks)}" for words, tasks in holders.items())
    return Finding(check, verdict, found, repair)


def _shown(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _counted(kinds: Sequence[str]) -> str:
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
