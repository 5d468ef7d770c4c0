"""Exit codes of Stratagem, and which of them are worth another try."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Final

FAILED: Final = 1
"""An uncaught exception, as Python's own code: an error of the program. Another try would end in the same way."""

USAGE: Final = 2
"""A wrong command line, as argparse and click have it. Another try would end in the same way."""

PREEMPTED: Final = 42
"""The machine was wanted back (SIGTERM); the state is saved. Another try goes on, and this end is no failure."""

PEER_LOST: Final = 43
"""Another task ended or cannot be reached. Not this task's fault; another try may go well."""

HUNG: Final = 44
"""No progress in time: this task or another was stuck. Another try may go well."""

FAILED_APART: Final = 45
"""An uncaught exception in a process that did not train with the others yet; they go on without it. Another try would
end in the same way."""

INTERRUPTED: Final = 128 + signal.SIGINT
"""Ctrl-C, as shells count it."""

MEANINGS: Final[Mapping[int, str]] = {
    PREEMPTED: "was preempted, its state is saved",
    PEER_LOST: "lost a peer",
    HUNG: "made no progress, or a peer did not",
    FAILED_APART: "failed before it trained with the others",
}
"""The codes that only Stratagem uses, in words that follow the name of a task."""


def is_retryable(returncode: int) -> bool:
    """Return whether to start a task again may help.

    Args:
        returncode: Exit code of a process, or minus the number of the signal that ended it.

    Example:
        >>> is_retryable(FAILED), is_retryable(PEER_LOST), is_retryable(-signal.SIGKILL)
        (False, True, True)
    """
    return returncode < 0 or returncode in (PREEMPTED, PEER_LOST, HUNG)
