"""How a worker's process ends, as a number."""

from __future__ import annotations

from typing import Final

PREEMPTED: Final = 42
"""The machine was wanted back (SIGTERM); the state is saved. Another try goes on, and this end is no failure."""
