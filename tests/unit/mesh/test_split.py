from __future__ import annotations

import itertools

import pytest

from stratagem.mesh.split import Split


@pytest.mark.parametrize(
    ("rows", "replicas", "shares", "block", "even"),
    [
        (8, 4, (2, 2, 2, 2), 2, True),
        (7, 3, (3, 2, 2), 3, False),
        (2, 4, (1, 1, 0, 0), 1, False),
        (1, 1, (1,), 1, True),
        (5, 1, (5,), 5, True),
        (0, 2, (0, 0), 1, False),
    ],
)
def test_shares(rows: int, replicas: int, shares: tuple[int, ...], block: int, even: bool) -> None:
    split = Split(rows, replicas)
    assert split.shares == shares
    assert split.block == block
    assert split.even is even
    starts = [split.start(i) for i in range(replicas + 1)]
    assert starts[0] == 0
    assert starts[-1] == rows
    assert tuple(b - a for a, b in itertools.pairwise(starts)) == shares


def test_shares_that_streams_gave() -> None:
    split = Split.of([2, 0, 3])
    assert split.shares == (2, 0, 3)
    assert (split.rows, split.block, split.even) == (5, 3, False)
    assert [split.start(i) for i in range(4)] == [0, 2, 2, 5]
    assert not Split.of([0, 4]).even
    assert Split.of([2, 2]) == Split(4, 2)
    assert Split.of([2, 2]).even
