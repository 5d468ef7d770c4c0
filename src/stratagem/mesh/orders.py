"""Orders of the coordinator, as a worker follows them whose group may change."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from stratagem.cluster.ending import leave
from stratagem.core import exits
from stratagem.core.log import announce
from stratagem.elastic.client import PATIENCE_SECONDS, Membership
from stratagem.elastic.events import End, Form, Order, Prepare
from stratagem.elastic.world import Member, World


class Orders:
    """Orders to this worker, one after another. That to end ends the process.

    Args:
        membership: The connection to the coordinator.
    """

    def __init__(self, membership: Membership) -> None:
        self._membership = membership

    def next(self, seconds: float | None = PATIENCE_SECONDS) -> Order:
        """Return the next order.

        Args:
            seconds: How long to wait for it; None for as long as the run lasts.
        """
        order = self._membership.next_order(seconds)
        if isinstance(order, End):
            _end(order)
        return order

    def first_world(self) -> tuple[World, bool]:
        """Return the world in which this worker begins, and whether it prepares.

        If it does, others train already, and the world is one like theirs. It stands at the last place of it: mostly
        that is the right number of workers, and it does not take itself for the chief.
        """
        while True:
            order = self.next(None)  # the first world may take long to come together, and a spare longer
            if isinstance(order, Form):
                return order.world, False
            if isinstance(order, Prepare):
                # On no host: it shares its cores with nobody yet (`mesh.worker_counts.bind_in`).
                own = Member(self._membership.number, host="", pid=0, address="")
                return replace(order.world, members=(*order.world.members[:-1], own)), True


def _end(order: End) -> NoReturn:
    if order.code:
        announce(f"This worker ends: {order.reason}.")
    code = exits.PEER_LOST if order.code == exits.FAILED else order.code  # what has failed is not this worker
    leave(code)
    raise SystemExit(code)
