"""Arguments are checked where they are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stratagem.core.errors import InputError
from stratagem.data import check


def test_what_fits_is_returned() -> None:
    assert check.integer("n", np.int64(3), 0, "") == 3
    assert check.function("f", len) is len
    check.shard(3, 2)
    check.one_of("mode", None, ("a", None))
    assert check.weights(None, 3) == [1.0, 1.0, 1.0]
    assert check.weights([0, 2], 2) == [0.0, 2.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: check.integer("n", 1.5, 0, "Write 3."), r"n is 1\.5\.\n.*an integer of at least 0.*\n.*Write 3\."),
        (lambda: check.integer("n", -1, 0, "Write 3."), "n is -1"),
        (lambda: check.integer("n", "x", None, "Write 3."), "needs an integer there"),
        (lambda: check.function("f", 3), "f is 3"),
        (lambda: check.shard(3, 3), r"index is 3, num_shards is 3\.\n.*from 0 to 2"),
        (lambda: check.shard(0, 0), "num_shards is 0"),
        (lambda: check.one_of("mode", "c", {"a": 1, "b": 2}), r"mode is 'c'\.\n.*Write one of 'a', 'b'\."),
        (lambda: check.weights([1], 2), "for 2 datasets"),
        (lambda: check.weights([0, 0], 2), "not all of them 0"),
        (lambda: check.weights([-1, 2], 2), "weights is"),
        (lambda: check.weights([float("inf"), 2], 2), "weights is"),
    ],
)
def test_what_does_not_fit(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
