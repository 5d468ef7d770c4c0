"""Seconds of a process by what they were spent on: input, computing, waiting for others, and so on."""

from __future__ import annotations

from typing import Final, NamedTuple


class Spent(NamedTuple):
    """Seconds of a process since it began, by what they were spent on.

    Args:
        starting: Before its first step: imports, making the model and the data.
        compiling: Tracing and compiling steps, and the first run of each.
        input: Waiting for the rows of a batch, or reading them.
        copying: Putting the rows of a batch on devices.
        computing: In a step, without what follows.
        exchanging: Copying and adding what workers exchange.
        waiting: Waiting for other workers.
        between: Between steps: callbacks, and what else the program does there.
        saving: Writing and reading checkpoints, backups and models.

    Example:
        >>> later = Spent(input=3.0, computing=8.0)
        >>> earlier = Spent(input=1.0, computing=2.0)
        >>> later.since(earlier).computing, later.since(earlier).total
        (6.0, 8.0)
    """

    starting: float = 0.0
    compiling: float = 0.0
    input: float = 0.0
    copying: float = 0.0
    computing: float = 0.0
    exchanging: float = 0.0
    waiting: float = 0.0
    between: float = 0.0
    saving: float = 0.0

    def since(self, earlier: Spent) -> Spent:
        """Return what was spent after an earlier moment, never less than nothing."""
        return Spent(*(max(0.0, now - then) for now, then in zip(self, earlier, strict=True)))

    @property
    def total(self) -> float:
        """All seconds together."""
        return sum(self)

    @property
    def training(self) -> float:
        """Seconds of steps and of what lies between them: without the start, compiling and saving."""
        return self.input + self.copying + self.computing + self.exchanging + self.waiting + self.between


NOTHING_SPENT: Final = Spent()
"""The beginning of a process."""

LABELS: Final = {
    "starting": "start",
    "compiling": "compile",
    "input": "input",
    "copying": "copy",
    "computing": "compute",
    "exchanging": "exchange",
    "waiting": "wait",
    "between": "between",
    "saving": "save",
}
"""Short names of the parts, for tables."""
