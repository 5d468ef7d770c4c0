"""The values used last stay, up to a total size, and go with their owner."""

from __future__ import annotations

import gc
import pickle

from stratagem.data.lru import Recent


class Owner:
    """Something that values belong to."""


def test_the_value_that_was_not_used_for_longest_goes_first() -> None:
    made: list[str] = []
    recent: Recent[str] = Recent(limit=2)
    for key in "abacab":
        recent.get(key, lambda key=key: made.append(key) or key)
    assert made == ["a", "b", "c", "b"]


def test_sizes_count_and_the_last_value_stays_whatever_its_size() -> None:
    recent: Recent[bytes] = Recent(limit=10)
    for key, size in (("a", 4), ("b", 6), ("c", 5), ("d", 99)):
        recent.get(key, lambda size=size: bytes(size), len)
        assert len(recent) == {"a": 1, "b": 2, "c": 1, "d": 1}[key]


def test_values_go_with_their_owner() -> None:
    recent: Recent[int] = Recent(limit=9)
    owner, other = Owner(), Owner()
    assert (recent.get("x", lambda: 1, owner=owner), recent.get("x", lambda: 2, owner=other)) == (1, 2)
    del owner
    gc.collect()
    assert len(recent) == 1
    assert recent.get("x", lambda: 3, owner=other) == 2


def test_it_pickles_empty() -> None:
    recent: Recent[int] = Recent(limit=1)
    recent.get("a", lambda: 1)
    copy = pickle.loads(pickle.dumps(recent))
    assert len(copy) == 0
    copy.get("a", lambda: 1)
    copy.get("b", lambda: 2)
    assert len(copy) == 1
