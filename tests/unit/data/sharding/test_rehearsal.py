"""An input is read as each worker would read it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stratagem.core.errors import InputError
from stratagem.core.types import InputContext
from stratagem.data import AutoShardPolicy, Dataset, Options
from stratagem.data.sharding.rehearsal import Rehearsal, length_of


def rows_of_worker(rehearsal: Rehearsal, worker: int) -> list[list[int]]:
    part = rehearsal.part(rehearsal.make(rehearsal.workers, worker), rehearsal.workers, worker)
    return [batch.data.tolist() for batch in rehearsal.batches(part)]


def test_a_function_of_a_context_makes_the_part_of_each_worker() -> None:
    def make(context: InputContext) -> Dataset:
        return Dataset.range(6).shard(context.num_input_pipelines, context.input_pipeline_id).batch(2)

    rehearsal = Rehearsal(make, 2, None)
    assert rehearsal.takes_context
    assert rehearsal.own_streams
    assert [rows_of_worker(rehearsal, worker) for worker in (0, 1)] == [[[0, 2], [4]], [[1, 3], [5]]]


def test_workers_get_the_seeds_of_the_first() -> None:
    rehearsal = Rehearsal(lambda: Dataset.range(50).shuffle(50).batch(50), 2, None)
    assert rehearsal.policy is AutoShardPolicy.DATA
    assert not rehearsal.own_streams
    assert rows_of_worker(rehearsal, 0) == rows_of_worker(rehearsal, 1)


def test_a_hint_is_filled_in() -> None:
    options = Options()
    options.experimental_distribute.auto_shard_policy = AutoShardPolicy.HINT
    hinted = Dataset.range(4).shard(-1, -1).batch(2).with_options(options)
    rehearsal = Rehearsal(lambda: hinted, 2, None)
    assert [rows_of_worker(rehearsal, worker) for worker in (0, 1)] == [[[0, 2]], [[1, 3]]]


def test_reading_stops_at_the_limit_and_says_whether_there_is_more() -> None:
    dataset = Dataset.range(6).batch(2)
    for most, steps, ended in ((2, 2, False), (3, 3, True), (None, 3, True)):
        read, has_ended = Rehearsal(dataset, 2, most).read(dataset)
        assert (len(read), has_ended) == (steps, ended)
    read, has_ended = Rehearsal(dataset, 2, 3).read(dataset, lambda rows: slice(1), done=1)
    assert ([len(step) for step in read], has_ended) == ([1, 1], False)


@pytest.mark.parametrize(
    ("made", "length"),
    [(Dataset.range(5).batch(2), 3), (Dataset.range(5).repeat(), None), ([1, 2], 2), (iter([1]), None)],
)
def test_length(made: Any, length: int | None) -> None:
    assert length_of(made) == length


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.ones(3), "The input is ndarray"),
        (lambda: 7, "The input is int"),
        (lambda first, second: first, "takes 2 arguments"),
    ],
)
def test_what_is_no_input(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Rehearsal(given, 2, None)
