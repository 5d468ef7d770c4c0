"""See from outside whether the chief still trains: a task that trains with nobody has no other way to know.

JAX's coordination service listens on the chief's address from start-up to the end of training, and the meeting
before it on the same port. So a connection that is refused, after one that was not, means that the chief is gone.
"""

from __future__ import annotations

import socket
from typing import Final

from stratagem.cluster.spec import ClusterSpec, split_address
from stratagem.core.clock import Clock, Deadline

GONE_SECONDS: Final = 5.0
"""How long the port must be silent: between the meeting and JAX's service nobody listens for a moment."""

_CONNECT_SECONDS: Final = 2.0


class ChiefWatch:
    """Whether the chief of a cluster was there, and is there no more.

    Args:
        cluster: The cluster; its first training task is the chief.
        clock: Where time comes from.

    Example:
        >>> ChiefWatch(ClusterSpec({})).has_left()  # nobody trains beside this process: nothing can end
        False
    """

    def __init__(self, cluster: ClusterSpec, clock: Clock | None = None) -> None:
        tasks = cluster.training_tasks
        self._address = cluster.task_address(tasks[0].type, tasks[0].index) if tasks else None
        self._clock = clock or Clock()
        self._silence: Deadline | None = None

    def has_left(self) -> bool:
        """Look now; call it again and again, as often as the answer matters."""
        if self._address is None:
            return False
        if _listens(self._address):
            self._silence = Deadline(GONE_SECONDS, self._clock)
        return self._silence is not None and self._silence.expired


def _listens(address: str) -> bool:
    host, port = split_address(address)
    try:
        socket.create_connection((host, port), _CONNECT_SECONDS).close()
    except TimeoutError:
        return True  # a host that drops packets, or a process that is frozen, has not ended
    except OSError:
        return False
    return True
