"""Work on threads of its own: workers that a test runs in one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

SECONDS = 60.0
"""Longest time that the work of a test may take."""


def on_threads(work: Sequence[Callable[[], Any]], *expected: type[Exception]) -> list[Any]:
    """Run each function on a thread of its own; return what each returns, or raises.

    Args:
        work: The functions.
        expected: Errors that are returned. Any other fails the test, as in every thread.
    """
    found: list[Any] = [None] * len(work)

    def run(i: int) -> None:
        try:
            found[i] = work[i]()
        except expected as error:
            found[i] = error

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive(), f"it still works after {SECONDS:g} s"
    return found
