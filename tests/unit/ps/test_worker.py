"""A worker, asked without a network: terms, shared values and errors."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import cloudpickle
import numpy as np
import pytest

from stratagem.core.errors import InputError, RefusedError, UnavailableError
from stratagem.ps.task import ClosesWhenDropped, current_task
from stratagem.ps.worker import Worker
from stratagem.transport.message import DONE, ERROR, Message
from stratagem.transport.server import Request


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker(index=1, workers=3, servers=[], keys=None, life=2)
    yield worker
    worker.close()


def ask(worker: Worker, message: Message, holder: str = "chief") -> Message:
    answers: queue.SimpleQueue[Message] = queue.SimpleQueue()
    worker(Request(message, holder, answers.put))
    return answers.get(timeout=20)


def pickled(value: Any) -> np.ndarray:
    return np.frombuffer(cloudpickle.dumps(value), np.uint8)


def run(worker: Worker, function: Any, *args: Any, term: str = "first", **fields: Any) -> Message:
    shared = fields.pop("shared", {})
    fresh = [(number, to_call) for number, (to_call, _) in shared.items()]
    data = [pickled((function, args, {})), *(pickled(value) for _, value in shared.values())]
    return ask(worker, Message("run", {"term": term, "fresh": fresh, "forget": [], "round": None, **fields}, data))


def test_a_function_is_run_and_its_result_taken_apart(worker: Worker) -> None:
    answer = run(worker, lambda x: {"sum": np.float32(x + 1), "text": "a"}, 4)
    assert answer.kind == DONE
    assert answer.fields == {"value": {"dict": {"sum": {"array": 0}, "text": "a"}}, "contribution": None}
    assert [array.tolist() for array in answer.arrays] == [5.0]


def test_random_streams_differ_between_workers_and_lives(worker: Worker) -> None:
    answer = run(worker, lambda: [current_task().index, current_task().workers, current_task().stream])
    assert answer.fields["value"] == {"list": [1, 3, 1 + 1 + 2 * 3]}


def test_an_error_is_told_with_its_traceback(worker: Worker) -> None:
    def leave() -> None:
        raise SystemExit("over")

    answer = run(worker, leave)
    assert (answer.kind, answer.fields["class"], answer.fields["text"]) == (ERROR, "SystemExit", "over")
    assert "in leave" in answer.fields["traceback"]
    assert run(worker, lambda: 3).fields["value"] == 3


class Closable(ClosesWhenDropped):
    closed: list[str] = []  # noqa: RUF012 - shared by all

    def close(self) -> None:
        self.closed.append("closed")


def test_shared_values_are_made_when_needed_and_closed_when_dropped(worker: Worker) -> None:
    def look(number: int) -> int:
        value = current_task().shared_value(number)
        return value if isinstance(value, int) else -1

    Closable.closed.clear()
    shared = {7: (False, 70), 8: (True, lambda: 80), 9: (True, Closable)}
    assert run(worker, look, 7, shared=shared).fields["value"] == 70
    assert [run(worker, look, number).fields["value"] for number in (8, 9)] == [80, -1]
    assert Closable.closed == []
    answer = run(worker, look, 9, forget=[9, 7])
    assert answer.fields["class"] == "KeyError"
    assert Closable.closed == ["closed"]


def test_a_new_term_begins_with_nothing_and_the_one_before_is_over(worker: Worker) -> None:
    count = lambda: len(current_task().recipes)  # noqa: E731
    assert run(worker, count, shared={7: (False, 70)}).fields["value"] == 1
    ask(worker, Message("hello", {"term": "second"}))
    assert run(worker, count, term="second").fields["value"] == 0
    assert worker.past_terms == {"", "first"}
    with pytest.raises(UnavailableError, match="worker 1 works for another chief"):
        run(worker, count)


def test_only_the_chief_may_ask(worker: Worker) -> None:
    with pytest.raises(RefusedError, match="A worker asked for 'hello'"):
        ask(worker, Message("hello", {"term": "x"}), "worker 0")
    with pytest.raises(InputError, match="cannot answer 'read'"):
        ask(worker, Message("read"))
