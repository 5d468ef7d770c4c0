"""Cores, GPUs and free ports that this machine offers to the tasks."""

from __future__ import annotations

import importlib.util
import os
import pkgutil
import platform
import re
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from stratagem.core import environment
from stratagem.core.gpus import chosen_gpus
from stratagem.core.tunables import c_library_version

LOOPBACK = "127.0.0.1"
"""Not `localhost`: that may mean an IPv6 address first, where a peer listens on IPv4 only."""


@dataclass(frozen=True)
class Machine:
    """The resources that tasks on this machine share.

    Args:
        cores: Numbers of the cores this process may use; empty where the system has no affinity (macOS).
        num_cores: How many cores there are.
        gpus: NVIDIA GPUs that JAX could use, as CUDA_VISIBLE_DEVICES names them.
        c_library: Name and version of the C library; nothing where they are not known.
    """

    cores: tuple[int, ...]
    num_cores: int
    gpus: tuple[str, ...] = ()
    c_library: str = ""


def this_machine(variables: Mapping[str, str] = os.environ) -> Machine:
    """Look at the machine this process runs on.

    Args:
        variables: The environment that tasks will inherit.
    """
    cores = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()
    return Machine(cores, len(cores) or os.cpu_count() or 1, _usable_gpus(variables), c_library_version())


def processor(cpu_info: Path = Path("/proc/cpuinfo")) -> str:
    """Return what machine code depends on: the kind of processor, and what it can do.

    Args:
        cpu_info: Where Linux describes the processors, which are alike.
    """
    names = ("vendor_id", "cpu family", "model", "flags", "CPU implementer", "CPU part", "Features")
    try:
        first = cpu_info.read_text().partition("\n\n")[0]
    except OSError:  # not Linux
        return f"{platform.machine()} {platform.processor()}"
    lines = [line for line in first.splitlines() if line.partition("\t")[0].partition(":")[0].strip() in names]
    return "\n".join([platform.machine(), *lines])


def free_ports(count: int) -> list[int]:
    """Return `count` different TCP ports that nobody listens on.

    They are all held at once while they are looked for, so that no port comes twice. They are free
    again when this returns: a task must still expect to find its port taken.
    """
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return [each.getsockname()[1] for each in sockets]


def _usable_gpus(variables: Mapping[str, str]) -> tuple[str, ...]:
    platforms = variables.get(environment.JAX_PLATFORMS, "")
    if platforms and not {"cuda", "gpu"} & set(platforms.split(",")):
        return ()
    present = nvidia_devices()
    if not present or not _jax_knows_cuda():
        return ()
    chosen = chosen_gpus(variables)
    return present if chosen is None else tuple(chosen)


def nvidia_devices(folder: Path = Path("/dev")) -> tuple[str, ...]:
    """Return the index of each NVIDIA GPU. CUDA counts those it sees from 0, whatever their files are called.

    Args:
        folder: Where device files lie.
    """
    count = sum(re.fullmatch(r"nvidia\d+", file.name) is not None for file in folder.glob("nvidia*"))
    return tuple(str(index) for index in range(count))


def _jax_knows_cuda() -> bool:
    """Whether JAX's CUDA plugin is installed; a GPU is of no use to JAX without it."""
    plugins = importlib.util.find_spec("jax_plugins")
    if plugins is None or plugins.submodule_search_locations is None:
        return False
    return any(
        module.name.startswith("xla_cuda") for module in pkgutil.iter_modules(plugins.submodule_search_locations)
    )
