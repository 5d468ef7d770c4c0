"""Place of a worker in a world whose workers may change."""

from __future__ import annotations

from typing import NamedTuple

from stratagem.cluster.hello import Peer
from stratagem.cluster.spec import Task
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
