"""Requests to a parameter server: who may ask, in which term, and what the answers hold."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import cloudpickle
import keras
import numpy as np
import pytest

from stratagem.core.errors import InputError, RefusedError, UnavailableError
from stratagem.ps.compat import optimizer_recipe
from stratagem.ps.server.service import Service
from stratagem.ps.server.store import Store
from stratagem.transport.message import DONE, ERROR, Message
from stratagem.transport.server import Request


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service(Store(), "ps 3")
    yield service
    service.close()


def ask(service: Service, message: Message, holder: str | None = "chief") -> Message:
    answers: queue.SimpleQueue[Message] = queue.SimpleQueue()
    service(Request(message, holder, answers.put))
    return answers.get(timeout=20)


def pickled(value: Any) -> np.ndarray:
    return np.frombuffer(cloudpickle.dumps(value), np.uint8)


def creation(term: str = "") -> Message:
    """A part with a value, and one whose value is to be restored."""
    parts = [["a", "kernel", False, None], ["b", "bias", True, [[2, 2], "bfloat16", ["", "it|0"]]]]
    arrays = [pickled([None, keras.constraints.NonNeg()]), np.array([1.0, 2.0], "float32")]
    return Message("create", {"term": term, "parts": parts}, arrays)


def test_parts_are_created_changed_and_read(service: Service) -> None:
    assert ask(service, creation()).kind == DONE
    define = Message("define", {"term": "", "name": "it"}, [pickled(optimizer_recipe(keras.optimizers.SGD()))])
    assert ask(service, define).kind == DONE
    operations = [
        {"op": "add", "name": "a"},
        {"op": "apply", "name": "a", "optimizer": "it", "iterations": 0, "rate": 0.5, "seen": 0},
    ]
    arrays = [np.array([10.0, 20.0]), np.array([2.0, 4.0], "float32")]
    assert ask(service, Message("change", {"term": "", "operations": operations}, arrays), "worker 0").kind == DONE
    read = Message("read", {"term": "", "names": ["a", "a"], "in_rows": [1], "taken": []}, [np.array([1])])
    answer = ask(service, read, "worker 0")
    assert [array.tolist() for array in answer.arrays] == [[10.0, 20.0], [20.0]]
    assert answer.fields == {"versions": [2, 2]}
    expected = {"names": ["a", "b"], "updates": 1, "staleness": 1, "max staleness": 1}
    assert ask(service, Message("report", {"term": ""})).fields == expected
    ask(service, Message("remove", {"term": "", "parts": ["a"], "optimizers": ["it"]}))
    assert ask(service, Message("report", {"term": ""})).fields["names"] == ["b"]


def test_a_position_goes_on_when_it_is_taken(service: Service) -> None:
    fields = {"term": "", "parts": [["a", "seed", False, None]]}
    ask(service, Message("create", fields, [pickled([None]), np.array([7, 0], "uint32")]))
    take = Message("read", {"term": "", "names": ["a"], "in_rows": [], "taken": [0]}, [np.array([0, 2])])
    assert [ask(service, take, "worker 0").arrays[0].tolist() for _ in range(3)] == [[7, 0], [7, 2], [7, 4]]

    def exchange(before: list[int], after: list[int]) -> bool:
        request = Message("exchange", {"term": "", "name": "a"}, [np.array(before), np.array(after)])
        return ask(service, request, "worker 0").fields["done"]

    assert [exchange([7, 4], [7, 9]), exchange([7, 6], [7, 9]), exchange([7, 6], [7, 8])] == [False, True, False]
    assert ask(service, take).arrays[0].tolist() == [7, 9]


def test_what_is_to_be_restored_has_no_value(service: Service) -> None:
    ask(service, creation())
    answer = ask(service, Message("read", {"term": "", "names": ["b"], "in_rows": [], "taken": []}))
    assert (answer.kind, answer.fields["class"]) == (ERROR, "UsageError")
    change = Message("change", {"term": "", "operations": [{"op": "set", "name": "b"}]}, [np.ones((2, 2))])
    assert ask(service, change).kind == DONE
    read = ask(service, Message("read", {"term": "", "names": ["b"], "in_rows": [], "taken": []}))
    assert (str(read.arrays[0].dtype), read.arrays[0].astype(float).tolist()) == ("bfloat16", [[1.0, 1.0], [1.0, 1.0]])


def test_a_round_is_applied_once(service: Service) -> None:
    ask(service, creation())
    operations = [{"op": "add", "name": "a", "together": "sum"}]
    for name, number in (("x", 1.0), ("y", 2.0), ("late", 50.0)):
        fields = {"term": "", "round": 1, "contribution": name, "weight": 1.0, "operations": operations}
        assert ask(service, Message("contribute", fields, [np.full(2, number)]), "worker 1").kind == DONE
    commit = Message("commit", {"term": "", "round": 1, "contributions": ["x", "y"]})
    assert [ask(service, commit).kind for _ in range(2)] == [DONE, DONE]
    read = Message("read", {"term": "", "names": ["a"], "in_rows": [], "taken": []})
    assert ask(service, read).arrays[0].tolist() == [4.0, 5.0]


def test_another_term_forgets_all_and_refuses_the_one_before(service: Service) -> None:
    ask(service, creation())
    ask(service, Message("begin", {"term": "second"}))
    assert service.past_terms == {""}
    assert ask(service, Message("report", {"term": "second"})).fields["names"] == []
    answer = ask(service, Message("report", {"term": ""}), "worker 0")
    assert (answer.kind, answer.fields["class"]) == (ERROR, UnavailableError.__name__)
    assert answer.fields["text"].startswith("ps 3 has begun anew")


@pytest.mark.parametrize("kind", ["begin", "create", "define", "remove", "commit", "hello"])
def test_only_the_chief_may(service: Service, kind: str) -> None:
    with pytest.raises(RefusedError, match=f"A worker asked for '{kind}'; only a chief may"):
        ask(service, Message(kind), "worker 0")


def test_what_it_cannot_answer(service: Service) -> None:
    with pytest.raises(InputError, match="cannot answer 'run'"):
        ask(service, Message("run"))
    service.close()
    with pytest.raises(UnavailableError, match="ps 3 ends"):
        ask(service, Message("report", {"term": ""}))
