"""State that workers give each other where their number changes, or one takes the place of another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

_Result = TypeVar("_Result", covariant=True)


class Given(NamedTuple):
    """State of a worker after a step, as another one takes it.

    Args:
        said: What is no array, as JSON.
        arrays: The arrays.
    """

    said: Any
    arrays: list[np.ndarray]


class StateOfStep(Protocol[_Result]):
    """The state that a step begins with, and what the step before returned."""

    def give(self) -> Given:
        """Return the state, for a worker that does not hold it."""
        ...

    def take(self, given: Given) -> _Result:
        """Take the state of another worker, which has completed this step; return what its step returned."""
        ...

    def meet_new(self) -> None:
        """Forget what a new worker has yet to make, together with this one."""
        ...


class Loop(Protocol):
    """A loop of the program's own that workers may leave and join (`backup.elastic_state`)."""

    def begin_program(self) -> None:
        """Do what comes before each of its programs."""
        ...

    def check_placed(self, variables: Sequence[Any]) -> None:
        """Refuse variables of which a worker that came later does not have the values of the others.

        Args:
            variables: Those that lie elsewhere than programs of this world need them.
        """
        ...


class ResizedError(Exception):
    """Unwinds what runs: its programs are made for another number of workers, or for another rank of this one.

    Args:
        given: The state with which a `fit` begins again; None where an evaluation does.
    """

    def __init__(self, given: Given | None = None) -> None:
        super().__init__("the number of workers is another")
        self.given = given
