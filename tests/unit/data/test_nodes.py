"""Passes by position, passes made of others, and the graph of steps."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from stratagem.data import Dataset
from stratagem.data.blocks import HeldBlock
from stratagem.data.nodes import (
    BlockStream,
    DerivedStream,
    PositionStream,
    Seeded,
    Stream,
    elements_of,
    look_up_each,
    pull_exactly,
    rewrite,
    walk,
)


def numbers(first: int, last: int) -> HeldBlock:
    return HeldBlock.of(list(range(first, last)))


def in_threes(first: int, last: int) -> Stream:
    """Return a pass that hands out three elements at most."""

    class Threes(PositionStream):
        def pull(self, rows: int) -> HeldBlock | None:
            return super().pull(min(rows, 3))  # type: ignore[return-value]

    return Threes(last - first, lambda start, end: numbers(first + start, first + end))


def test_positions_are_pulled_and_skipped_up_to_the_end() -> None:
    stream = PositionStream(7, numbers)
    assert list(elements_of(PositionStream(3, numbers))) == [0, 1, 2]
    assert stream.skip(2) == 2
    block = stream.pull(3)
    assert block is not None
    assert block.elements() == [2, 3, 4]
    assert stream.skip(9) == 2
    assert (stream.pull(1), stream.skip(1)) == (None, 0)


def test_the_rows_of_a_block() -> None:
    stream = BlockStream(numbers(5, 9))
    assert stream.skip(1) == 1
    assert list(elements_of(stream)) == [6, 7, 8]


def test_a_derived_pass_skips_without_deriving() -> None:
    derived: list[int] = []

    def doubled(block: object) -> HeldBlock:
        assert isinstance(block, HeldBlock)
        derived.extend(block.elements())
        return HeldBlock.of([2 * number for number in block.elements()])

    stream = DerivedStream(PositionStream(5, numbers), doubled)
    assert stream.skip(3) == 3
    assert list(elements_of(stream)) == [6, 8]
    assert derived == [3, 4]


def test_pulling_exactly_joins_short_blocks() -> None:
    stream = in_threes(0, 8)
    assert [block.elements() for _ in range(3) if (block := pull_exactly(stream, 5))] == [[0, 1, 2, 3, 4], [5, 6, 7]]


def test_looking_up_in_parts_keeps_the_order() -> None:
    found = look_up_each(
        np.array([1, 0, 1, 2]),
        np.array([4, 5, 0, 7]),
        lambda part: lambda places: HeldBlock.of([10 * part + place for place in places.tolist()]),
    )
    assert found.elements() == [14, 5, 10, 27]


def test_walking_and_rewriting_keep_a_step_that_is_used_twice_one_step() -> None:
    shuffled = Dataset.range(4).shuffle(4)
    root = Dataset.zip(shuffled, shuffled)._node
    assert [type(step).__name__ for step in walk(root)] == ["Indexed", "Shuffle", "Zip"]
    copied = rewrite(root, lambda step: step.with_seed(7) if isinstance(step, Seeded) else step)
    assert [step.seed for step in walk(copied) if isinstance(step, Seeded)] == [7]
    assert copied.inputs[0] is copied.inputs[1]


@pytest.mark.parametrize("seed", [-1, 2**64 - 1])
def test_seeds_are_taken_modulo_two_to_the_64(seed: int) -> None:
    step = Dataset.range(4).shuffle(4, seed=seed)._node
    assert isinstance(step, Seeded)
    assert int(step.bits((0,)).random_raw()) == int(
        np.random.Philox(np.random.SeedSequence(2**64 - 1, spawn_key=(0,))).random_raw()
    )


def test_walking_leaves_nothing_to_collect() -> None:
    root = Dataset.range(4).shuffle(4)._node
    gc.collect()
    assert len(list(walk(root))) == 2
    assert gc.collect() == 0


def test_a_pipeline_may_have_more_steps_than_calls_of_python_nest() -> None:
    dataset = Dataset.range(4)
    for _ in range(3000):
        dataset = dataset.skip(0)
    assert len(list(walk(dataset._node))) > 3000
