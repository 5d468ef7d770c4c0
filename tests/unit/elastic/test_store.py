"""The store of a world: what each request is answered, and who else gets an answer by it."""

from __future__ import annotations

from typing import Any

import pytest

from stratagem.elastic import store as of_world
from stratagem.elastic.store import LATE, OVER, REFUSED, Answer, WorldStore


class Asked:
    """A store of members 1 to 3, of which each request has the next number."""

    def __init__(self) -> None:
        self.store = WorldStore(4, frozenset([1, 2, 3]))
        self.now = 0.0
        self._number = 0

    def __call__(self, member: int, what: str, key: str, seconds: float = 0.0, **more: Any) -> list[Answer]:
        self._number += 1
        message = {"ask": self._number, "for": what, "key": key, "seconds": seconds, **more}
        return self.store.ask(member, message, self.now)


def test_values_are_set_once_unless_replaced() -> None:
    ask = Asked()
    assert ask(1, "set", "a", value="x") == [Answer(1, 1)]
    assert ask(2, "set", "a", value="y") == [Answer(2, 2, error=(REFUSED, "ALREADY_EXISTS: 'a' is set"))]
    assert ask(2, "get", "a") == [Answer(2, 3, "x")]
    assert ask(2, "set", "a", value="y", replaces=True) == [Answer(2, 4)]
    assert ask(3, "get", "a") == [Answer(3, 5, "y")]
    assert ask(3, "delete", "a") == [Answer(3, 6)]
    assert ask(3, "delete", "a") == [Answer(3, 7)]
    assert ask(3, "get", "a", 1.0) == []


def test_a_folder_is_listed_in_order() -> None:
    ask = Asked()
    for key in ("f/2", "f/1", "g/1"):
        ask(1, "set", key, value=key.upper())
    assert ask(2, "list", "f/") == [Answer(2, 4, [["f/1", "F/1"], ["f/2", "F/2"]])]
    assert ask(2, "list", "h/") == [Answer(2, 5, [])]


def test_all_who_wait_get_a_value_once_it_is_set() -> None:
    ask = Asked()
    assert ask(1, "get", "a", 5.0) == []
    assert ask(2, "get", "a", 5.0) == []
    assert ask(3, "set", "a", value="x") == [Answer(3, 3), Answer(1, 1, "x"), Answer(2, 2, "x")]
    assert ask.store.tick(99.0) == []


def test_a_wait_ends_in_time() -> None:
    ask = Asked()
    ask(1, "get", "a", 5.0)
    ask(2, "get", "a", 7.0)
    assert ask.store.tick(4.9) == []
    assert ask.store.tick(5.0) == [Answer(1, 1, error=(LATE, "DEADLINE_EXCEEDED: nobody has set 'a'"))]
    assert ask(3, "set", "a", value="x") == [Answer(3, 3), Answer(2, 2, "x")]


def test_a_barrier_may_be_met_at_again_and_again() -> None:
    ask = Asked()
    for round_ in range(3):
        assert ask(2, "meet", "b", 5.0) == []
        assert ask(1, "meet", "b", 5.0) == []
        first = 3 * round_ + 1
        notes = [[2, ""], [1, ""], [3, ""]]
        assert ask(3, "meet", "b", 5.0) == [
            Answer(2, first, notes),
            Answer(1, first + 1, notes),
            Answer(3, first + 2, notes),
        ]


def test_some_meet_without_the_others_and_all_of_them_hear_all_notes() -> None:
    ask = Asked()
    assert ask(1, "meet", "b", 5.0, value="x", of=[1, 3]) == []
    notes = [[1, "x"], [3, "y"]]
    assert ask(3, "meet", "b", 5.0, value="y", of=[3, 1]) == [Answer(1, 1, notes), Answer(3, 2, notes)]
    for those in ([1, 4], [2, 3], "12"):
        with pytest.raises(ValueError, match="are no members among whom 1 is"):
            ask(1, "meet", "b", 5.0, of=those)


def test_what_was_posted_goes_on_into_the_next_world() -> None:
    ask = Asked()
    ask(1, "set", "stratagem/posted/save 1", value="x")
    ask(1, "set", "stratagem/barrier/1", value="y")
    following = WorldStore(5, frozenset([1, 2]), ask.store.kept())
    message = {"ask": 1, "for": "list", "key": "stratagem/", "seconds": 0.0}
    assert following.ask(2, message, 0.0) == [Answer(2, 1, [["stratagem/posted/save 1", "x"]])]


def test_a_barrier_that_one_has_given_up_is_broken_for_all() -> None:
    ask = Asked()
    ask(1, "meet", "b", 5.0)
    ask(2, "meet", "b", 50.0)
    late = (LATE, "DEADLINE_EXCEEDED: 1 did not come to barrier 'b'")
    assert ask.store.tick(5.0) == [Answer(1, 1, error=late), Answer(2, 2, error=late)]
    broken = (LATE, "DEADLINE_EXCEEDED: others have given up barrier 'b'")
    assert ask(3, "meet", "b", 5.0) == [Answer(3, 3, error=broken)]


def test_nobody_is_at_a_barrier_twice() -> None:
    ask = Asked()
    ask(1, "meet", "b", 5.0)
    assert ask(1, "meet", "b", 5.0) == [Answer(1, 2, error=(REFUSED, "member 1 is at 'b' twice"))]


def test_the_end_of_the_world_ends_all_waits() -> None:
    ask = Asked()
    ask(1, "get", "a", 5.0)
    ask(2, "meet", "b", 5.0)
    over = (OVER, "worker 2 was ended by SIGKILL")
    assert ask.store.close("worker 2 was ended by SIGKILL") == [Answer(1, 1, error=over), Answer(2, 2, error=over)]
    assert ask.store.close("again") == []


def test_who_is_in_another_world_is_refused() -> None:
    assert Asked()(9, "get", "a") == [Answer(9, 1, error=(REFUSED, "member 9 is not in world 4"))]


def test_the_values_of_a_world_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_world, "MAX_BYTES", 10)
    ask = Asked()
    assert ask(1, "set", "a", value="x" * 10) == [Answer(1, 1)]
    assert ask(1, "set", "b", value="x") == [Answer(1, 2, error=(REFUSED, "RESOURCE_EXHAUSTED: 11 bytes are too many"))]
    assert ask(1, "set", "a", value="x" * 9, replaces=True) == [Answer(1, 3)]
    assert ask(1, "set", "b", value="x") == [Answer(1, 4)]
    assert ask(1, "delete", "a") == [Answer(1, 5)]
    assert ask(1, "set", "c", value="x" * 9) == [Answer(1, 6)]


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"ask": 1, "for": "get"},
        {"ask": True, "for": "get", "key": "a"},
        {"ask": 1, "for": "burn", "key": "a"},
        {"ask": 1, "for": "get", "key": 3},
        {"ask": 1, "for": "get", "key": "a", "seconds": "5"},
        {"ask": 1, "for": "set", "key": "a", "value": 5},
    ],
)
def test_what_asks_for_nothing_is_refused(message: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"asks for nothing|is no time"):
        Asked().store.ask(1, message, 0.0)
