"""Memory and connections that workers have in common who may change: they meet anew in each world, and send arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from stratagem.cluster.agreement import Peers
from stratagem.core.errors import UnsupportedError, name_some
from stratagem.host_memory.hosts import Hosts
from stratagem.host_memory.links import Links
from stratagem.host_memory.memory import HostMemory, needed_bytes
from stratagem.host_memory.plan import PlanPart
from stratagem.mesh.linking import Caller, LinkDoor, Reach, linked
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


def meet_in_memory(peers: Peers, memory: HostMemory, world: int, reach: Reach) -> None:
    """Let those who are present exchange through new memory, and through connections to other hosts. All call it.

    Args:
        peers: The workers.
        memory: This worker's view, which moves to the new memory.
        world: The number of their world, from 1; 0 where workers may not change.
        reach: How workers of other hosts reach this one.

    Raises:
        UnsupportedError: Those of a host have no memory in common, or hosts do not reach each other.
        PeerError: One is gone.
    """
    ranks = list(peers.present)
    rank = ranks.index(peers.own_index)
    hosts = Hosts.of(peers.peers[each].host for each in ranks)
    around, group = hosts.around(rank), hosts.group_of(rank)
    size = needed_bytes(len(around))
    made = make_file(size) if rank == around[0] else None
    caller = Caller(world, group.index(rank))
    with ExitStack() as stack:
        door, trouble = _opened(stack, reach, caller, len(group))
        own = [*([made.name, made.path] if made else ["", ""]), door.address if door else "", trouble]
        told = _of_present(peers.from_all("memory", own), ranks)
        _check_reached(told)
        name, path, *_ = told[around[0]]
        file = made.file if made else open_file(name, path, size)
        names = [str(peers.peers[ranks[each]]) for each in group]
        # One without a share of what crosses has nobody to connect to, but takes the same part in exchanges.
        links = Links(0, [None], names) if hosts.number > 1 and len(group) == 1 else None
        if door is not None:
            addresses = [told[each][2] for each in group]
            try:
                links = linked(door, reach, caller, addresses, names, lambda: memory.is_over(world))
            except (OSError, ValueError) as error:
                trouble = f"{names[caller.position]}: {error}"
        held = [file is not None, "", "", trouble, *sorted(os.sched_getaffinity(0))]
        with ExitStack() as unused:
            if links is not None:
                unused.callback(links.close)
            answers = _of_present(peers.from_all("has memory", held), ranks)
            _check_reached(answers)
            if not all(has for has, *_ in answers) or file is None:
                raise _no_memory()
            unused.pop_all()
    spins = len({core for each in around for core in answers[each][4:]}) >= len(around)
    names = [str(peers.peers[ranks[each]]) for each in around]
    memory.move(world, file, around.index(rank), names, hosts=hosts, rank=rank, links=links, spins=spins)


def _opened(stack: ExitStack, reach: Reach, caller: Caller, size: int) -> tuple[LinkDoor | None, str]:
    """Open a door for the others of a group of this size; return it, and why there is none."""
    if size == 1:
        return None, ""
    try:
        door = LinkDoor(reach, caller.world, range(caller.position + 1, size))
    except OSError as error:
        return None, f"{reach.host} cannot be listened on: {error}"
    stack.callback(door.close)
    return door, ""


def _of_present(values: Sequence[Any], ranks: Sequence[int]) -> list[Any]:
    return [values[rank] for rank in ranks]


def _check_reached(told: Sequence[Sequence[Any]]) -> None:
    """Raise the same error on all where one cannot exchange with another host."""
    troubles = [each[3] for each in told if each[3]]
    if troubles:
        raise UnsupportedError(
            f"Workers of different hosts cannot exchange: {name_some(troubles)}.",
            "They connect to each other at the addresses by which they reach the coordinator, on ports that the system "
            "chooses.",
            "Let hosts of the run reach each other on all ports; or leave --spares and --elastic out.",
        )


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
        plan = memory.plan(name, parts)
        memory.add(plan)
        places = [each.ctypes.data for each in flat]
        memory.run(plan.signature, places, places)
    return held


def _no_memory() -> UnsupportedError:
    return UnsupportedError(
        "The workers of a host have no memory in common.",
        "Elastic workers exchange through the memory of their host.",
        "Run those of a host as one user, on Linux.",
    )
