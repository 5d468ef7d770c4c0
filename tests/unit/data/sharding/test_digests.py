"""Digests tell examples apart, and passes are compared by them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from stratagem.data.sharding.digests import Difference, difference, row_digests, twice_and_never


def test_digests_tell_content_apart() -> None:
    columns = [np.array([[0.0, 1], [0, 1], [1, 0]]), np.array([1, 2, 1])]
    assert len(set(row_digests(columns).tolist())) == 3
    wide, narrow = np.array(["a", "longer"]), np.array(["a", "b"])
    assert row_digests([wide])[0] == row_digests([narrow])[0]
    assert row_digests([np.array([b"a\0", b"a"], object)]).tolist()[0] != row_digests([np.array([b"a"], object)])[0]
    assert row_digests([np.empty((0, 3))]).shape == (0,)
    grouped: list[Callable[[], np.ndarray]] = [lambda: np.array([["a", "b"]]), lambda: np.array([["ab", ""]])]
    assert row_digests([grouped[0]()])[0] != row_digests([grouped[1]()])[0]


@pytest.mark.parametrize(
    ("expected", "found", "complete", "result"),
    [
        ([[1, 2], [3]], [[1, 2], [3]], True, None),
        ([[1, 2], [3]], [[2, 1], [3]], True, Difference("order", 0, 0, 2)),
        ([[1, 2], [3]], [[1, 2], [4]], True, Difference("content", 1, 0, 1)),
        ([[1, 2], [3]], [[1, 2]], True, Difference("length", 1, 0, 0)),
        ([[1, 2, 3, 4]], [[2, 1, 4, 5]], True, Difference("content", 0, 0, 4)),
        ([[1, 2, 3, 4]], [[2, 1, 4, 5]], False, Difference("order", 0, 0, 4)),
    ],
)
def test_difference(
    expected: list[list[int]], found: list[list[int]], complete: bool, result: Difference | None
) -> None:
    one, other = ([np.array(step, np.uint64) for step in steps] for steps in (expected, found))
    assert difference(one, other, complete=complete) == result


def test_examples_found_too_often_and_too_rarely() -> None:
    assert twice_and_never(np.array([1, 2, 3, 3]), np.array([1, 1, 1, 3])) == (2, 2)
