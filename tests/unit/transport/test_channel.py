"""Requests and answers, from several threads, and what becomes of them when a task is lost."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zmq

from stratagem.core.clock import Deadline
from stratagem.core.errors import InputError, StartupError, StratagemError, UnavailableError
from stratagem.transport.channel import Channel
from stratagem.transport.keys import make_keys
from stratagem.transport.message import Message
from stratagem.transport.server import MessageServer, Request


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(3) as pool:
        yield pool


@pytest.mark.thorough
def test_answers_of_other_threads_go_to_those_who_asked(pool: ThreadPoolExecutor) -> None:
    def work(request: Request) -> None:
        request.answer(Message("sum", {}, [sum(request.message.arrays)]))

    server = MessageServer("127.0.0.1:0", lambda request: pool.submit(work, request) and None, keys=None)
    channels = [Channel("ps 0", server.address) for _ in range(4)]

    def ask(i: int) -> bool:
        large = np.full(100_000, i, np.float32)
        return all(
            channels[i].request(Message("sum", {}, [large, large])).arrays[0].tolist() == [2 * i] * 100_000
            for _ in range(5)
        )

    try:
        with ThreadPoolExecutor(4) as askers:
            assert list(askers.map(ask, range(4))) == [True] * 4
    finally:
        for channel in channels:
            channel.close()
        server.close()


def test_answers_in_another_order_than_their_requests_are_told_by_number() -> None:
    held: list[Request] = []

    def answer_the_latest_first(request: Request) -> None:
        held.append(request)
        if len(held) == 5:
            for each in reversed(held):
                each.answer(Message("same", {}, each.message.arrays))

    server = MessageServer("127.0.0.1:0", answer_the_latest_first, keys=None)
    channel = Channel("ps 0", server.address)
    try:
        numbers = [channel.send(Message("same", {}, [np.array(k)])) for k in range(5)]
        got = [int(channel.receive(numbers[k], Deadline(20.0)).arrays[0]) for k in (0, 3, 4)]
        assert got == [0, 3, 4]
        with pytest.raises(UnavailableError, match="did not answer within 0 s"):  # dropped, as number 3 was asked for
            channel.receive(numbers[1], Deadline(0.0))
    finally:
        channel.close()
        server.close()


def test_errors_keep_their_class() -> None:
    class OwnError(Exception):
        pass

    undecodable = UnicodeDecodeError("utf-8", b"d", 0, 1, "made of more than a text")
    raised = {"input": InputError("a"), "key": KeyError("b"), "own": OwnError("c"), "odd": undecodable}

    def handler(request: Request) -> None:
        raise raised[request.message.kind]

    server = MessageServer("127.0.0.1:0", handler, keys=None)
    channel = Channel("ps 0", server.address)
    try:
        for kind, error in (("input", InputError), ("key", KeyError), ("own", StratagemError), ("odd", StratagemError)):
            with pytest.raises(error):
                channel.request(Message(kind))
    finally:
        channel.close()
        server.close()


def test_a_lost_task_is_noticed_and_named() -> None:
    held = threading.Event()
    server = MessageServer("127.0.0.1:0", lambda request: held.set(), keys=None)  # never answers
    channel = Channel("ps 1", server.address)
    number = channel.send(Message("pull"))
    assert held.wait(20)
    server.close()
    with pytest.raises(UnavailableError, match=r"ps 1 at 127.0.0.1:\d+ ended"):
        channel.receive(number, Deadline(40.0))
    with pytest.raises(UnavailableError, match="ps 1"):
        channel.send(Message("pull"))
    channel.close()
    channel.close()


def test_a_task_that_is_not_there_yet_is_waited_for() -> None:
    first = MessageServer("127.0.0.1:0", lambda request: None, keys=None)
    first.close()
    channel = Channel("ps 0", first.address)
    number = channel.send(Message("pull"))
    with pytest.raises(UnavailableError, match="did not answer within 0 s"):
        channel.receive(number, Deadline(0.0))
    second = MessageServer(first.address, lambda request: request.answer(Message("done")), keys=None)
    assert channel.receive(number, Deadline(40.0)).kind == "done"
    channel.close()
    second.close()


def test_a_taken_port_is_an_error() -> None:
    server = MessageServer("127.0.0.1:0", lambda request: None, keys=None)
    with pytest.raises(StartupError, match="cannot listen"):
        MessageServer(server.address, lambda request: None, keys=None)
    server.close()


def test_a_task_with_another_secret_is_told_from_one_that_is_gone() -> None:
    server = MessageServer("127.0.0.1:0", lambda request: None, keys=make_keys(1, b"one secret")["ps"])
    with contextlib.closing(server):
        for keys in (make_keys(1, b"another secret")["chief"], None):
            with contextlib.closing(Channel("ps 0", server.address, keys=keys)) as stranger:
                # ZeroMQ reports a refusal or a lost connection, whichever it sees first.
                with pytest.raises(UnavailableError, match="has keys of another run or another secret"):
                    stranger.request(Message("read"), seconds=20.0)


def test_a_refusal_between_two_looks_at_the_connection_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """ZeroMQ often gives a connection without keys up for good then: its `send` would wait forever."""
    with contextlib.ExitStack() as stack:
        server = MessageServer("127.0.0.1:0", lambda request: None, keys=make_keys(1, b"one secret")["ps"])
        stack.enter_context(contextlib.closing(server))
        for _ in range(200):
            stranger = stack.enter_context(contextlib.closing(Channel("ps 0", server.address)))
            assert stranger.monitor.poll(20_000)
            soon = Deadline(0.1)
            while (takes := stranger.socket.poll(0, zmq.POLLOUT)) and not soon.expired:
                pass
            if not takes:
                break
        else:
            pytest.fail("ZeroMQ would take a message on each of 200 connections that were refused.")
        looks = iter([lambda: None])  # the first came before the refusal
        check = stranger.check
        monkeypatch.setattr(stranger, "check", lambda: next(looks, check)())
        with pytest.raises(UnavailableError, match="has keys of another run or another secret"):
            stranger.send(Message("read"))
