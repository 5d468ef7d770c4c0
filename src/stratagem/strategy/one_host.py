"""Whether the workers are on one host and have memory in common there, which all of them find out together."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Sequence
from io import FileIO

from stratagem.cluster.agreement import Peers
from stratagem.core.log import logger
from stratagem.core.types import CommunicationImplementation, CommunicationOptions
from stratagem.replica.by_memory import let_programs_call
from stratagem.replica.host_memory import HostMemory, needed_bytes
from stratagem.replica.mesh import Device
from stratagem.transport.memory import make_file, open_file


def shared_memory(peers: Peers | None, devices: Sequence[Device], options: CommunicationOptions) -> HostMemory | None:
    """Return memory through which the workers can combine values; None where another way is needed or asked for.

    All workers must call it at the same point.

    Args:
        peers: The workers; None without any.
        devices: The devices of all workers. Of several on one worker XLA itself would have to combine values first.
        options: How the program wants values to travel.
    """
    if peers is None or options.implementation is not CommunicationImplementation.AUTO:
        return None
    if devices[0].platform != "cpu" or len(devices) > len(peers.peers):
        return None
    if len({peer.host for peer in peers.peers}) > 1:
        return None
    return _made_together(peers)


@functools.cache
def _made_together(peers: Peers) -> HostMemory | None:
    """Make the memory, or open what the chief has made. A process has one, whatever the number of its strategies."""
    cores: set[int] = set().union(*peers.from_all("cores", sorted(os.sched_getaffinity(0))))
    spins = len(cores) >= len(peers.peers)
    memory = None
    if peers.own_index == 0:
        made = make_file(needed_bytes(len(peers.peers)))
        memory = None if made is None else _viewed(made.file, peers, spins)
        where = peers.from_chief("shared memory", json.dumps([made.name, made.path] if memory and made else None))
    else:
        where = peers.from_chief("shared memory")
        name, path = json.loads(where or "null") or (None, None)
        file = open_file(name, path, needed_bytes(len(peers.peers)))
        memory = None if file is None else _viewed(file, peers, spins)
    if all(peers.from_all("has shared memory", memory is not None)):
        return memory
    return None


def _viewed(file: FileIO, peers: Peers, spins: bool) -> HostMemory | None:
    try:
        memory = HostMemory(file, peers.own_index, [str(peer) for peer in peers.peers], spins=spins)
        let_programs_call(memory)
    except (OSError, AttributeError, RuntimeError, ValueError) as error:
        logger.info("%s has no memory in common with the other workers: %s", peers.own, error)
        file.close()
        return None
    return memory
