"""A pass over the datasets of workers: when it ends, and when it begins anew."""

from __future__ import annotations

from typing import Any

import pytest

import stratagem
from stratagem.feed.workers import WorkerPass


class Workers:
    """What a pass needs to know of the workers' datasets."""

    class_weight = None
    reads_ahead = False
    workers_up = 2

    def __init__(self) -> None:
        self.begun = 0

    def begin(self) -> int:
        self.begun += 1
        return self.begun

    def position(self) -> Any:
        return {}


@pytest.fixture
def one_pass() -> Any:
    return WorkerPass(Workers(), stratagem.OneDeviceStrategy("cpu:0").mesh)  # type: ignore[arg-type]


def test_a_pass_ends_when_each_worker_has_come_to_its_end(one_pass: Any) -> None:
    one_pass.begin_steps(3)
    assert (one_pass.taken, one_pass.iterators, one_pass.position()) == (3, 1, {})
    assert one_pass.goes_on_without(0)
    assert one_pass.goes_on_without(0), "the same worker once more"
    assert not one_pass.goes_on_without(1)
    with pytest.raises(StopIteration):
        one_pass.begin_steps(1)
    one_pass.begin_steps(1)
    assert one_pass.taken == 4


def test_what_is_undone_is_told_and_begun_anew(one_pass: Any) -> None:
    one_pass.begin_steps(2)
    one_pass.end_steps()
    assert one_pass.iterators == 1
    for worker in (0, 1, 1):
        one_pass.goes_on_without(worker)
    with pytest.warns(UserWarning, match=r"2 step\(s\) found no batch"):
        one_pass.end_steps()
    assert one_pass.iterators == 2
    assert one_pass.goes_on_without(1), "of the new pass no worker has come to the end"


def test_only_a_pass_with_a_batch_begins_anew(one_pass: Any) -> None:
    assert not one_pass.begins_anew()
    one_pass.had_batch = True
    assert one_pass.begins_anew()
    assert (one_pass.iterators, one_pass.had_batch) == (2, False)
