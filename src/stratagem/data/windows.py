"""Steps that gather elements in windows, each a dataset: consecutive elements, or those with one key."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import optree

from stratagem.core.errors import InputError
from stratagem.data.blocks import BatchBlock, Block, DerivedBlock, HeldBlock, hold, join
from stratagem.data.nodes import (
    UNKNOWN_CARDINALITY,
    BlockStream,
    Consecutive,
    FunctionStream,
    Key,
    Lasting,
    Lookup,
    Node,
    Seeded,
    Stream,
    elements_of,
    pull_exactly,
    settled,
    stream_of,
)
from stratagem.data.specs import DatasetSpec
from stratagem.data.structure import Tree, flatten, map_leaves
from stratagem.data.transforms import call, name_of

MakeDataset = Callable[[Node], Any]
"""Returns the dataset whose last step is this one."""


class Component(DerivedBlock):
    """One component of each row; `how` is its number."""

    def elements(self) -> list[Tree]:
        return [flatten(element)[0][self._how] for element in self._parts[0].elements()]

    def gather(self) -> Tree:
        return flatten(self._parts[0].gather())[0][self._how]


class Rows(Node):
    """The rows of a block.

    Args:
        block: The rows; None for none.
        spec: The tree of `TensorSpec` of a row.
    """

    def __init__(self, block: Block | None, spec: Tree) -> None:
        super().__init__()
        self._block = block
        self._spec = spec
        self.in_memory = block is None or block.local

    def stream(self, key: Key) -> Stream:
        return BlockStream(HeldBlock.of([]) if self._block is None else self._block)

    def lookup(self, key: Key) -> Lookup | None:
        return None if self._block is None else self._block.select

    def cardinality(self) -> int:
        return 0 if self._block is None else len(self._block)

    def _make_spec(self) -> Tree:
        return self._spec


class Window(Node):
    """Windows of consecutive elements: for each a dataset, or a tree of datasets, one for each component.

    Args:
        inner: The elements.
        size: Elements of a window.
        shift: By how many elements a window begins behind the one before.
        stride: How far apart the elements of a window are.
        drop_remainder: Whether windows with fewer elements are left out.
        make: Makes a dataset of its last step.
    """

    def __init__(
        self, inner: Node, size: int, shift: int, stride: int, drop_remainder: bool, make: MakeDataset
    ) -> None:
        super().__init__([inner])
        self._span = (size - 1) * stride + 1
        self._shift = shift
        self._stride = stride
        self._drop_remainder = drop_remainder
        self._make = make

    def stream(self, key: Key) -> Stream:
        return stream_of(map(self._element, Lasting(self._windows(self.inputs[0].stream(key)))))

    def _windows(self, inner: Stream) -> Iterator[Block]:
        ahead: Block | None = None
        while True:
            have = 0 if ahead is None else len(ahead)
            more = pull_exactly(inner, self._span - have) if have < self._span else None
            ahead = _joined(ahead, None if more is None else hold(more))
            if ahead is None or (self._drop_remainder and len(ahead) < self._span):
                return
            yield ahead.select(slice(0, self._span, self._stride))
            inner.skip(max(self._shift - len(ahead), 0))
            ahead = ahead.select(slice(self._shift, None)) if self._shift < len(ahead) else None

    def _element(self, window: Block) -> Tree:
        specs, structure = flatten(self.inputs[0].spec)
        return structure.unflatten(
            [self._make(Rows(part, spec)) for part, spec in _components(window, specs, structure)]
        )

    def cardinality(self) -> int:
        elements = self.inputs[0].cardinality()
        if elements < 0:
            return elements
        if self._drop_remainder:
            return max((elements - self._span) // self._shift + 1, 0)
        return -(-elements // self._shift)

    def _make_spec(self) -> Tree:
        return map_leaves(DatasetSpec, self.inputs[0].spec)


def _joined(first: Block | None, second: Block | None) -> Block | None:
    return join([first, second]) if first is not None and second is not None else second or first


def _components(window: Block, specs: Sequence[Any], structure: optree.PyTreeSpec) -> Iterator[tuple[Block, Any]]:
    if structure == flatten(0)[1]:
        yield window, specs[0]
        return
    for number, spec in enumerate(specs):
        yield Component(number, window), spec


class GroupByWindow(Seeded):
    """Datasets that a function makes of the elements with one key, as soon as there are enough of them.

    Args:
        inner: The elements.
        key_of: Returns the key of an element, a whole number.
        reduced: Given a key and the last step of the dataset of its elements, returns that of the new one.
        size_of: How many elements with a key make a window.
    """

    in_memory = False

    def __init__(
        self,
        inner: Node,
        key_of: Callable[..., Any],
        reduced: Callable[[np.int64, Node], Node],
        size_of: Callable[[np.int64], int],
    ) -> None:
        super().__init__([inner], None)
        self._key_of = key_of
        self._reduced = reduced
        self._size_of = size_of

    def stream(self, key: Key) -> Stream:
        return _GroupedStream(Lasting(self._windows(self.inputs[0].stream(key))), key)

    def _windows(self, inner: Stream) -> Iterator[Node]:
        groups: dict[int, list[Block]] = {}
        sizes: dict[int, int] = {}
        while (block := inner.pull(1)) is not None:
            block = hold(block)
            number = self._number(block.elements()[0])
            group = groups.setdefault(number, [])
            group.append(block)
            if len(group) == 1:
                sizes[number] = self._size_of(np.int64(number))
            if len(group) == sizes[number]:
                yield self._window(number, groups.pop(number))
        for number in sorted(groups):  # TensorFlow's order at the end
            yield self._window(number, groups[number])

    def _window(self, number: int, rows: list[Block]) -> Node:
        return settled(self._reduced(np.int64(number), Rows(join(rows), self.inputs[0].spec)), self.seed)

    def _number(self, element: Tree) -> int:
        number = np.asarray(call(self._key_of, element))
        if number.shape != () or number.dtype.kind not in "iu":
            raise InputError(
                f"The function {name_of(self._key_of)} given to group_by_window returned {number!r}.",
                "Return one whole number, the key of the element.",
            )
        return int(number)

    def cardinality(self) -> int:
        return UNKNOWN_CARDINALITY

    def _make_spec(self) -> Tree:
        for window in self._windows(self.inputs[0].stream((0,))):
            return window.spec
        raise InputError(
            "The dataset given to group_by_window or bucket_by_sequence_length is empty.",
            "Give it a dataset with at least one element.",
        )


class _GroupedStream(Consecutive):
    def __init__(self, windows: Iterator[Node], key: Key) -> None:
        self._windows = enumerate(windows)
        self._key = key

    def following(self, rows: int) -> Stream | None:
        number, window = next(self._windows, (0, None))
        return None if window is None else window.stream((*self._key, number))


class Rebatched(Node):
    """Consecutive elements joined, with sizes that come in turn.

    Args:
        inner: The elements.
        sizes: Elements of each batch; begun again when it ends.
        drop_remainder: Whether a last batch that is not full is left out.
    """

    def __init__(self, inner: Node, sizes: Sequence[int], drop_remainder: bool) -> None:
        super().__init__([inner])
        self._sizes = tuple(sizes)
        self._drop_remainder = drop_remainder

    @property
    def size(self) -> int | None:
        """Elements of each batch; None where batches differ."""
        return self._sizes[0] if len(set(self._sizes)) == 1 else None

    def stream(self, key: Key) -> Stream:
        inner, sizes = self.inputs[0].stream(key), itertools.cycle(self._sizes)

        def pull(rows: int) -> Block | None:
            batches = []
            for size in itertools.islice(sizes, rows):
                batch = pull_exactly(inner, size)
                if batch is None or (self._drop_remainder and len(batch) < size):
                    break
                batches.append(batch)
            return BatchBlock.of(batches) if batches else None

        return FunctionStream(pull)

    def cardinality(self) -> int:
        elements = self.inputs[0].cardinality()
        if elements < 0:
            return elements
        rounds, left = divmod(elements, sum(self._sizes))
        ends = np.cumsum(self._sizes)
        begun = int(np.searchsorted(ends, left, side="right"))
        rest = left - (int(ends[begun - 1]) if begun else 0)
        return rounds * len(self._sizes) + begun + (rest > 0 and not self._drop_remainder)

    def _make_spec(self) -> Tree:
        size = self._sizes[0] if self._drop_remainder and len(set(self._sizes)) == 1 else None
        return map_leaves(lambda spec: spec.batched(size), self.inputs[0].spec)


def only_element(node: Node, key: Key) -> Tree:
    """Return the only element of a pass.

    Raises:
        InputError: There is none, or there are several.
    """
    elements = list(itertools.islice(elements_of(node.stream(key)), 2))
    if len(elements) != 1:
        raise InputError(
            f"get_single_element was given a dataset with {'several elements' if elements else 'no element'}.",
            "Give a dataset of one element, for example dataset.batch(n).take(1).",
        )
    return elements[0]
