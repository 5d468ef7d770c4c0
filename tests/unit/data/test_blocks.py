"""Joining and selecting rows of any origin gives the rows that a list would give."""

from __future__ import annotations

import numpy as np
import pytest

from stratagem.data import Dataset
from stratagem.data.blocks import Block, HeldBlock, IndexBlock, JoinedBlock, MapBlock, join
from stratagem.data.sources import ArraySource

LEFT, RIGHT = ArraySource(np.arange(100)), ArraySource(np.arange(100, 200))


def rows(block: Block) -> list[int]:
    return [int(element) for element in block.elements()]


def negative(x: np.ndarray) -> np.ndarray:
    return -x


def block_of(kind: str, start: int) -> Block:
    index = np.arange(start, start + 3)
    return {
        "left": lambda: IndexBlock(LEFT, index),
        "right": lambda: IndexBlock(RIGHT, index),
        "mapped": lambda: MapBlock(negative, IndexBlock(LEFT, index)),
        "held": lambda: HeldBlock.of([np.int64(1000 + i) for i in index]),
    }[kind]()


@pytest.mark.parametrize("seed", range(20))
def test_join_and_select_agree_with_lists(seed: int) -> None:
    rng = np.random.default_rng(seed)
    block, expected = block_of("left", 0), [0, 1, 2]
    for step in range(1, 12):
        piece = block_of(["left", "right", "mapped", "held"][rng.integers(4)], 3 * step)
        block, expected = join([block, piece]), expected + rows(piece)
        kept = rng.permutation(len(expected))[: rng.integers(1, len(expected) + 1)]
        block, expected = block.select(kept), [expected[k] for k in kept]
        assert rows(block) == expected
        assert block.gather().tolist() == expected
        assert rows(block.select(slice(1, None))) == expected[1:]


def test_blocks_of_one_family_stay_one_vector() -> None:
    joined = join([block_of("left", 0), block_of("left", 50)])
    assert isinstance(joined, IndexBlock)
    assert rows(joined) == [0, 1, 2, 50, 51, 52]
    assert isinstance(join([block_of("mapped", 0), block_of("mapped", 3)]), MapBlock)


def test_repetitions_of_a_mapped_dataset_are_one_family() -> None:
    node = Dataset.range(4).map(negative)._node
    first, second = node.stream((0,)).pull(2), node.stream((1,)).pull(2)
    assert first is not None
    assert second is not None
    joined = join([first, second])
    assert isinstance(joined, MapBlock)
    assert rows(joined) == [0, -1, 0, -1]


def test_a_selection_forgets_what_it_does_not_name() -> None:
    joined = join([block_of("left", 0), block_of("held", 0), block_of("right", 0)])
    assert isinstance(joined, JoinedBlock)
    assert isinstance(joined.select(np.array([3, 4])), HeldBlock)
