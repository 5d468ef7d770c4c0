"""Memory and connections by which workers combine values; all workers find out together whether there are any."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from stratagem.cluster.agreement import Peers
from stratagem.core.errors import UnsupportedError
from stratagem.core.log import logger
from stratagem.core.types import CommunicationImplementation, CommunicationOptions
from stratagem.host_memory.memory import HostMemory
from stratagem.mesh.common_memory import meet_in_memory, memory_of_one
from stratagem.mesh.linking import Reach
from stratagem.mesh.mesh import Device
from stratagem.program.rules.exchanges import let_programs_call


def shared_memory(
    peers: Peers | None, reach: Reach, devices: Sequence[Device], options: CommunicationOptions
) -> HostMemory | None:
    """Return what workers combine values by; None where XLA alone is to do it.

    All workers must call it at the same point.

    Args:
        peers: The workers; None without any.
        reach: How workers of other hosts reach this one.
        devices: The devices of all workers. XLA alone combines values where a worker has several.
        options: How the program wants values to travel.
    """
    if peers is None or options.implementation is not CommunicationImplementation.AUTO:
        return None
    if devices[0].platform != "cpu" or len(devices) > len(peers.peers):
        return None
    return _made_together(peers, reach)


@functools.cache
def _made_together(peers: Peers, reach: Reach) -> HostMemory | None:
    """Make it. A process has one, whatever the number of its strategies. If one worker cannot have it, none has."""
    memory = _own_memory(peers)
    if not all(peers.from_all("has memory of its own", memory is not None)) or memory is None:
        return None
    try:
        meet_in_memory(peers, memory, 0, reach)
    except UnsupportedError as error:
        logger.warning("Workers combine values by XLA's own collectives, which takes longer. %s", error)
        return None
    return memory


def _own_memory(peers: Peers) -> HostMemory | None:
    try:
        memory = memory_of_one()
        let_programs_call(memory)
    except (OSError, AttributeError, RuntimeError, ValueError) as error:
        logger.info("%s has no memory that programs can use: %s", peers.own, error)
        return None
    return memory
