"""Members and worlds, as values and as JSON; who is in the next world."""

from __future__ import annotations

import json

import pytest

from stratagem.core.errors import PeerError
from stratagem.elastic.ranks import first_members, next_members
from stratagem.elastic.world import Member, World, WorldChangedError


def member(number: int, host: str = "a", is_spare: bool = False) -> Member:
    return Member(number, host, 100 + number, f"{host}:{9000 + number}", is_spare)


def test_a_world_comes_back_from_json() -> None:
    world = World(3, (member(4), member(1, "b", is_spare=True)), donor=1, step=70)
    assert World.decode(json.loads(json.dumps(world.encode()))) == world


GOOD = World(3, (member(4), member(1)), donor=1, step=70).encode()


@pytest.mark.parametrize(
    "fields",
    [
        None,
        [],
        {},
        {**GOOD, "more": 1},
        {**GOOD, "number": 0},
        {**GOOD, "number": True},
        {**GOOD, "step": -1},
        {**GOOD, "step": "70"},
        {**GOOD, "donor": 2},
        {**GOOD, "donor": -1},
        {**GOOD, "members": []},
        {**GOOD, "members": [*GOOD["members"], GOOD["members"][0]]},
        {**GOOD, "members": [[1, "a", 2, "a:1"]]},
        {**GOOD, "members": [[1, "a", "2", "a:1", False]]},
        {**GOOD, "members": [[1, "a", 2, "a:1", 0]]},
    ],
)
def test_what_is_no_world_is_refused(fields: object) -> None:
    with pytest.raises(ValueError, match=r"is no (world|member)"):
        World.decode(fields)


def test_the_error_of_a_wait_names_the_change() -> None:
    error = WorldChangedError(4, "worker 1 was ended by SIGKILL")
    assert isinstance(error, PeerError)
    assert (error.world, error.reason) == (4, "worker 1 was ended by SIGKILL")
    assert str(error).startswith("World 4 has ended: worker 1 was ended by SIGKILL.\n  Why it matters: ")


def numbers(members: tuple[Member, ...]) -> list[int]:
    return [each.number for each in members]


@pytest.mark.parametrize(
    ("waiting", "wanted", "most", "expected"),
    [
        ([member(1), member(2)], 2, 2, [1, 2]),
        # Members of one host stand together, hosts in the order of their first members.
        ([member(1, "b"), member(2, "a"), member(3, "b"), member(4, "a")], 4, 4, [1, 3, 2, 4]),
        ([member(1, is_spare=True), member(2), member(3)], 2, 4, [2, 3]),
        # A spare stands in for a missing worker.
        ([member(1, is_spare=True), member(2), member(3, is_spare=True)], 2, 4, [1, 2]),
        ([member(1), member(2), member(3)], 2, 3, [1, 2, 3]),
        ([member(1), member(2), member(3)], 2, 2, [1, 2]),
    ],
)
def test_the_first_world(waiting: list[Member], wanted: int, most: int, expected: list[int]) -> None:
    assert numbers(first_members(waiting, wanted, most)) == expected


OLD = [member(1, "a"), member(2, "a"), member(3, "b")]


@pytest.mark.parametrize(
    ("gone", "waiting", "wanted", "most", "expected"),
    [
        ({2}, [], 3, 3, [1, 3]),
        ({1, 3}, [], 3, 3, [2]),
        # A spare takes the place of one that is gone.
        ({1}, [member(7, "c", is_spare=True)], 3, 3, [7, 2, 3]),
        # One of the same host comes before others; a spare before a worker.
        ({3}, [member(7, "a", is_spare=True), member(8, "b", is_spare=True)], 3, 3, [1, 2, 8]),
        ({3}, [member(7, "b"), member(8, "a", is_spare=True)], 3, 3, [1, 2, 8]),
        ({1, 2}, [member(7, "c", is_spare=True)], 3, 3, [7, 3]),
        # Workers fill the world up to the largest number, beside their host or at the end; spares wait.
        (set(), [member(7, "a"), member(8, "c"), member(9, "c")], 3, 5, [1, 2, 7, 3, 8]),
        (set(), [member(7, "a", is_spare=True)], 3, 5, [1, 2, 3]),
        # Where the wanted number is not there, a spare comes in too.
        (set(), [member(7, "b", is_spare=True)], 4, 5, [1, 2, 3, 7]),
    ],
)
def test_the_next_world(gone: set[int], waiting: list[Member], wanted: int, most: int, expected: list[int]) -> None:
    assert numbers(next_members(OLD, gone, waiting, wanted, most)) == expected
