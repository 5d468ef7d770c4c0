"""Terms of the cluster: when another one begins (`server.service` explains the word)."""

from __future__ import annotations

import uuid
from typing import Final

from stratagem.core.log import announce
from stratagem.ps.client import Servers
from stratagem.ps.coordinator_thread import Workers
from stratagem.ps.placement import Placement
from stratagem.transport.message import Message

SERVERS_SECONDS: Final = 300.0
"""How long a chief waits for the parameter servers: one may be starting, or starting again."""


class Terms:
    """The terms of one chief.

    Args:
        servers: The parameter servers.
        workers: The workers.
    """

    def __init__(self, servers: Servers, workers: Workers) -> None:
        self._servers = servers
        self._workers = workers

    def begin(self) -> None:
        """Begin a term: servers and workers forget what was before.

        Raises:
            UnavailableError: A server could not be reached.
        """
        self._servers.begin(uuid.uuid4().hex)
        self._servers.ask_all(Message("begin"), SERVERS_SECONDS)
        self._workers.begin(self._servers.term)

    def begin_if_lost(self, placement: Placement) -> None:
        """Begin a term, in which all variables are to be restored, if a server was lost in this one.

        The program must have been told of the loss: it must not take the new values for its old ones.

        Raises:
            UnavailableError: A server could not be reached.
        """
        if self._servers.is_lost or self._workers.has_told_of_loss:
            announce("A parameter server was lost. Training begins again when it is back.")
            self.begin()
            placement.expect()
            announce("All parameter servers are back. Variables have no values until they are restored.")
