"""Time that training spends waiting for its input, and how to reduce it."""

from __future__ import annotations

from typing import Any, Final

import jax

from stratagem.core.progress import Progress
from stratagem.feed.source import Source
from stratagem.mesh.mesh import Tree

_SHARE: Final = 0.2
_SECONDS: Final = 1.0
"""An epoch that waited for more than this share of its time, and for more than these seconds, is worth a line."""


class InputWait:
    """The waits of one `fit` for batches.

    A wait is the time between two steps in which the loop has no batch: for what reads ahead, or, where nothing does,
    for reading itself. It counts where no step was running any more when it ended: a step on an accelerator goes on
    while the loop waits. A wait that such a step hides in part counts in full.

    Args:
        progress: Whose phases are measured.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._running: Any = None
        self.begin_epoch()

    def begin_epoch(self) -> None:
        """Count from zero."""
        self.steps = 0
        self.waited = 0.0
        self._first: float | None = None
        self._last = 0.0

    def took(self, seconds: float, steps: int) -> None:
        """Count a wait that is over now, for the batches of so many steps."""
        now = self._progress.mark.since
        self._first = now - seconds if self._first is None else self._first
        self.steps += steps
        if self._running is None or self._running.is_ready():
            self.waited += seconds
            self._progress.waited_for_input += seconds

    def stepped(self, results: Tree) -> None:
        """Note that a step was begun, which is over when its results are there."""
        leaves = jax.tree.leaves(results)
        self._running = leaves[0] if leaves and hasattr(leaves[0], "is_ready") else None
        self._last = self._progress.mark.since

    @property
    def seconds(self) -> float:
        """Seconds from the first wait of the epoch to the end of its last step."""
        return 0.0 if self._first is None else self._last - self._first

    @property
    def is_bottleneck(self) -> bool:
        """Whether the epoch waited for a large part of its time."""
        return self.waited > _SECONDS and self.waited > _SHARE * self.seconds

    def report(self, epoch: int, source: Source) -> str:
        """Return a line for a person: how much of an epoch was lost, and what to write."""
        each = 1e3 / self.steps
        return (
            f"input: {self.waited / self.seconds:.0%} of epoch {epoch + 1} was spent waiting for data "
            f"({self.waited * each:.1f} ms of {self.seconds * each:.1f} ms a step); {source.advice()}"
        )
