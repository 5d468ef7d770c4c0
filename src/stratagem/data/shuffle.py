"""Shuffling: with a buffer, tf.data's rule, computed for many elements at once; or by a permutation function.

tf.data keeps a buffer of `buffer_size` elements; each step hands out a uniformly drawn one and puts the next element
of the input into its slot; when the input ends, the rest leaves in random order. So the element at position i cannot
come before position i - buffer_size + 1, and a buffer that holds the whole dataset gives a uniform permutation.

Here the same steps are taken on row numbers, a chunk at a time: what leaves a slot is whatever entered it last, which
a stable sort of the drawn slots tells for all steps of the chunk together.

A buffer that holds all of a long input which can be read at any position needs no buffer: a function of the position
says what comes there, so that a pass begins, skips and holds no more memory with 10**9 elements than with ten.
"""

from __future__ import annotations

import numpy as np

from stratagem.data.blocks import Block, join
from stratagem.data.nodes import (
    BlockStream,
    Consecutive,
    Key,
    Lookup,
    Node,
    PositionStream,
    Seeded,
    Stream,
    pull_exactly,
)
from stratagem.data.permutation import ROUNDS, Permutation

_LONGEST_CHUNK = 1 << 16

_LONGEST_SORTED = 1 << 20
"""Elements up to which the order of a whole input is a sort of random numbers. Stored positions rely on it.

Sorting so many takes 0.2 s and 25 MB at the beginning of a pass, and both grow with the length.
"""

_COMPUTED = 1 << 13
"""Positions of a permutation computed together: NumPy's calls then cost less than the arithmetic (0.4 ms for all)."""


class Shuffle(Seeded):
    """The elements in a random order, a function of the seed and of the pass's key.

    Args:
        inner: What to shuffle.
        buffer_size: Slots of the buffer.
        seed: See `Seeded`.
        reshuffle: Whether every iteration and repetition has an order of its own.
    """

    def __init__(self, inner: Node, buffer_size: int, seed: int | None, reshuffle: bool) -> None:
        super().__init__([inner], seed)
        self._buffer_size = buffer_size
        self._reshuffle = reshuffle
        self.repeats_itself = not reshuffle

    def stream(self, key: Key) -> Stream:
        inner = self._whole_input(key)
        if inner is not None:
            return PositionStream(self.inputs[0].cardinality(), _PermutedRows(inner, self._permutation(key)))
        return _ShuffleStream(self.inputs[0].stream(key), self._buffer_size, self._bits(key))

    def lookup(self, key: Key) -> Lookup | None:
        inner = self._whole_input(key)
        if inner is None:
            return None
        permutation = self._permutation(key)
        return lambda positions: inner(permutation(positions))

    def _whole_input(self, key: Key) -> Lookup | None:
        """Return how to reach the elements of the input, if the order of all of them is to be a permutation."""
        fits = _LONGEST_SORTED < self.inputs[0].cardinality() <= self._buffer_size
        return self.inputs[0].lookup(key) if fits else None

    def _permutation(self, key: Key) -> Permutation:
        return Permutation(self.inputs[0].cardinality(), self._bits(key).random_raw(ROUNDS))

    def _bits(self, key: Key) -> np.random.Philox:
        return self.bits(key if self._reshuffle else ())


class _PermutedRows:
    """Elements of an input in a permuted order, whose positions are computed some thousands at a time."""

    def __init__(self, inner: Lookup, permutation: Permutation) -> None:
        self._inner = inner
        self._permutation = permutation
        self._first = 0
        self._computed = np.empty(0, np.int64)

    def __call__(self, start: int, end: int) -> Block:
        if end > self._first + len(self._computed):
            last = min(max(end, start + _COMPUTED), len(self._permutation))
            self._first, self._computed = start, self._permutation(np.arange(start, last))
        return self._inner(self._computed[start - self._first : end - self._first])


class _ShuffleStream(Consecutive):
    def __init__(self, inner: Stream, buffer_size: int, bits: np.random.Philox) -> None:
        self._inner = inner
        self._size = buffer_size
        self._bits = bits
        self._buffer: Block | None = None
        self._input_ended = False

    def following(self, rows: int) -> Stream | None:
        if self._buffer is None and not self._input_ended:
            self._buffer = pull_exactly(self._inner, self._size)
            self._input_ended = self._buffer is None or len(self._buffer) < self._size
        if self._buffer is None:
            return None
        # Chunks of an eighth of the buffer: copying the buffer's row numbers once a chunk then costs little per row,
        # and the elements held beyond the buffer stay few.
        chunk = min(max(rows, self._size // 8), _LONGEST_CHUNK)
        arriving = None if self._input_ended else pull_exactly(self._inner, chunk)
        if arriving is not None:
            return BlockStream(self._exchange(self._buffer, arriving))
        self._input_ended = True
        rest, self._buffer = self._buffer, None
        return BlockStream(rest.select(np.argsort(self._bits.random_raw(len(rest)), kind="stable")))

    def _exchange(self, buffer: Block, arriving: Block) -> Block:
        """Put each arriving row into a drawn slot; return what was in those slots, in order."""
        slots = self._draw(len(arriving))
        leaving, staying = exchange(slots, len(buffer))
        pool = join([buffer, arriving])
        self._buffer = pool.select(staying)
        return pool.select(leaving)

    def _draw(self, count: int) -> np.ndarray:
        """Return `count` slots. The bias of the multiplication is under buffer_size / 2**32."""
        high = np.atleast_1d(self._bits.random_raw(count)) >> np.uint64(32)
        return ((high * np.uint64(self._size)) >> np.uint64(32)).astype(np.intp)


def exchange(slots: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return what leaves and what stays when arriving row t takes the place of whatever is in `slots[t]`.

    Args:
        slots: One slot for each arriving row, in order.
        size: Number of slots; slot s holds row s, and arriving row t is row `size + t`.

    Returns:
        The row that leaves at each step, and the row that each slot holds at the end.

    Example:
        >>> leaving, staying = exchange(np.array([1, 1, 0]), size=2)
        >>> leaving.tolist(), staying.tolist()
        ([1, 2, 0], [4, 3])
    """
    order = np.argsort(slots, kind="stable")
    sorted_slots = slots[order]
    same_as_before = sorted_slots[1:] == sorted_slots[:-1]
    source = sorted_slots.copy()
    source[1:][same_as_before] = size + order[:-1][same_as_before]
    leaving = np.empty_like(source)
    leaving[order] = source
    staying = np.arange(size)
    last = np.append(~same_as_before, True)
    staying[sorted_slots[last]] = size + order[last]
    return leaving, staying
