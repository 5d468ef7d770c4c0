"""Shuffling with a buffer, tf.data's rule, computed for many elements at once.

tf.data keeps a buffer of `buffer_size` elements; each step hands out a uniformly drawn one and puts the next element
of the input into its slot; when the input ends, the rest leaves in random order. So the element at position i cannot
come before position i - buffer_size + 1, and a buffer that holds the whole dataset gives a uniform permutation.

Here the same steps are taken on row numbers, a chunk at a time: what leaves a slot is whatever entered it last, which
a stable sort of the drawn slots tells for all steps of the chunk together.
"""

from __future__ import annotations

import numpy as np

from stratagem.data.blocks import Block, join
from stratagem.data.nodes import BlockStream, Key, Node, Seeded, Stream, pull_exactly

_LONGEST_CHUNK = 1 << 16


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

    def stream(self, key: Key) -> Stream:
        return _ShuffleStream(self.inputs[0].stream(key), self._buffer_size, self._bits(key))

    def cardinality(self) -> int:
        return self.inputs[0].cardinality()

    def _bits(self, key: Key) -> np.random.Philox:
        return self.bits(key if self._reshuffle else ())


class _ShuffleStream(Stream):
    def __init__(self, inner: Stream, buffer_size: int, bits: np.random.Philox) -> None:
        self._inner = inner
        self._size = buffer_size
        self._bits = bits
        self._buffer: Block | None = None
        self._ready: Stream | None = None
        self._input_ended = False

    def pull(self, rows: int) -> Block | None:
        block = self._ready.pull(rows) if self._ready else None
        if block is None and (chunk := self._next_chunk(rows)) is not None:
            self._ready = BlockStream(chunk)
            block = self._ready.pull(rows)
        return block

    def _next_chunk(self, rows: int) -> Block | None:
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
            return self._exchange(self._buffer, arriving)
        self._input_ended = True
        rest, self._buffer = self._buffer, None
        return rest.select(np.argsort(self._bits.random_raw(len(rest)), kind="stable"))

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
