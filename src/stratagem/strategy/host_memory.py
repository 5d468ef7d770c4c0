"""Memory that the workers of a host have in common; all workers find out together whether there is any."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from io import FileIO

from stratagem.cluster.agreement import Peers
from stratagem.core.log import logger
from stratagem.core.types import CommunicationImplementation, CommunicationOptions
from stratagem.host_memory.hosts import Hosts
from stratagem.host_memory.memory import HostMemory, needed_bytes
from stratagem.mesh.mesh import Device
from stratagem.program.rules.between_hosts import let_programs_call
from stratagem.transport.memory import make_file, open_file


def shared_memory(peers: Peers | None, devices: Sequence[Device], options: CommunicationOptions) -> HostMemory | None:
    """Return memory through which the workers of this host combine values; None where XLA alone is to do it.

    All workers must call it at the same point.

    Args:
        peers: The workers; None without any.
        devices: The devices of all workers. XLA alone combines values where a worker has several.
        options: How the program wants values to travel.
    """
    if peers is None or options.implementation is not CommunicationImplementation.AUTO:
        return None
    if devices[0].platform != "cpu" or len(devices) > len(peers.peers):
        return None
    hosts = Hosts.of(peer.host for peer in peers.peers)
    if hosts.number == len(peers.peers):  # nobody to have memory in common with
        return None
    return _made_together(peers, hosts)


@functools.cache
def _made_together(peers: Peers, hosts: Hosts) -> HostMemory | None:
    """Make the memory, or open what the first worker of this host has made.

    A process has one, whatever the number of its strategies. If one worker of any host cannot have it, none has.
    """
    own = hosts.around(peers.own_index)
    cores_of_all = peers.from_all("cores", sorted(os.sched_getaffinity(0)))
    spins = len(set().union(*(cores_of_all[worker] for worker in own))) >= len(own)
    memory, place = None, None
    size = needed_bytes(len(own))
    if peers.own_index == own[0]:
        made = make_file(size)
        memory = None if made is None else _viewed(made.file, peers, hosts, spins)
        place = [made.name, made.path] if memory and made else None
    places = peers.from_all("shared memory", place)
    if peers.own_index != own[0]:
        name, path = places[own[0]] or (None, None)
        file = open_file(name, path, size)
        memory = None if file is None else _viewed(file, peers, hosts, spins)
    if all(peers.from_all("has shared memory", memory is not None)):
        return memory
    return None


def _viewed(file: FileIO, peers: Peers, hosts: Hosts, spins: bool) -> HostMemory | None:
    own = hosts.around(peers.own_index)
    names = [str(peers.peers[worker]) for worker in own]
    try:
        memory = HostMemory(file, own.index(peers.own_index), names, spins=spins, hosts=hosts)
        let_programs_call(memory)
    except (OSError, AttributeError, RuntimeError, ValueError) as error:
        logger.info("%s has no memory in common with the other workers of its host: %s", peers.own, error)
        file.close()
        return None
    return memory
