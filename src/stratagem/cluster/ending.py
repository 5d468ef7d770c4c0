"""How a process of a running cluster ends when its program fails.

JAX's exit handler waits for all processes at a barrier. After an exception the others are not on their way to
it: they wait for this one in a collective, until the barrier gives up after minutes. So a failed process leaves
at once, and the others notice by their failed collective.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Final

FAILED: Final = 1
"""Exit code after an exception, as Python's own."""

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C, as shells count it."""

ExceptHook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


def leave_at_once_on_failure(name: str, leave: Callable[[int], object] = os._exit) -> None:
    """Make an uncaught exception end this process without waiting for its peers.

    Args:
        name: Which process this is; printed above the traceback.
        leave: How to leave, given an exit code.
    """
    show = sys.excepthook

    def leave_after_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        # At an interactive prompt an exception ends nothing.
        if hasattr(sys, "ps1") or sys.flags.interactive:
            show(kind, error, trace)
            return
        try:
            print(f"stratagem: {name} failed:", file=sys.stderr)
            show(kind, error, trace)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            leave(INTERRUPTED if issubclass(kind, KeyboardInterrupt) else FAILED)

    sys.excepthook = leave_after_traceback
