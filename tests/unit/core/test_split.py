"""Parts are as equal as can be, larger ones first, and cover everything once."""

from __future__ import annotations

import pytest

from stratagem.core.split import even_part, even_sizes


@pytest.mark.parametrize(
    ("count", "parts", "sizes"),
    [(7, 3, [3, 2, 2]), (8, 3, [3, 3, 2]), (9, 3, [3, 3, 3]), (2, 4, [1, 1, 0, 0]), (0, 2, [0, 0]), (5, 1, [5])],
)
def test_sizes_and_parts(count: int, parts: int, sizes: list[int]) -> None:
    assert even_sizes(count, parts) == sizes
    slices = [even_part(count, parts, index) for index in range(parts)]
    assert [part.stop - part.start for part in slices] == sizes
    assert [row for part in slices for row in range(count)[part]] == list(range(count))
