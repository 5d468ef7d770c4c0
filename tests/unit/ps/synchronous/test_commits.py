"""The request to apply a round: all servers are asked, again where they were lost, and not for ever."""

from __future__ import annotations

from tests.clock import HandClock

from stratagem.ps.client import REQUEST_SECONDS
from stratagem.ps.synchronous.commits import Commits


def test_a_round_is_applied_when_all_servers_have() -> None:
    commits = Commits("a term", range(2), HandClock())
    assert commits.to_ask == []
    commits.begin(3, ("a", "b"))
    assert [(server, message.kind) for server, message in commits.to_ask] == [(0, "commit"), (1, "commit")]
    assert commits.to_ask[0][1].fields == {"term": "a term", "round": 3, "contributions": ("a", "b")}
    commits.ask(0, 11)
    commits.ask(1, 12)
    assert commits.to_ask == []
    commits.ask(1, None)  # lost, and there again
    assert [server for server, _ in commits.to_ask] == [1]
    commits.ask(1, 1)
    assert commits.is_answer(1, 1)
    assert not commits.is_answer(1, 12)
    assert not commits.end(1)
    assert not commits.is_answer(1, 1)
    assert commits.end(0)


def test_a_server_that_does_not_answer_is_named() -> None:
    clock = HandClock()
    commits = Commits("a term", range(3), clock)
    commits.begin(7, ())
    commits.ask(1, 5)
    commits.end(1)
    clock.time = REQUEST_SECONDS - 1.0
    assert commits.failure is None
    clock.time = REQUEST_SECONDS
    assert "ps 0, ps 2 has not applied round 7 within 120 s" in str(commits.failure)
    commits.give_up()
    assert commits.failure is None
    commits.ask(0, None)
    assert commits.to_ask == []
