"""SIGTERM, with which a scheduler, a launcher or a person asks this process to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

Handler = Callable[[int, Any], None]
"""Handler of a signal, given its number and the frame that it interrupted."""


def is_taken() -> bool:
    """Return whether the program has a handler of its own."""
    return signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL


def take_sigterm(handler: Handler) -> Any:
    """Handle SIGTERM from now on; return what did before. Only the main thread can.

    Args:
        handler: Called in the main thread.
    """
    return signal.signal(signal.SIGTERM, handler)


def give_sigterm_back(handler: Handler, before: Any) -> None:
    """Let SIGTERM do again what it did before, unless somebody else has taken it since.

    Args:
        handler: What was given to `take_sigterm`.
        before: What that returned.
    """
    on_main = threading.current_thread() is threading.main_thread()
    if on_main and signal.getsignal(signal.SIGTERM) == handler:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
