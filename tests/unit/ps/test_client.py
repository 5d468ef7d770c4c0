"""Requests to parameter servers: one for each server, whatever is asked of it."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from stratagem.core.errors import InputError, UnavailableError
from stratagem.program.remote_values import RowChange
from stratagem.ps.changes import Change, Location
from stratagem.ps.client import Servers
from stratagem.transport.message import DONE, Message
from stratagem.transport.server import MessageServer, Request

TABLE = [Location(0, "table/part_0", 3), Location(1, "table/part_1", 2)]
BIAS = [Location(1, "bias")]


class Asked:
    """Two servers that note what they are asked, and answer what a test says."""

    def __init__(self) -> None:
        self.requests: queue.SimpleQueue[tuple[int, Message]] = queue.SimpleQueue()
        self.answer: Callable[[int, Message], Message] = lambda server, message: Message(DONE)
        self.servers = [MessageServer("127.0.0.1:0", self._handler(index), keys=None) for index in range(2)]
        self.client = Servers([server.address for server in self.servers])

    def _handler(self, index: int) -> Callable[[Request], None]:
        def handle(request: Request) -> None:
            self.requests.put((index, request.message))
            request.answer(self.answer(index, request.message))

        return handle

    def taken(self) -> dict[int, Message]:
        found: dict[int, Message] = {}
        while not self.requests.empty():
            index, message = self.requests.get()
            assert index not in found, "a server was asked twice"
            found[index] = message
        return found


@pytest.fixture
def asked() -> Iterator[Asked]:
    asked = Asked()
    yield asked
    asked.client.close()
    for server in asked.servers:
        server.close()


def values(server: int, message: Message) -> Message:
    """The value of a part says its name's length, and which rows of it."""
    rows = dict(zip(message.fields["in_rows"], message.arrays, strict=True))
    found = [
        np.full(2, float(len(name))) if place not in rows else rows[place] + 100.0 * (server + 1)
        for place, name in enumerate(message.fields["names"])
    ]
    return Message(DONE, {"versions": [7 + server] * len(found)}, found)


def test_variables_are_read_in_one_request_to_each_server(asked: Asked) -> None:
    asked.answer = values
    bias, whole, rows, none = asked.client.read(
        [BIAS, TABLE, TABLE, TABLE], [None, None, np.array([1, 3, 4]), np.array([], int)]
    )
    assert bias.tolist() == [4.0, 4.0]
    assert whole.tolist() == [12.0, 12.0, 12.0, 12.0]
    assert rows.tolist() == [101.0, 200.0, 201.0]
    assert none.tolist() == []
    fields = {server: message.fields for server, message in asked.taken().items()}
    assert fields == {
        0: {"names": ["table/part_0"] * 3, "in_rows": [1, 2], "taken": [], "term": ""},
        1: {"names": ["bias", "table/part_1", "table/part_1"], "in_rows": [2], "taken": [], "term": ""},
    }


def test_what_goes_on_is_read_in_the_same_request(asked: Asked) -> None:
    asked.answer = lambda server, message: Message(DONE, {"versions": [0, 0]}, [np.zeros(2), np.ones(2)])
    position, bias = asked.client.read([TABLE[:1], TABLE[:1]], None, {0: np.array([0, 3])})
    assert (position.tolist(), bias.tolist()) == ([0.0, 0.0], [1.0, 1.0])
    (message,) = asked.taken().values()
    assert (message.fields["taken"], [array.tolist() for array in message.arrays]) == ([0], [[0, 3]])


def test_gradients_tell_the_versions_they_were_computed_with(asked: Asked) -> None:
    asked.answer = values
    asked.client.read([TABLE])
    asked.taken()
    asked.answer = lambda server, message: Message(DONE)
    changes = [
        Change("add", BIAS, np.array([1.0, 2.0])),
        Change("apply", TABLE, RowChange(np.array([2, 3]), np.array([5.0, 6.0])), {"rate": 0.5}),
    ]
    asked.client.change(changes, {"round": 3})
    taken = asked.taken()
    assert {message.kind for message in taken.values()} == {"contribute"}
    apply: dict[str, Any] = {"op": "apply", "rate": 0.5, "in_rows": True}
    assert taken[0].fields["operations"] == [{**apply, "name": "table/part_0", "seen": 7}]
    assert taken[1].fields["operations"] == [
        {"op": "add", "name": "bias"},
        {**apply, "name": "table/part_1", "seen": 8},
    ]
    assert [array.tolist() for array in taken[1].arrays] == [[1.0, 2.0], [0], [6.0]]
    assert taken[0].fields["round"] == 3
    asked.client.change(changes[:1])
    assert [message.kind for message in asked.taken().values()] == ["change"]


def test_counts_are_added_up_but_for_the_greatest(asked: Asked) -> None:
    asked.answer = lambda server, message: Message(
        DONE, {"updates": 1 + server, "staleness": 10, "max staleness": 5 - server}
    )
    assert asked.client.report() == {"updates": 3, "staleness": 20, "max staleness": 5}
    asked.servers[1].close()
    assert asked.client.report() == {"updates": 1, "staleness": 10, "max staleness": 5}


def test_a_loss_is_noted_until_another_term_begins(asked: Asked) -> None:
    asked.client.ask_all(Message("begin"))
    asked.servers[0].close()
    with pytest.raises(UnavailableError, match="ps 0"):
        asked.client.ask_all(Message("begin"))
    assert asked.client.is_lost
    asked.client.begin("next")
    assert (asked.client.is_lost, asked.client.term) == (False, "next")
    asked.client.ask({1: Message("report")})
    # Server 1 may have taken the second "begin", too, before the loss of the other was noted.
    taken = [asked.requests.get() for _ in range(asked.requests.qsize())]
    assert [(index, message.fields) for index, message in taken if message.kind == "report"] == [(1, {"term": "next"})]


def test_an_error_of_a_server_is_raised(asked: Asked) -> None:
    def fail(server: int, message: Message) -> Message:
        raise InputError(f"ps {server} cannot.", "Ask for something else.")

    asked.answer = fail
    with pytest.raises(InputError, match=r"ps 0 cannot.\n  What to do: Ask for something else."):
        asked.client.ask_all(Message("begin"))
    assert not asked.client.is_lost
