"""Readers: the rows of each step, whether workers share global batches or read streams of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.group import Group

from stratagem.core.errors import InputError, PeerError
from stratagem.data.batches import Batch
from stratagem.feed.batch import as_it_is
from stratagem.feed.source import Reader, Rows, read_pieces, read_streams, read_together


class Numbers:
    """Batches of so many rows each: 0, 1, 2 and so on."""

    def __init__(self, *sizes: int, dtype: Any = np.int64) -> None:
        ends = np.cumsum(sizes).tolist()
        self._batches = [Batch(n, np.arange(e - n, e, dtype=dtype)) for n, e in zip(sizes, ends, strict=True)]
        self.taken = 0
        self.closed = False

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self.taken == len(self._batches):
            raise StopIteration
        self.taken += 1
        return self._batches[self.taken - 1]

    def get_state(self) -> dict[str, Any]:
        return {"batches": self.taken}

    def close(self) -> None:
        self.closed = True


EMPTY = np.empty(0, np.int64)


def steps(reader: Reader) -> list[tuple[tuple[int, ...], list[int]]]:
    return [(rows.shares, rows.local.tolist()) for rows in reader]


def test_steps_without_rows_are_passed_over() -> None:
    left = [Rows((0, 0), None), Rows((1, 0), "a"), Rows((0, 0), None), None]
    reader = Reader(lambda: left.pop(0), dict, lambda: None)
    assert list(reader) == [((1, 0), "a")]


def test_a_global_batch_is_shared_by_all_replicas() -> None:
    batches = Numbers(4, 0, 3)
    (found,) = Group(1, replicas_each=2).run(
        lambda worker: steps(read_together(batches, worker, lambda rows: rows * 10, asks=False))
    )
    assert found == [((2, 2), [0, 10, 20, 30]), ((2, 1), [40, 50, 60])]


def test_state_and_end_are_those_of_the_batches() -> None:
    batches = Numbers(2, 2)
    (reader,) = Group(1).run(lambda worker: read_together(batches, worker, as_it_is, asks=False))
    next(reader)
    assert reader.get_state() == {"batches": 1}
    reader.close()
    assert batches.closed


def test_all_workers_end_with_the_first_and_compare_once() -> None:
    compared = []

    def read(worker: Any) -> int:
        batches = Numbers(*[2] * (3 if worker.worker_index else 2))
        reader = read_together(
            batches, worker, as_it_is, asks=True, compare=lambda: compared.append(worker.worker_index)
        )
        return len(list(reader))

    with pytest.warns(UserWarning, match="The data of worker 0 ended first"):
        assert Group(2).run(read) == [2, 2]
    assert sorted(compared) == [0, 1]


def test_batches_of_different_sizes_are_an_error() -> None:
    def read(worker: Any) -> None:
        with pytest.raises(PeerError, match=r"different sizes: \[2, 3\] rows on workers 0 to 1"):
            next(read_together(Numbers(2 + worker.worker_index), worker, as_it_is, asks=True))

    Group(2).run(read)


def test_a_batch_lasts_for_as_many_steps_as_it_has_pieces() -> None:
    def read(worker: Any, state: Any = None) -> list[Any]:
        batches = Numbers(5, 2) if worker.worker_index else Numbers(4)
        if state is not None:
            batches.taken = state["batches"]
        reader = read_pieces(batches, worker, as_it_is, EMPTY, asks=True, parts=2, state=state)
        return [(reader.get_state(), rows.shares, rows.local.tolist()) for rows in reader]

    first, second = Group(2).run(read)
    assert [(shares, local) for _, shares, local in first] == [
        ((2, 3), [0, 1]),
        ((2, 2), [2, 3]),
        ((0, 2), []),
    ]
    # The last batch gives a piece as large as those of the first, not two halves.
    assert [local for _, _, local in second] == [[0, 1, 2], [3, 4], [5, 6]]
    assert [state for state, _, _ in first] == [state for state, _, _ in second], "also of a stream that has ended"
    assert [(state["batches"], state["part"]) for state, _, _ in first] == [
        (0, [1, 2]),
        (1, [0, 2]),
        (1, [1, 2]),
    ]
    middle = {"batches": 0, "part": [1, 2]}
    assert Group(2).run(lambda worker: [local for _, _, local in read(worker, middle)]) == [
        [[2, 3], []],
        [[3, 4], [5, 6]],
    ]
    with pytest.raises(InputError, match=r"lasts for 3 step\(s\); here it lasts for 2"):
        Group(1).run(lambda worker: read(worker, {"batches": 0, "part": [1, 3]}))
    beginning = {"batches": 0, "part": [0, 3]}  # it is the same for any number of pieces
    assert Group(2).run(lambda worker: read(worker, beginning))[0] == first


def test_each_replica_gets_a_batch_of_its_own() -> None:
    def read(streams: int) -> Any:
        (found,) = Group(1, replicas_each=2).run(
            lambda worker: steps(read_streams([Numbers(2, 3, 1)] * streams, worker, as_it_is, EMPTY))
        )
        return found

    assert read(1) == [((2, 3), [0, 1, 2, 3, 4]), ((1, 0), [5])]
    (two,) = Group(1, replicas_each=2).run(
        lambda worker: steps(read_streams([Numbers(2, 3), Numbers(1)], worker, as_it_is, EMPTY))
    )
    assert two == [((2, 1), [0, 1, 0]), ((3, 0), [2, 3, 4])]


def test_the_pass_ends_with_the_last_stream_of_all_workers() -> None:
    def read(worker: Any) -> Any:
        streams = [Numbers(*[1] * (1 + worker.worker_index))]
        reader = read_streams(streams, worker, as_it_is, EMPTY)
        found = steps(reader)
        reader.close()
        assert streams[0].closed
        return found, reader.get_state()

    (first, state), (second, _) = Group(2).run(read)
    assert first == [((1, 1), [0]), ((0, 1), [])]
    assert second == [((1, 1), [0]), ((0, 1), [1])]
    assert state == {"streams": [{"batches": 1}]}


def test_rows_of_different_kinds_are_an_error() -> None:
    def read(worker: Any) -> None:
        batches = Numbers(2, dtype=np.int32 if worker.worker_index else np.int64)
        with pytest.raises(PeerError, match=r"worker 0: int64\[\]; worker 1: int32\[\](.|\n)*Pad the examples"):
            next(read_streams([batches], worker, as_it_is, EMPTY))

    Group(2).run(read)


def test_rows_of_unlike_shapes_stay_with_their_replicas() -> None:
    unlike = [Numbers(2), iter([Batch(1, np.zeros((1, 3)))])]
    read: list[Any] = []
    Group(1, replicas_each=2).run(lambda worker: read.append(next(read_streams(unlike, worker, as_it_is, EMPTY))))
    assert [leaf.shape for leaf in read[0].local.of_replicas] == [(2,), (1, 3)]
    with pytest.raises(InputError, match=r"batches of two replicas differ(.|\n)*Pad the examples"):
        np.asarray(read[0].local)
