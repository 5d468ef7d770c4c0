"""Messages between the coordinator and its members."""

from __future__ import annotations

import json

import pytest

from stratagem.cluster.secret import Handshake
from stratagem.core.errors import PeerError
from stratagem.elastic.events import (
    Beat,
    Begun,
    End,
    Failed,
    Finished,
    Form,
    Formed,
    Go,
    Leaving,
    Order,
    Stop,
    StopAfter,
    Stopped,
)
from stratagem.elastic.hello import JoinHello, check_joins
from stratagem.elastic.options import ElasticOptions
from stratagem.elastic.wire import MAX_LINE, VERSION, Report, Wire, read_order, read_report, write_order, write_report
from stratagem.elastic.world import Member, World

HANDSHAKE = Handshake(b"a secret that is long enough", "1f", "2e")


def wires(handshake: Handshake = HANDSHAKE) -> tuple[Wire, Wire]:
    return Wire(HANDSHAKE, "member"), Wire(handshake, "coordinator")


def test_messages_come_in_pieces() -> None:
    member, coordinator = wires()
    data = member.seal({"a": 1}) + member.seal({"b": "\ud800"})
    assert coordinator.feed(data[:40]) == []
    assert coordinator.feed(data[40:-1]) == [{"a": 1}]
    assert coordinator.feed(data[-1:]) == [{"b": "\ud800"}]


def test_what_was_read_beyond_the_hello_counts() -> None:
    member, _ = wires()
    assert Wire(HANDSHAKE, "coordinator", member.seal({"a": 1})).feed(b"") == [{"a": 1}]


def test_a_message_that_is_said_again_is_refused() -> None:
    member, coordinator = wires()
    line = member.seal({"a": 1})
    assert coordinator.feed(line) == [{"a": 1}]
    with pytest.raises(ValueError, match="does not know the secret"):
        coordinator.feed(line)


def test_a_message_that_was_left_out_is_missed() -> None:
    member, coordinator = wires()
    member.seal({"a": 1})
    with pytest.raises(ValueError, match="does not know the secret"):
        coordinator.feed(member.seal({"b": 1}))


def test_a_message_that_comes_back_to_its_sender_is_refused() -> None:
    member, _ = wires()
    with pytest.raises(ValueError, match="does not know the secret"):
        member.feed(member.seal({"a": 1}))


@pytest.mark.parametrize("other", [HANDSHAKE._replace(secret=b"another secret of this"), HANDSHAKE._replace(host="3")])
def test_another_secret_or_connection_is_refused(other: Handshake) -> None:
    member, coordinator = wires(other)
    with pytest.raises(ValueError, match="does not know the secret"):
        coordinator.feed(member.seal({"a": 1}))


def test_a_line_without_end_is_refused() -> None:
    _, coordinator = wires()
    with pytest.raises(ValueError, match=f"{MAX_LINE + 1} bytes without the end of a line"):
        coordinator.feed(b"x" * (MAX_LINE + 1))


REPORTS: list[Report] = [
    Beat(7, 12, True),
    Begun(7, 2, 13),
    Stopped(7, 2, 12),
    Formed(7, 2),
    Finished(7, 2, 30),
    Leaving(7, 2.5),
    Failed(7, "ValueError: x\n  y"),
]


@pytest.mark.parametrize("report", REPORTS)
def test_reports_come_back(report: Report) -> None:
    message = json.loads(json.dumps(write_report(report)))
    assert "number" not in message
    assert read_report(message, 7) == report


WORLD = World(3, (Member(7, "a", 11, "a:1"), Member(4, "b", 12, "b:1", True)), 0, 12)
ORDERS: list[Order] = [
    Stop((7,), 2, True, "worker 1 died"),
    StopAfter((7,), 2, 13),
    StopAfter((7,), 2, 13, saves=True),
    Form((7,), WORLD),
    Go((7,), 3),
    End((7,), 43, "nobody is left"),
]


@pytest.mark.parametrize("order", ORDERS)
def test_orders_come_back(order: Order) -> None:
    message = json.loads(json.dumps(write_order(order)))
    assert "to" not in message
    assert read_order(message, 7) == order


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"report": 1},
        {"report": ["beat"]},
        {"report": "go", "world": 1},
        {"report": "begun", "world": 1},
        {"report": "begun", "world": 1, "step": 2, "number": 3},
        {"report": "begun", "world": 1, "step": "2"},
        {"report": "begun", "world": True, "step": 2},
        {"report": "begun", "world": 1, "step": -2},
        {"report": "leaving", "seconds": "1"},
        {"report": "leaving", "seconds": -1.0},
        {"report": "failed", "text": None},
    ],
)
def test_what_is_no_report_is_refused(message: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"is no|has the fields|below zero"):
        read_report(message, 7)


def test_a_hello_comes_back() -> None:
    hello = JoinHello("node7", 4711, "node7:9000", True, {"jax": "0.10.2"})
    assert JoinHello.decode(hello.encode()) == hello
    asking = JoinHello("node7", 4711, "node7:9000", options=ElasticOptions(2, 8, 1.5).encode())
    assert JoinHello.decode(asking.encode()) == asking
    assert ElasticOptions.decode(asking.options) == ElasticOptions(2, 8, 1.5)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"protocol": "1"},
        {"protocol": VERSION},
        {"protocol": VERSION, "host": "a", "pid": "1", "address": "a:1"},
        {"protocol": VERSION, "host": "a", "pid": 1, "address": "a:1", "versions": {"jax": 1}},
        {"protocol": VERSION, "host": "a", "pid": 1, "address": "a:1", "options": [1, 2]},
        {"protocol": VERSION, "host": "a", "pid": 1, "address": "a:1", "options": [0, 2, 600.0]},
        {"protocol": VERSION, "host": "a", "pid": 1, "address": "a:1", "options": ["1", 2, 600.0]},
        {"protocol": VERSION, "host": "a", "pid": 1, "address": "a:1", "versions": []},
        {"protocol": VERSION, "host": "a", "pid": 1, "address": "a:1", "more": 1},
    ],
)
def test_what_is_no_hello_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not a hello"):
        JoinHello.decode(json.dumps(fields))


def test_a_hello_of_another_version_is_told_so_whatever_else_it_says() -> None:
    with pytest.raises(PeerError, match=r"messages of version 99; the coordinator has version 1\."):
        check_joins(JoinHello.decode('{"protocol": 99, "new": "field"}'), None)


def test_other_versions_of_libraries_are_refused() -> None:
    hello = JoinHello("node7", 4711, "", versions={"jax": "0.10.2"})
    check_joins(hello, None)
    check_joins(hello, hello)
    with pytest.raises(PeerError, match=r"runs \{'jax': '0.10.2'\}, the others run \{'jax': '0.9.0'\}"):
        check_joins(hello, JoinHello("node6", 1, "", versions={"jax": "0.9.0"}))
