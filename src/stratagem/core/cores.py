"""The cores of a machine: those that this process may use, and how workers divide them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import NamedTuple

from stratagem.core.split import even_part


def available_cores() -> int:
    """Return how many cores this process may use: those of its share, where the launcher has divided the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class HostCores(NamedTuple):
    """Cores of a host that workers divide who may come and go.

    Args:
        own: Those of a process at its start: it makes its threads for so many.
        every: Those of all workers.

    Example:
        >>> HostCores.decode(HostCores((1,), (0, 1)).encode())
        HostCores(own=(1,), every=(0, 1))
    """

    own: tuple[int, ...]
    every: tuple[int, ...]

    def encode(self) -> str:
        """Return them as the value of an environment variable."""
        return "/".join(",".join(map(str, cores)) for cores in self)

    @classmethod
    def decode(cls, text: str) -> HostCores:
        """Return what `encode` wrote; of an empty text, no cores."""
        own, _, every = text.partition("/")
        return cls(*(tuple(int(core) for core in cores.split(",") if core) for cores in (own, every)))


def divide_cores(cores: Sequence[int], workers: int) -> list[tuple[int, ...]]:
    """Divide cores among workers: neighbours together, sizes as equal as can be, at least one each.

    Two workers on two cores took 66-114 ms a step of the tutorials' CNN when both ran on both cores,
    and 37 ms with one core each.

    Example:
        >>> divide_cores([0, 1, 2, 3, 4], 2)
        [(0, 1, 2), (3, 4)]
        >>> divide_cores([0, 1], 3)
        [(0,), (1,), (0,)]
    """
    if 0 < len(cores) < workers:
        return [(cores[worker % len(cores)],) for worker in range(workers)]
    return [tuple(cores[even_part(len(cores), workers, worker)]) for worker in range(workers)]


def bind_process(cores: Sequence[int]) -> None:
    """Let all threads of this process, and those that they start, run on some cores.

    Args:
        cores: Numbers of the cores; empty changes nothing.
    """
    for thread in os.listdir("/proc/self/task") if cores else ():
        # A thread may have ended, and a container may have lost these cores: neither is a reason to stop training.
        with contextlib.suppress(OSError):
            os.sched_setaffinity(int(thread), cores)
