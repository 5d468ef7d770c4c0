"""Signals as a terminal's programs find them; the program that brings faults upon itself is no test.

That program reads its arguments as it is imported.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

collect_ignore = ["trains_disturbed.py"]


@pytest.fixture(autouse=True)
def hang_up_ends_a_program() -> Iterator[None]:
    """Let SIGHUP do what it does to a program: those that nohup starts ignore it, and so do their children."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
