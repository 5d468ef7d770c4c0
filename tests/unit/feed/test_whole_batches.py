"""Every kind of input: its batches, the same on any number of workers, and going on after a restart."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
from tests.group import Group
from tests.unit.feed.kinds.kinds import BATCH, KINDS, ROWS, alone, batch

from stratagem.data.batches import whole
from stratagem.data.specs import TensorSpec
from stratagem.feed.kinds.choose import input_of
from stratagem.feed.whole_batches import WholeBatches
from stratagem.mesh.split import Split

LONGEST = 5
"""Batches that are read of a pass without end."""


def source_of(value: Any, *, seed: int = 1, rows_of: Any = whole, shuffle: bool = True) -> WholeBatches:
    """Return the source as a program sees it whose chief draws `seed`."""
    batches = input_of(value, lambda _, __: seed, 1, shuffle=shuffle)
    return WholeBatches(batches, alone(), rows_of=rows_of, pass_is_epoch=True)


def _part(rows: int, workers: int, worker: int) -> slice:
    before = np.cumsum([0, *Split(rows, workers).shares])
    return slice(int(before[worker]), int(before[worker + 1]))


def targets(rows: Any) -> list[int]:
    (x, y), count = rows.data, len(rows.data[1])
    np.testing.assert_array_equal(x[:, 0], y) if count else None
    return y.tolist()


def read(source: WholeBatches, reader: Any = None) -> list[list[int]]:
    """Read a pass, or what is left of one."""
    return [targets(rows) for rows in itertools.islice(reader or source.batches(), LONGEST)]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    KINDS[request.param]()  # skips, where the library is missing
    return request.param


def test_finite_passes_hold_each_example_once(kind: str) -> None:
    if kind in ("generator", "torch with a sampler") or "endless" in kind or "repeated" in kind:
        pytest.skip("examples come several times")
    source = source_of(KINDS[kind]())
    passes = [list(itertools.chain(*read(source))) for _ in range(2)]
    source.close()
    whole_batches_only = "filtered" in kind or "drop_last" in kind
    for one_pass in passes:
        assert len(set(one_pass)) == len(one_pass) == (ROWS // BATCH * BATCH if whole_batches_only else ROWS)


def test_batches_are_the_global_ones_whatever_the_share(kind: str) -> None:
    expected = source_of(KINDS[kind]())
    batches = read(expected)
    expected.close()
    for workers in (2, 3):
        shares = []
        for worker in range(workers):
            source = source_of(KINDS[kind](), rows_of=lambda rows, w=worker, n=workers: _part(rows, n, w))
            shares.append(read(source))
            source.close()
        assert [list(itertools.chain(*parts)) for parts in zip(*shares, strict=True)] == batches


@pytest.mark.sampled(3)
@pytest.mark.parametrize("place", [(0, 0), (0, 2), (1, 0), (1, 1)], ids=str)
def test_a_restarted_program_goes_on(kind: str, place: tuple[int, int]) -> None:
    passes, taken = place
    if kind == "repeated tf.data" and passes:
        pytest.skip("how far TensorFlow read ahead in a pass that was left decides on the order of the next")
    first = source_of(KINDS[kind]())
    first.first()
    for _ in range(passes):
        read(first)
    reader = first.batches() if taken else None
    for _ in range(taken):
        next(reader)  # type: ignore[arg-type]
    state = json.loads(json.dumps(reader.get_state() if reader else first.position()))
    further = 0 if kind == "repeated tf.data" else 1
    rest = [read(first, reader), *(read(first) for _ in range(further))]
    first.close()

    again = source_of(KINDS[kind](), seed=99)
    again.resume(state)
    assert again.position() == state
    again.first()
    third = source_of(KINDS[kind](), seed=98)  # which is interrupted before it reads anything
    third.resume(again.position())
    length = len(rest[0])
    for source in (again, third):
        assert [read(source)[:length], *(read(source) for _ in range(further))] == rest
        source.close()


def test_a_position_counts_the_batches_before_a_restart() -> None:
    again = source_of(KINDS["iterable"]())
    again.resume({"passes": [3], "batches": 1})
    reader = again.batches()
    assert reader.get_state() == {"passes": [3], "batches": 1}
    assert targets(next(reader)) == [4, 5, 6, 7]
    assert reader.get_state() == {"passes": [3], "batches": 2}
    reader.close()
    assert list(reader) == []
    assert reader.get_state() == {"passes": [3], "batches": 2}
    assert again.position() == {"passes": [3, 2], "batches": 0}


def test_each_worker_gets_its_rows_and_the_first_batch_is_compared() -> None:
    def steps(worker: Any) -> Any:
        batches = input_of(KINDS["iterable"](), lambda _, seed: seed, 2)
        source = WholeBatches(batches, worker, lambda data: {"y": data[1]})
        return source.element_spec, [(rows.shares, rows.local["y"].tolist()) for rows in source.open()]

    (spec, one), (_, other) = Group(2).run(steps)
    assert spec == {"y": TensorSpec((None,), "int32")}
    assert one == [((2, 2), [0, 1]), ((2, 2), [4, 5]), ((1, 1), [8])]
    assert other == [((2, 2), [2, 3]), ((2, 2), [6, 7]), ((1, 1), [9])]

    def apart(worker: Any) -> None:
        later = np.arange(4) + worker.worker_index
        batches = input_of(iter([batch(range(4)), batch(later)]), lambda _, seed: seed, 2)
        reader = WholeBatches(batches, worker).open()
        next(reader)
        next(reader)  # only the first is compared

    Group(2).run(apart)
