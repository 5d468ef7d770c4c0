"""State that a worker gives to others, and takes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stratagem.core.errors import PeerError
from stratagem.mesh import own_state
from stratagem.mesh.given import Given, Piece
from stratagem.mesh.kept_shards import Found, Kind
from stratagem.mesh.own_state import OwnState
from stratagem.mesh.worker_counts import Layout

OWN, TAKEN = Given({"batch": 6}, []), Given({"batch": 7}, [])


def peers_of(index: int, answers: dict[str, Any], told: list[Any]) -> Any:
    def from_all(name: str, value: Any) -> list[Any]:
        told.append(value)
        answer = answers.get(name)
        return [value] * 2 if answer is None else answer

    return SimpleNamespace(own_index=index, from_all=from_all)


@pytest.fixture(autouse=True)
def nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_state, "send", lambda peers, memory, name, rank, arrays: list(arrays))


@pytest.mark.parametrize("has_taken", [False, True])
def test_the_donor_gives_what_it_took(has_taken: bool) -> None:
    told: list[Any] = []
    peers = peers_of(1, {"steps": [[3, 0], [4, 0]], "shards": [[], []]}, told)
    own = OwnState(keeps_copies=True)
    own.steps, own._taken = 4, TAKEN if has_taken else None
    state: Any = SimpleNamespace(give=lambda: OWN, shards=list)
    assert own.exchange(peers, None, 5, Layout(2, 1), state) is None  # pyright: ignore[reportArgumentType]
    assert told[-1] == [(TAKEN if has_taken else OWN).said, []]


def test_a_new_worker_takes_arrays_of_the_donor_and_pieces_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = np.arange(8.0)
    found = Found(3, [Kind(1, 0, "float64", [8])], {})
    monkeypatch.setattr(own_state, "wholes", lambda memory, found: [(found.kinds[0], whole)])
    sent = [{"batch": 7}, [["float64", [2]], ["float64", []]]]
    peers = peers_of(1, {"steps": [[4, 1], [-1, 0]], "state": [sent, [None, []]]}, [])
    own = OwnState(keeps_copies=True)
    own.axis_among = lambda shape, size: 0
    monkeypatch.setattr(own.shards, "find", lambda peers, steps: found)
    given = own.exchange(peers, None, 5, Layout(2, 1), None)  # pyright: ignore[reportArgumentType]
    assert given is not None
    assert (own.steps, own.num_evaluated, own.has_new) == (4, 1, True)
    assert given.said == {"batch": 7}
    first, piece, last = given.arrays
    assert (first.shape, last.shape) == ((2,), ())
    assert isinstance(piece, Piece)
    assert (piece.shape, piece.axis, piece.dtype) == ((8,), 0, np.float64)
    np.testing.assert_array_equal(piece[(slice(4, 8),)], whole[4:])
    with pytest.raises(IndexError):
        piece[(slice(0, 4),)]


def test_what_no_longer_divides_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    own = OwnState(keeps_copies=True)
    assert own._piece(Kind(0, 0, "float64", [3]), np.ones(3), Layout(1, 0)).shape == (3,)
    given = Given(None, [np.zeros(2), np.zeros(1)])
    assert given.with_pieces({}) is given
    assert given.with_pieces({1: np.ones(3)}).arrays[1].shape == (3,)


def test_shards_without_copies_are_an_error() -> None:
    """A worker died before any were handed round: each of the others has its own only."""
    own = OwnState(keeps_copies=True)
    own.steps = 0
    peers = peers_of(0, {"steps": [[0, 0], [0, 0]], "shards": [[], []]}, [])
    state: Any = SimpleNamespace(give=lambda: OWN, shards=lambda: [object()])
    with pytest.raises(PeerError, match="Workers were lost"):
        own.exchange(peers, None, 1, Layout(2, 0), state)  # pyright: ignore[reportArgumentType]
