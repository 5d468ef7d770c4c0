"""The rounds of synchronous training: a rule of `Dispatch` for when a closure may begin. Pure, as it is."""

from __future__ import annotations

from collections.abc import Sequence


class Rounds:
    """Rounds of synchronous training: the first contributions of each make one update, those that come later none.

    A round is open from the moment the one before is applied. Up to `size` closures may begin in it; a closure that
    ends without a contribution (it only read) makes room for another.

    Source of the semantics: Chen et al., "Revisiting Distributed Synchronous SGD", https://arxiv.org/abs/1604.00981;
    https://www.tensorflow.org/api_docs/python/tf/compat/v1/train/SyncReplicasOptimizer

    Args:
        size: How many closures compute at the same values; None without rounds: then every closure may begin.
        needed: How many contributions end a round; the others are those of backup workers.

    Example:
        >>> rounds = Rounds(size=2, needed=1)
        >>> rounds.begin(0), rounds.begin(1), rounds.admits
        (None, None, False)
        >>> rounds.take(1, "b"), rounds.is_full, rounds.end(), rounds.number
        (True, True, ('b',), 2)
        >>> rounds.take(0, "a")  # too late
        False
    """

    def __init__(self, size: int | None = None, needed: int = 1) -> None:
        self.size = size
        self.needed = needed
        self.number = 1
        """Number of the open round."""
        self.is_committing = False
        """Whether the servers apply the round before; until they have, no closure may read."""
        self._begun: dict[int, int] = {}
        """In which round each closure in flight has begun."""
        self._taken: dict[int, str] = {}
        """The contributions to the open round, by closure."""

    @property
    def _running(self) -> int:
        return sum(number == self.number for number in self._begun.values())

    @property
    def admits(self) -> bool:
        """Whether another closure may begin."""
        return self.size is None or (not self.is_committing and self._running + len(self._taken) < self.size)

    @property
    def is_full(self) -> bool:
        """Whether the open round has all the contributions it needs."""
        return len(self._taken) >= self.needed

    @property
    def is_short(self) -> bool:
        """Whether the open round has contributions, and no closure in flight can add to them."""
        return bool(self._taken) and not self._running

    @property
    def is_applied(self) -> bool:
        """Whether all contributions that were taken are applied."""
        return not self._taken and not self.is_committing

    def round_of(self, closure: int) -> int | None:
        """Return the round in which a closure in flight has begun; None without rounds."""
        return self._begun.get(closure)

    def give_up(self) -> None:
        """Drop the contributions to the open round and to the one before, as these cannot be applied."""
        self._taken.clear()
        self.number += 1
        self.is_committing = False

    def begin(self, closure: int) -> None:
        """Take note that a closure begins."""
        if self.size is not None:
            self._begun[closure] = self.number

    def leave(self, closure: int) -> None:
        """Take note that a closure failed or was lost."""
        self._begun.pop(closure, None)

    def take(self, closure: int, contribution: str | None) -> bool:
        """Take the contribution of a closure that has ended; return False if it comes too late."""
        in_time = self._begun.pop(closure, None) == self.number
        if contribution is not None and in_time:
            self._taken[closure] = contribution
        return self.size is None or contribution is None or in_time

    def end(self) -> tuple[str, ...]:
        """End the open round; return its contributions, in the order of their closures, whichever came first."""
        contributions = tuple(self._taken[closure] for closure in sorted(self._taken))
        self._taken.clear()
        self.number += 1
        self.is_committing = True
        return contributions

    def holds(self, running: Sequence[int]) -> bool:
        """Return whether a round has no more closures than it may, and no closure but those in flight is known."""
        return self.size is None or (set(self._begun) == set(running) and self._running + len(self._taken) <= self.size)
