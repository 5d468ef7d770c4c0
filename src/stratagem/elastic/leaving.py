"""Leaving a run on purpose: a worker that gets SIGTERM goes between two steps, and the others continue."""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import Iterator, Mapping
from typing import Final

from stratagem.cluster.sigterm import give_sigterm_back, is_taken, take_sigterm
from stratagem.core import environment
from stratagem.core.errors import InputError
from stratagem.elastic.client import Membership

GRACE_SECONDS: Final = 30.0
"""Seconds between SIGTERM and SIGKILL, if nobody says how many. Kubernetes gives so many by default."""


def grace_seconds(environ: Mapping[str, str]) -> float:
    """Return how long this process lives after SIGTERM.

    Args:
        environ: The environment of this process.

    Raises:
        InputError: STRATAGEM_GRACE is no number of seconds.

    Example:
        >>> grace_seconds({"STRATAGEM_GRACE": "120"})
        120.0
    """
    written = environ.get(environment.GRACE)
    try:
        seconds = GRACE_SECONDS if written is None else float(written)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise InputError(
            f"{environment.GRACE} is {written!r}.",
            "It says how many seconds a worker still lives when it is told to end, so that it can leave before.",
            f"Write a number of seconds, for instance {environment.GRACE}={GRACE_SECONDS:g}; or leave it out.",
        )
    return seconds


@contextlib.contextmanager
def leaves_at_sigterm(membership: Membership) -> Iterator[None]:
    """Let this worker leave its run at SIGTERM, in this context: it goes behind a step that all do.

    A second SIGTERM ends the process at once. Nothing changes if the program has a handler of its own, or outside the
    main thread, which Python lets handle no signals.

    Args:
        membership: The connection to the coordinator.
    """
    if threading.current_thread() is not threading.main_thread() or is_taken():
        yield
        return
    seconds = grace_seconds(os.environ)

    def leave(number: int, frame: object) -> None:
        give_sigterm_back(leave, before)
        membership.leaves(seconds)

    before = take_sigterm(leave)
    try:
        yield
    finally:
        give_sigterm_back(leave, before)
