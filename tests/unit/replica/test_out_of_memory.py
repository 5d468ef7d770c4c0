"""What a strategy says where a device has no room."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from stratagem.mesh.shards import sharding_of
from stratagem.replica.out_of_memory import note_out_of_memory

FULL = RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 4194304 bytes.")


def notes(error: Exception, shard: str | None, replicas: int) -> list[str]:
    strategy: Any = SimpleNamespace(num_replicas_in_sync=replicas, sharding=sharding_of(shard, None, replicas))
    copy = type(error)(*error.args)
    note_out_of_memory(copy, strategy)
    return getattr(copy, "__notes__", [])


@pytest.mark.parametrize(
    ("shard", "replicas", "said"),
    [
        (None, 4, ["Each of 4 replicas holds the whole of weights", 'shard="parameters" when the strategy is made']),
        ("optimizer", 2, ['With shard="optimizer" each of 2 replicas holds all weights', 'too: shard="parameters"']),
        ("parameters", 2, ["Give fewer rows in a batch"]),
        (None, 1, ["Give fewer rows in a batch", 'more devices with shard="parameters"']),
    ],
)
def test_it_says_what_to_divide(shard: str | None, replicas: int, said: list[str]) -> None:
    [note] = notes(FULL, shard, replicas)
    assert all(each in note for each in said)


def test_other_errors_stay_as_they_are() -> None:
    assert notes(RuntimeError("INVALID_ARGUMENT"), None, 2) == []
    assert notes(MemoryError("Out of memory"), None, 2) == []


def test_an_error_of_a_step_in_a_scope_says_it_once() -> None:
    strategy: Any = SimpleNamespace(num_replicas_in_sync=2, sharding=None)
    error = type(FULL)(*FULL.args)
    note_out_of_memory(error, strategy)  # the step
    note_out_of_memory(error, strategy)  # the scope
    assert len(error.__notes__) == 1
