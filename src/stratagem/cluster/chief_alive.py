"""`ChiefWatch`: whether the chief still trains, for a task that trains with nobody and so cannot know otherwise.

JAX's coordination service listens on the chief's address from start-up to the end of training, and the meeting
before it on the same port. With parameter servers the chief does not listen, but they and the workers do, and end with
it; one of them alone may be away until it is started again. So connections that are all refused, after one that was
not, mean that the chief is gone.
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
        tasks = cluster.training_tasks[:1]
        if "ps" in cluster.jobs:
            tasks = [task for task in cluster.tasks if task.type in ("ps", "worker")]
        self._addresses = [cluster.address_of(task) for task in tasks]
        self._clock = clock or Clock()
        self._silence: Deadline | None = None

    def has_left(self) -> bool:
        """Look now; call it again and again, as often as the answer matters."""
        if any(_listens(address) for address in self._addresses):
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
