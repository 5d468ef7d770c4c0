"""State of a process as the system sees it: frozen by a signal, or ended. Silence alone could be a busy machine."""

from __future__ import annotations

import socket
from pathlib import Path

from stratagem.elastic.world import Member


def find_stopped(member: Member) -> str | None:
    """Return what the system says of a member of this machine that does not run; None where it runs or is elsewhere.

    Args:
        member: The member.

    Returns:
        Words that follow its name.
    """
    if member.host != socket.gethostname():
        return None
    return state_in_words(member.pid)


def state_in_words(pid: int) -> str | None:
    """Return why a process of this machine does not run; None where it runs, or where the system does not say.

    Args:
        pid: The process.
    """
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return None
    return {"T": "is frozen (stopped by a signal)", "Z": "has ended", "X": "has ended"}.get(state)
