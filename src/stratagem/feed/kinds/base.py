"""`Input`, the base of all kinds: passes over whole batches, with which a restarted program can go on."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Protocol

from stratagem.core.errors import InputError, UsageError
from stratagem.data.batches import State
from stratagem.mesh.mesh import Tree

ChiefSeed = Callable[[str, int], int]
"""Returns the chief's value of a number that a worker drew. Arguments: what it is, the number."""


class Pass(Iterator[Tree], Protocol):
    """An iterator over the batches of one pass."""

    def close(self) -> None:
        """End the pass, and the threads and processes that were started for it."""
        ...


class Passes:
    """Batches, pass after pass. It can be read again and again.

    Attributes:
        num_batches: Batches in a pass; None if unknown or endless.
        may_end: Whether a pass may end at a batch that no number tells beforehand.
    """

    num_batches: int | None = None
    may_end: bool = False

    def begin_pass(self) -> None:
        """Called when Keras begins a pass; `num_batches` is that of this pass from then on."""

    def on_epoch_begin(self) -> None:
        """Called when Keras begins an epoch."""

    def on_epoch_end(self) -> None:
        """Called when Keras has ended an epoch."""

    def close(self) -> None:
        """End what lasts longer than a pass: threads, processes."""


class Input(Passes, ABC):
    """Whole batches, pass after pass: all workers read the same ones in the same order.

    A position is the number of batches that were read in each earlier pass, and in the present one.
    """

    alike: str = "Make the same dataset on every worker, from the same seeds."
    """What to write so that all workers read the same batches."""

    @abstractmethod
    def begin(self, earlier: Sequence[int], first: int) -> Pass:
        """Begin a pass behind all passes so far, and behind its own first batches.

        Args:
            earlier: Batches that were read in each earlier pass, in this and in earlier runs of the program.
            first: Batches of this pass that were read in an earlier run.
        """

    @abstractmethod
    def sample(self, earlier: Sequence[int], first: int) -> Tree:
        """Return a batch like those of the pass that `begin` would begin there, which yields all the same ones."""

    def note(self, *, in_pass: bool) -> State:
        """Return what a later run must know beside the position, as plain JSON.

        Args:
            in_pass: Whether it goes on in the pass that was begun last, or begins the next one.
        """
        return {}

    def recall(self, note: State) -> None:
        """Take what `note` returned, in this or an earlier run, before the next pass is begun."""
        return


def no_batch() -> InputError:
    """Return the error for an input without batches."""
    return InputError(
        "The input yields no batch at all.",
        "There is nothing to train on, or to build the model from.",
        "If a generator was used up, make it again. Check that filter(), take() and skip() leave some rows. "
        "batch(..., drop_remainder=True) drops everything if there are fewer rows than a batch has.",
    )


_DEATH = re.compile("terminated abruptly|terminated unexpectedly|exited unexpectedly")


def telling_of_death(batches: Iterator[Tree], kind: str) -> Generator[Tree, None, None]:
    """Yield batches; explain when a process that reads them has died.

    Args:
        batches: A pass of Grain's or of torch's.
        kind: Whose, for the error.

    Raises:
        UsageError: A process has ended.
    """
    try:
        yield from batches
    except RuntimeError as error:
        if not _DEATH.search(str(error)):
            raise
        raise UsageError(
            f"A process that reads batches of a {kind} has ended: {error}",
            "Such a process imports the program again. Statements at its top level run again, and may make a "
            "strategy or start training. Or the process was killed, for example because memory was full.",
            'Put all but imports and definitions under `if __name__ == "__main__":`, and look at the output above.',
        ) from None
