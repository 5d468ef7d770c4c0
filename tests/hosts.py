"""Several hosts on one machine, as far as Stratagem can tell: it knows a host by its name."""

from __future__ import annotations

import json
import os
import socket

from stratagem.core import environment


def host_name(letter: str) -> str:
    """Return what the host with a letter is called."""
    return f"host-{letter}"


def be_on_hosts(letters: str) -> None:
    """Let this worker be on the host with its letter. A worker calls it before it makes a strategy.

    Args:
        letters: That of each worker: "aab" are two workers on one host, and one on another.
    """
    index = json.loads(os.environ[environment.TF_CONFIG])["task"]["index"]
    socket.gethostname = lambda: host_name(letters[index])
