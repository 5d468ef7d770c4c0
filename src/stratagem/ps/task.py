"""State of a worker between functions: the task that this thread works for."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from stratagem.core.errors import UsageError
from stratagem.core.made_here import not_noting
from stratagem.ps.own_state import OwnState
from stratagem.ps.variables import Residence


class ClosesWhenDropped(ABC):
    """A shared value that has something to close when no function needs it any more."""

    @abstractmethod
    def close(self) -> None:
        """Close it."""


@dataclass(eq=False)
class WorkerTask:
    """One worker, in one life.

    Args:
        index: Which worker.
        workers: How many there are.
        stream: Tells apart the random streams of workers, and of the lives of one.
        residence: Where the variables live.
        variables: The variables it knows, by name.
        optimizers: The optimizers it knows, by name.
        shared: Shared values by number, such as datasets.
        recipes: Functions that make the shared values that nothing has needed yet, or that could not be made.
        own_state: Watches over what functions leave behind.
        strategy: This worker's side of the strategy, once something asks for it.
    """

    index: int
    workers: int
    stream: int
    residence: Residence
    variables: dict[str, Any] = field(default_factory=dict)
    optimizers: dict[str, Any] = field(default_factory=dict)
    shared: dict[int, Any] = field(default_factory=dict)
    recipes: dict[int, Callable[[], Any]] = field(default_factory=dict)
    own_state: OwnState = field(default_factory=OwnState)
    strategy: Any = None

    def shared_value(self, number: int) -> Any:
        """Return a shared value, made now if it was not yet: what failed once (a disk, a network) may succeed."""
        if number not in self.shared:
            with not_noting():
                self.shared[number] = self.recipes[number]()
            del self.recipes[number]
        return self.shared[number]


_current = threading.local()


@contextlib.contextmanager
def working_for(task: WorkerTask) -> Iterator[None]:
    """Let this thread work for a task."""
    _current.task = task
    try:
        yield
    finally:
        del _current.task


def current_task() -> WorkerTask:
    """Return the task that this thread works for.

    Raises:
        UsageError: None: this is no function that a worker runs.
    """
    task = getattr(_current, "task", None)
    if task is None:
        raise UsageError(
            "This was called outside a function that a worker runs: there is no current worker here.",
            "Call it in a function given to coordinator.schedule or create_per_worker_dataset.",
        )
    return task
