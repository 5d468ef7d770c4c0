"""Memory that workers have in common who may change: where they meet anew in each world, and send each other arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from stratagem.cluster.agreement import Peers
from stratagem.core.errors import UnsupportedError
from stratagem.host_memory.memory import HostMemory, needed_bytes
from stratagem.host_memory.plan import Plan, PlanPart
from stratagem.transport.memory import make_file, open_file


def memory_of_one() -> HostMemory:
    """Return memory of this worker alone, until it is known who meets.

    Raises:
        UnsupportedError: The system has no such memory.
    """
    made = make_file(needed_bytes(1))
    if made is None:
        raise _no_memory()
    return HostMemory(made.file, 0, ["this worker"])


def meet_in_memory(peers: Peers, memory: HostMemory, world: int) -> None:
    """Let those who are present exchange through new memory. All of them call it.

    Args:
        peers: The workers.
        memory: This worker's view, which moves to the new memory.
        world: The number of their world.

    Raises:
        UnsupportedError: They have none in common.
        PeerError: One is gone.
    """
    ranks = list(peers.present)
    size = needed_bytes(len(ranks))
    made = make_file(size) if peers.own_index == ranks[0] else None
    name, path = peers.from_all("memory", [made.name, made.path] if made else ["", ""])[ranks[0]]
    file = made.file if made else open_file(name, path, size)
    answers = peers.from_all("has memory", [file is not None, *sorted(os.sched_getaffinity(0))])
    found = [answers[rank] for rank in ranks]
    if not all(has for has, *_ in found) or file is None:
        raise _no_memory()
    spins = len({core for _, *cores in found for core in cores}) >= len(found)
    names = [str(peers.peers[rank]) for rank in ranks]
    memory.move(world, file, ranks.index(peers.own_index), names, spins=spins)


def send(peers: Peers, memory: HostMemory, name: str, rank: int, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Send arrays to all who meet in memory: those of the others are zeros, so a sum of bytes is what was sent.

    Args:
        peers: The workers.
        memory: Where they meet.
        name: What is sent, for error messages.
        rank: Who sends.
        arrays: What it sends; on the others arrays of the same shapes and dtypes.

    Raises:
        PeerError: A worker is gone.
    """
    is_source = rank == peers.own_index
    held = [np.array(array, order="C") if is_source else np.zeros(array.shape, array.dtype) for array in arrays]
    flat = [array.reshape(-1).view(np.uint8) for array in held if array.size]
    parts = [PlanPart("sum", np.dtype(np.uint8), each.shape) for each in flat]
    if parts:
        plan = Plan(name, parts, memory.capacity, memory.hosts)
        memory.add(plan)
        places = [each.ctypes.data for each in flat]
        memory.run(plan.signature, places, places)
    return held


def _no_memory() -> UnsupportedError:
    return UnsupportedError(
        "The workers have no memory in common.",
        "Elastic workers exchange through the memory of their host.",
        "Run them on one host, as one user, on Linux.",
    )
