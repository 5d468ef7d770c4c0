"""Signals as the programs of a terminal find them."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def hang_up_ends_a_program() -> Iterator[None]:
    """Let SIGHUP do what it does to a program: those that nohup starts ignore it, and so do their children."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
