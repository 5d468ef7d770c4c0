"""Values that workers hold, so that functions need not bring them each time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(slots=True)
class Shared:
    """A value that workers hold.

    Args:
        data: Pickled.
        to_call: Whether the value is what the pickled function returns.
        needs: Numbers of shared values that it refers to.
        uses: How many closures and shared values refer to it, and one while its owner wants it.
    """

    data: bytes
    to_call: bool
    needs: frozenset[int] = frozenset()
    uses: int = 1


class SharedValues:
    """Shared values by number. One that nobody uses any more is gone.

    Example:
        >>> values = SharedValues()
        >>> values.add(1, Shared(b"model", to_call=False))
        >>> values.add(2, Shared(b"dataset", to_call=True, needs=frozenset([1])))
        >>> values.missing(frozenset([2]), known=set())
        [1, 2]
        >>> values.release([1]), values.gone({1, 2})  # the dataset refers to the model
        (None, set())
        >>> values.release([2]), values.gone({1, 2})
        (None, {1, 2})
    """

    def __init__(self) -> None:
        self._values: dict[int, Shared] = {}

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, number: int) -> Shared:
        return self._values[number]

    def add(self, number: int, shared: Shared) -> None:
        """Take a value in."""
        self._values[number] = shared
        self.use(shared.needs)

    def use(self, numbers: Iterable[int]) -> None:
        """Take note that one more refers to values."""
        for number in numbers:
            self._values[number].uses += 1

    def release(self, numbers: Iterable[int]) -> None:
        """Take note that one less refers to values."""
        for number in numbers:
            shared = self._values[number]
            shared.uses -= 1
            if not shared.uses:
                del self._values[number]
                self.release(shared.needs)

    def gone(self, known: set[int]) -> set[int]:
        """Return those of the values that a worker has that nobody uses any more."""
        return known - self._values.keys()

    def missing(self, needs: frozenset[int], known: set[int]) -> list[int]:
        """Return the values that a worker still needs, those that others refer to first.

        Args:
            needs: What a function refers to.
            known: What the worker has.
        """
        missing: list[int] = []
        for number in sorted(needs - known):
            missing += [each for each in self.missing(self._values[number].needs, known) if each not in missing]
            missing += [number] if number not in missing else []
        return missing
