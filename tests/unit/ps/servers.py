"""Parameter servers in this process, and what tests and their workers, threads of it, share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from stratagem.ps.client import Servers
from stratagem.ps.service import Service
from stratagem.ps.store import Store
from stratagem.transport.server import Server

gates: dict[str, Any] = {}
"""What functions on workers wait for: they reach this module by its name, while their own travels by value."""


@contextlib.contextmanager
def running_servers(number: int = 2) -> Iterator[Servers]:
    """Start parameter servers; yield what asks them."""
    services = [Service(Store()) for _ in range(number)]
    listening = [Server("127.0.0.1:0", service) for service in services]
    servers = Servers([server.address for server in listening])
    try:
        yield servers
    finally:
        servers.close()
        for server in listening:
            server.close()
        for service in services:
            service.close()
