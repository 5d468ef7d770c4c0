"""State that workers give each other where their number changes, or one takes the place of another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from stratagem.core.errors import UnsupportedError
from stratagem.mesh.kept_shards import Shard

_Result = TypeVar("_Result", covariant=True)


class Piece:
    """Part of a divided array that a worker is to keep, with the shape of the whole.

    Args:
        shape: That of the whole.
        axis: Along which it is divided.
        block: Where the part lies in it.
        part: The part.
    """

    def __init__(self, shape: Sequence[int], axis: int, block: Sequence[slice], part: np.ndarray) -> None:
        self.shape = tuple(shape)
        self.axis = axis
        self.dtype = part.dtype
        self._block = self._bounds(block)
        self._part = part

    def __getitem__(self, index: Sequence[slice]) -> np.ndarray:
        """Return the part, which must be what is asked for."""
        if self._bounds(index) != self._block:
            raise IndexError(f"this worker keeps {self._block} of {self.shape}, not {self._bounds(index)}")
        return self._part

    def _bounds(self, index: Sequence[slice]) -> list[tuple[int, int]]:
        slices = [*index, *[slice(None)] * (len(self.shape) - len(index))]
        return [each.indices(length)[:2] for each, length in zip(slices, self.shape, strict=True)]


class Given(NamedTuple):
    """State of a worker after a step, as another one takes it.

    Args:
        said: What is no array, as JSON.
        arrays: The arrays. Of those that are divided among workers a `Piece`, or what the giver has.
    """

    said: Any
    arrays: list[Any]

    def with_pieces(self, pieces: Mapping[int, Any]) -> Given:
        """Return it with other arrays in some places."""
        return (
            self
            if not pieces
            else Given(self.said, [pieces.get(place, array) for place, array in enumerate(self.arrays)])
        )


class StateOfStep(Protocol[_Result]):
    """The state that a step begins with, and what the step before returned."""

    def shards(self) -> Sequence[Shard]:
        """Return what it has of values that are divided among several workers, as they are now."""
        ...

    def put_back(self) -> None:
        """Take back what `ChangingWorld.run` has computed in a step whose end not all workers have reached."""
        ...

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


def another_step() -> UnsupportedError:
    """Return the error of a new worker that meets others before it has come to them."""
    return UnsupportedError(
        "A new worker came to a step that does not belong to the `fit`, or the loop, of the other workers.",
        "It would continue with weights of its own.",
        "Let `fit`, or a loop in stratagem.ElasticState.run, be the first thing that the program computes on all "
        "workers; or leave --spares and --elastic out.",
    )
