"""Even division of a number of things among parts: the first `count % parts` parts get one more."""

from __future__ import annotations


def even_sizes(count: int, parts: int) -> list[int]:
    """Return how many things each part gets, the larger parts first.

    Args:
        count: Number of things, 0 or more.
        parts: Number of parts, 1 or more.

    Example:
        >>> even_sizes(13, 5)
        [3, 3, 3, 2, 2]
    """
    least, larger = divmod(count, parts)
    return [least + (part < larger) for part in range(parts)]


def even_part(count: int, parts: int, index: int) -> slice:
    """Return which things one part gets, where neighbours stay together.

    Args:
        count: Number of things, 0 or more.
        parts: Number of parts, 1 or more.
        index: Number of the part, from 0.

    Example:
        >>> [even_part(13, 5, index) for index in (0, 3)]
        [slice(0, 3, None), slice(9, 11, None)]
    """
    least, larger = divmod(count, parts)
    start = index * least + min(index, larger)
    return slice(start, start + least + (index < larger))
