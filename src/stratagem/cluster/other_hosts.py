"""A file about the tasks of other hosts: process 0 hears what they do and writes it, and its launcher shows it."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stratagem.cluster.hello import Peer
from stratagem.cluster.watchdog import Standing
from stratagem.core import environment
from stratagem.core.counters import write_of_other_hosts
from stratagem.core.progress import part_of


def notes_other_hosts(own: Peer, variables: Mapping[str, str]) -> Callable[[Sequence[Standing]], object]:
    """Return a function that writes what the tasks of other hosts do.

    Args:
        own: This process.
        variables: Its environment. Without a launcher, nothing is written.
    """
    counters = variables.get(environment.COUNTERS_FILE)
    return functools.partial(_write, Path(counters), own.host) if counters else lambda standings: None


def _write(counters: Path, own_host: str, standings: Sequence[Standing]) -> None:
    elsewhere = [each for each in standings if each.peer.host != own_host and each.clock]
    if elsewhere:
        now = time.time()
        write_of_other_hosts(counters, {str(each.peer.task): _described(each, now) for each in elsewhere})


def _described(standing: Standing, now: float) -> dict[str, Any]:
    """Return what a task does, in the words of `insight.samples.Sample`."""
    return {
        "moment": now - standing.silence,
        "clock": standing.clock,
        "pid": standing.peer.pid,
        "steps": standing.steps,
        "doing": part_of(standing.phase, standing.steps),
        "spent": standing.spent._asdict(),
        "loss": standing.loss if math.isfinite(standing.loss) else None,
        "memory": standing.memory,
        "joined": True,
        "host": standing.peer.host,
    }
