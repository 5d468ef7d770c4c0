"""Shares of a global batch: the rows of each replica.

A batch of `n` rows over `R` replicas gives the first `n % R` replicas one row more than the
others, in order, so that the shares put side by side are the batch. If each worker reads its own stream, its
share is what that stream yields. All arithmetic on shares is in this file, which knows no device.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from stratagem.core.split import even_sizes


@dataclass(frozen=True)
class Split:
    """The shares of one global batch.

    Args:
        rows: Rows in the global batch.
        replicas: How many replicas share it.
        given: Rows of each replica where they are not shared out as above; make such a split with `of`.

    Example:
        >>> Split(rows=7, replicas=3).shares
        (3, 2, 2)
    """

    rows: int
    replicas: int
    given: tuple[int, ...] | None = None

    @classmethod
    def of(cls, shares: Sequence[int]) -> Split:
        """Return the split of these shares; equal shares give equal splits.

        Args:
            shares: Rows of each replica, in the order of their ids.

        Example:
            >>> Split.of([3, 2, 2]) == Split(rows=7, replicas=3)
            True
            >>> Split.of([2, 0]).shares
            (2, 0)
        """
        return _split_of(tuple(shares))

    @property
    def even(self) -> bool:
        """Whether every replica gets the same number of rows."""
        return self.given is None and self.rows % self.replicas == 0 and self.rows > 0

    @property
    def shares(self) -> tuple[int, ...]:
        """Rows of each replica, in the order of their ids."""
        if self.given is not None:
            return self.given
        return equal_shares(self.rows, self.replicas)

    @property
    def block(self) -> int:
        """Rows that every replica holds in memory: the largest share, and at least one."""
        return max(1, *self.shares)

    def start(self, replica: int) -> int:
        """Return the first row of a replica's share.

        Args:
            replica: Id of the replica; `replicas` itself gives the end of the last share.

        Example:
            >>> [Split(rows=7, replicas=3).start(i) for i in range(4)]
            [0, 3, 5, 7]
        """
        return sum(self.shares[:replica])


# A run has few sizes of batches, and each step asks for its split several times.


@functools.lru_cache(maxsize=1024)
def equal_shares(rows: int, replicas: int) -> tuple[int, ...]:
    """Return the rows of each replica where a batch is shared out as above.

    Args:
        rows: Rows in the global batch.
        replicas: How many replicas share it.
    """
    return tuple(even_sizes(rows, replicas))


@functools.lru_cache(maxsize=1024)
def _split_of(shares: tuple[int, ...]) -> Split:
    rows, replicas = sum(shares), len(shares)
    return Split(rows, replicas) if equal_shares(rows, replicas) == shares else Split(rows, replicas, shares)
