"""A random order of any length, computed position by position and never stored."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

ROUNDS: Final = 8
"""How often a half is moved, as in NIST's FF3-1. 4 pass the statistical tests of this repository, 2 fail them."""


class Permutation:
    """A random permutation of 0 ... length - 1, as a function of the position.

    A Feistel network on pairs: position x is the pair (x // b, x % b), and in turn each half is moved by a hash of the
    other, which can be undone, so that no two positions meet. The halves are Z_a and Z_b with a * b just above `length`
    rather than powers of two; the few positions that land outside, 1 in sqrt(length), go through the network again
    until they land inside (*cycle walking*). Source: Black and Rogaway, "Ciphers with Arbitrary Finite Domains" (CT-RSA
    2002), sections 3 and 4; the use for shuffling: Mitchell, Stokes, Frank and Holmes, "Bandwidth-Optimal Random
    Shuffling for GPUs" (2022). The hash of a half is the finalizer of SplitMix64 (Steele, Lea and Flood, 2014).

    It is additions, multiplications and shifts of 64-bit integers, the same with every release of NumPy and on every
    platform: stored positions rely on that. An index costs about 50 ns (a sort of a million random numbers: 200 ns).

    Made for long datasets: below some thousand positions the halves are so small that some orders are likelier.

    Args:
        length: How many positions, from 1 to 2**62.
        keys: `ROUNDS` random numbers below 2**64, which choose the permutation.

    Example:
        >>> permutation = Permutation(5, [1, 2, 3, 4, 5, 6, 7, 8])
        >>> sorted(permutation(np.arange(5)).tolist())
        [0, 1, 2, 3, 4]
        >>> Permutation(10**9, [1, 2, 3, 4, 5, 6, 7, 8])(np.array([0, 1, 10**9 - 1])).tolist()
        [325643981, 790338007, 228353894]
    """

    def __init__(self, length: int, keys: Sequence[int] | np.ndarray) -> None:
        self._length = length
        self._keys = [np.uint64(key) for key in keys]
        self._high = math.isqrt(length - 1) + 1
        self._low = -(-length // self._high)

    def __len__(self) -> int:
        return self._length

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """Return what stands at these positions.

        Args:
            positions: Vector of integers from 0 to length - 1.

        Returns:
            Vector of int64 of the same length.
        """
        image = self._network(positions.astype(np.uint64))
        while (outside := np.flatnonzero(image >= np.uint64(self._length))).size:
            image[outside] = self._network(image[outside])
        return image.astype(np.int64)

    def _network(self, positions: np.ndarray) -> np.ndarray:
        high, low = np.divmod(positions, np.uint64(self._low))
        for first, second in zip(self._keys[::2], self._keys[1::2], strict=True):
            high = _moved(high, _hash(low, first, self._high), self._high)
            low = _moved(low, _hash(high, second, self._low), self._low)
        return high * np.uint64(self._low) + low


def _moved(values: np.ndarray, steps: np.ndarray, size: int) -> np.ndarray:
    """Return `(values + steps) % size`, both below `size`."""
    moved = values + steps
    # Where it is too much to subtract `size`, the difference wraps to a number near 2**64.
    return np.minimum(moved, moved - np.uint64(size))


def _hash(values: np.ndarray, key: np.uint64, size: int) -> np.ndarray:
    """Return a number below `size` (at most 2**31) for each value. Some are likelier than others by size / 2**32."""
    mixed = values + key
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed >>= np.uint64(32)
    mixed *= np.uint64(size)
    mixed >>= np.uint64(32)
    return mixed
