"""What every kind of input has in common: passes over whole batches, that a restarted program can go on with."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from stratagem.core.errors import InputError
from stratagem.data.batches import State
from stratagem.mesh.mesh import Tree

ChiefSeed = Callable[[str, int], int]
"""Returns the chief's value of a number that a worker drew. Arguments: what it is, the number."""


class Pass(Protocol):
    """An iterator over the batches of one pass."""

    def __iter__(self) -> Iterator[Tree]: ...

    def __next__(self) -> Tree: ...

    def close(self) -> None:
        """End the pass, and the threads and processes that were started for it."""
        ...


class Input(ABC):
    """Whole batches, pass after pass: all workers read the same ones in the same order.

    A place is the number of batches that were read in each earlier pass, and in the present one.
    """

    num_batches: int | None = None
    """Batches in a pass; None if unknown or endless."""

    may_end: bool = False
    """Whether a pass ends at a batch that no number tells beforehand."""

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
        """Return what a later run must know beside the place, as plain JSON.

        Args:
            in_pass: Whether it goes on in the pass that was begun last, or begins the next one.
        """
        return {}

    def recall(self, note: State) -> None:
        """Take what `note` returned, in this or an earlier run, before the next pass is begun."""
        return

    def on_epoch_begin(self) -> None:
        """Hear that Keras begins an epoch."""
        return

    def on_epoch_end(self) -> None:
        """Hear that Keras has ended an epoch."""
        return

    def close(self) -> None:
        """End what lasts longer than a pass; a next pass may begin all the same."""
        return


class Peekable:
    """A pass whose next batch can be looked at.

    Args:
        batches: The pass.
    """

    def __init__(self, batches: Iterator[Tree]) -> None:
        self._batches = batches
        self._seen: list[Tree] = []
        self._last: Tree = None
        self.taken = 0
        """Batches that were handed out or skipped."""

    def __iter__(self) -> Iterator[Tree]:
        return self

    def __next__(self) -> Tree:
        batch = self._seen.pop() if self._seen else next(self._batches)
        self.taken += 1
        return batch

    def peek(self) -> Tree:
        """Return the next batch, which stays the next; at the end the last one that was skipped.

        Raises:
            InputError: There is none.
        """
        if not self._seen:
            self._seen.extend(itertools.islice(self._batches, 1))
        if not self._seen and self._last is None:
            raise no_batch()
        return self._seen[0] if self._seen else self._last

    def skip_to(self, batch: int) -> None:
        """Pass over the batches before a number.

        Raises:
            InputError: The pass ends before it.
        """
        while self.taken < batch:
            self._last = next(self, None)
            if self._last is None:
                raise ended_before(batch)

    def close(self) -> None:
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()


def no_batch() -> InputError:
    """Return the error for an input without batches."""
    return InputError(
        "The input yields no batch at all.",
        "There is nothing to train on, or to build the model from.",
        "Make a generator that was used up anew; see what filter(), take() and skip() leave of a dataset, and that "
        "batch(..., drop_remainder=True) leaves nothing of fewer rows than a batch has.",
    )


def ended_before(batch: int) -> InputError:
    """Return the error for an input that has become shorter."""
    return InputError(
        f"The input ended before batch {batch}, where training was interrupted.",
        "It is not the input that was trained on, and training cannot go on from there.",
        "Give `fit` the same input as before, a generator anew from its beginning.",
    )


def is_instance(value: Any, module: str, *names: str) -> bool:
    """Whether a value is of one of these classes, of a library that need not be installed.

    Args:
        value: Anything.
        module: Where the classes are defined, or a package above.
        names: Their names.
    """
    return any(
        base.__name__ in names and f"{base.__module__}.".startswith(f"{module}.") for base in type(value).__mro__
    )
