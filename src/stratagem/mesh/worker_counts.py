"""Place of a worker in a world whose workers may change: who its peers are, and which cores it runs on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stratagem.cluster.hello import Peer
from stratagem.cluster.spec import Task
from stratagem.core.cores import bind_process, divide_cores
from stratagem.elastic.world import World


class Layout(NamedTuple):
    """Place of a worker among the others, for which its programs are made.

    Args:
        size: How many workers there are.
        rank: Which of them this one is.
    """

    size: int
    rank: int


def peers_of(world: World) -> list[Peer]:
    """Return the workers of a world.

    Args:
        world: Its members.
    """
    return [Peer(Task("worker", rank), each.host, each.pid) for rank, each in enumerate(world.members)]


def bind_in(world: World, rank: int, cores: Sequence[int]) -> None:
    """Let this process run on its share of the cores of its host, which those who are gone leave to the others.

    A worker that takes the place of a lost one would run on the core of another one else, and steps would take twice
    as long (11.4 ms where they took 5.4). One that prepares is alone in its world: it runs where there is room.

    Args:
        world: The workers.
        rank: Which of them this process is.
        cores: Those of the host; none changes nothing.
    """
    here = [each for each, member in enumerate(world.members) if member.host == world.members[rank].host]
    bind_process(divide_cores(cores, len(here))[here.index(rank)])
