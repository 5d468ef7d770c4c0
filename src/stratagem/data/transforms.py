"""Steps that make new elements from elements: one class each, with its pass beside it."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stratagem.core.eager import answering
from stratagem.core.errors import InputError
from stratagem.data.blocks import BatchBlock, Block, ColumnsBlock, MapBlock, hold
from stratagem.data.nodes import (
    UNKNOWN_CARDINALITY,
    BlockStream,
    Consecutive,
    DerivedStream,
    FunctionStream,
    Key,
    Lookup,
    Node,
    Stream,
    pull_exactly,
    walk,
)
from stratagem.data.prefetch import await_turn
from stratagem.data.specs import TensorSpec, spec_of
from stratagem.data.structure import Tree, as_array, component_names, flatten, map_leaves

_here = threading.local()


def in_element_function() -> bool:
    """Whether this thread is in a function of the user that a dataset calls on an element: there, values are NumPy."""
    return getattr(_here, "inside", False)


def call(function: Callable[..., Any], element: Tree) -> Any:
    """Call a function of the user: a tuple is spread over the arguments, all else is one argument, as in tf.data.

    Its texts compare with str (half a microsecond for an element of two arrays, which have none).
    """
    before, _here.inside = in_element_function(), True
    element = answering(element)
    try:
        return function(*element) if type(element) is tuple else function(element)
    finally:
        _here.inside = before


class MapFunction:
    """A function of the user as `map` applies it. Apart from the step, so that it goes to another process alone.

    Args:
        function: Takes an element.
        in_order: Whether the calls of a pass come one after another, in the order of the batches.
    """

    def __init__(self, function: Callable[..., Any], in_order: bool) -> None:
        self._function = function
        self._in_order = in_order

    def __str__(self) -> str:
        return f"map({name_of(self._function)})"

    def __call__(self, element: Tree) -> Tree:
        """Return the element that the function makes of this one."""
        if self._in_order:
            await_turn()
        result = call(self._function, element)
        # tf.data's rule, for functions that return several arrays in a list. Elsewhere a list is one array.
        leaves, structure = flatten(tuple(result) if isinstance(result, list) else result)
        if not leaves:
            raise InputError(
                f"The function {name_of(self._function)} given to map returned {structure.unflatten([])!r}.",
                "Return the new element from the function.",
            )
        return structure.unflatten([as_array(leaf) for leaf in leaves])


class Map(Node):
    """A function applied to each element when it is read.

    Args:
        inner: The elements.
        function: What to apply.
        parallel_calls: How many batches may be read at once, each in a thread of its own. With 1 the calls of a pass
            come in order, also where another step lets several threads read.
    """

    in_memory = False
    reads_single_rows = True

    def __init__(self, inner: Node, function: Callable[..., Any], parallel_calls: int = 1) -> None:
        super().__init__([inner])
        self.row_function = MapFunction(function, in_order=parallel_calls == 1)
        self.parallel_calls = parallel_calls

    def stream(self, key: Key) -> Stream:
        return DerivedStream(self.inputs[0].stream(key), lambda block: MapBlock(self.row_function, block))

    def lookup(self, key: Key) -> Lookup | None:
        inner = self.inputs[0].lookup(key)
        return inner and (lambda positions: MapBlock(self.row_function, inner(positions)))

    def _make_spec(self) -> Tree:
        first = self.stream((0,)).pull(1)
        if first is None:
            raise InputError(
                f"The dataset given to {self.row_function} is empty.", "Give map a dataset with at least one element."
            )
        return spec_of(first.elements()[0])


def name_of(function: Callable[..., Any]) -> str:
    """Return how a person knows a function."""
    return getattr(function, "__qualname__", repr(function))


def verdict(predicate: Callable[..., Any], element: Tree) -> bool:
    """Return what a predicate of the user says of an element.

    Raises:
        InputError: It is not one boolean.
    """
    said = np.asarray(call(predicate, element))
    if said.shape != () or said.dtype != np.bool_:
        raise InputError(
            f"The predicate {name_of(predicate)} returned {said!r}.",
            "Return one boolean, for example through numpy.all(...).",
        )
    return bool(said)


class Filter(Node):
    """The elements for which `predicate` is true."""

    in_memory = False

    def __init__(self, inner: Node, predicate: Callable[..., Any]) -> None:
        super().__init__([inner])
        self._predicate = predicate

    def stream(self, key: Key) -> Stream:
        inner = self.inputs[0].stream(key)

        def pull(rows: int) -> Block | None:
            while (block := inner.pull(rows)) is not None:
                block = hold(block)
                kept = np.flatnonzero([verdict(self._predicate, element) for element in block.elements()])
                if len(kept):
                    return block.select(kept)
            return None

        return FunctionStream(pull)

    def cardinality(self) -> int:
        return UNKNOWN_CARDINALITY


class Batched(Node):
    """Consecutive elements joined, `size` at a time."""

    def __init__(self, inner: Node, size: int, drop_remainder: bool) -> None:
        super().__init__([inner])
        self.size = size
        self.drop_remainder = drop_remainder

    def stream(self, key: Key) -> Stream:
        return BatchStream(self.inputs[0].stream(key), self.size, self.drop_remainder)

    def lookup(self, key: Key) -> Lookup | None:
        inner, end = self.inputs[0].lookup(key), self.inputs[0].cardinality()
        if inner is None:
            return None

        def batch(number: int) -> Block:
            return inner(np.arange(number * self.size, min((number + 1) * self.size, end)))

        return lambda positions: BatchBlock.of([batch(number) for number in positions.tolist()])

    def divided(self, parts: int) -> Batched:
        """Return the step that makes batches of this part of the size."""
        return Batched(self.inputs[0], self.size // parts, self.drop_remainder)

    def cardinality(self) -> int:
        elements = self.inputs[0].cardinality()
        if elements < 0:
            return elements
        return elements // self.size if self.drop_remainder else -(-elements // self.size)

    def _make_spec(self) -> Tree:
        size = self.size if self.drop_remainder else None
        return map_leaves(lambda spec: spec.batched(size), self.inputs[0].spec)


class BatchStream(Stream):
    """Consecutive elements of a pass joined, `size` at a time."""

    def __init__(self, inner: Stream, size: int, drop_remainder: bool) -> None:
        self._inner = inner
        self._size = size
        self._drop_remainder = drop_remainder

    def pull(self, rows: int) -> Block | None:
        batches = []
        for _ in range(rows):
            batch = pull_exactly(self._inner, self._size)
            if batch is None or (self._drop_remainder and len(batch) < self._size):
                break
            batches.append(batch)
        return BatchBlock.of(batches) if batches else None

    def skip(self, rows: int) -> int:
        elements = self._inner.skip(rows * self._size)
        return elements // self._size if self._drop_remainder else -(-elements // self._size)


class Unbatch(Node):
    """The rows of each element, one by one."""

    def stream(self, key: Key) -> Stream:
        return UnbatchStream(self.inputs[0].stream(key))

    def cardinality(self) -> int:
        elements = self.inputs[0].cardinality()
        if elements <= 0:
            return elements
        # What map returns is known from the first element only; another may have more rows.
        if any(isinstance(node, Map) for node in walk(self)):
            return UNKNOWN_CARDINALITY
        try:
            sizes = {spec.shape[0] if spec.shape else None for spec in flatten(self.inputs[0].spec)[0]}
        except InputError:  # a generator without a signature that yields nothing
            return UNKNOWN_CARDINALITY
        size = sizes.pop() if len(sizes) == 1 else None
        return UNKNOWN_CARDINALITY if size is None else elements * size

    def _make_spec(self) -> Tree:
        return map_leaves(operator.methodcaller("row"), self.inputs[0].spec)


class UnbatchStream(Consecutive):
    """The rows of each element of a pass."""

    def __init__(self, inner: Stream) -> None:
        self._inner = inner

    def following(self, rows: int) -> Stream | None:
        element = self._inner.pull(1)
        if element is None:
            return None
        inside = element.inside()
        return BlockStream(hold(inside) if isinstance(inside, ColumnsBlock) else inside)


@dataclass(frozen=True)
class Padding:
    """To which shapes elements are filled up, and with what.

    Args:
        shapes: Tree of shapes, one for each component; a size that is None or -1 is the largest of the batch. None
            stands for such a size everywhere.
        values: Tree of numbers; or one for all components; None stands for zero.
    """

    shapes: Any
    values: Any

    @property
    def is_known(self) -> bool:
        """Whether the shapes do not depend on the other elements of a batch."""
        return _is_known(self.shapes)

    def columns(self, elements: Sequence[Tree]) -> Tree:
        """Return elements, all filled up to one shape, joined along a new leading axis.

        Raises:
            InputError: They are built differently, differ in rank, or do not fit into the shapes.
        """
        _, structure = flatten(elements[0])
        names = component_names(elements[0])
        try:
            shapes = [None] * len(names) if self.shapes is None else structure.flatten_up_to(self.shapes)
            nested = type(self.values) in (dict, tuple)
            values = structure.flatten_up_to(self.values) if nested else [self.values] * len(names)
            rows = [structure.flatten_up_to(element) for element in elements]
        except ValueError as error:
            raise InputError(
                f"padded_batch got elements, padded_shapes or padding_values that are nested differently: {error}.",
                f"Nest all of them in the same way. An element here has the components {', '.join(names)}.",
            ) from None
        leaves = zip(names, zip(*rows, strict=True), shapes, values, strict=True)
        return structure.unflatten([_padded(*leaf) for leaf in leaves])

    def one(self, element: Tree) -> Tree:
        """Return one element filled up, where `is_known`."""
        return map_leaves(lambda column: column[0], self.columns([element]))

    def spec(self, element: Tree, size: int | None) -> Tree:
        """Return the spec of a batch, given that of an element."""
        leaves, structure = flatten(element)
        shapes = [None] * len(leaves) if self.shapes is None else structure.flatten_up_to(self.shapes)
        out = []
        for leaf, shape in zip(leaves, shapes, strict=True):
            # A size that is known of the first element only may be another of the next.
            sizes = [None] * len(leaf.shape) if shape is None else _sizes(shape)
            out.append(TensorSpec((size, *sizes), leaf.dtype, leaf.name))
        return structure.unflatten(out)


def _is_known(shape: Any) -> bool:
    if isinstance(shape, dict):
        return all(_is_known(part) for part in shape.values())
    if shape is None or isinstance(shape, int | np.integer):
        return shape is not None and bool(shape >= 0)
    return all(_is_known(part) for part in shape)


def _sizes(shape: Any) -> list[int | None]:
    return [None if size is None or size < 0 else int(size) for size in shape]


def _padded(name: str, arrays: Sequence[Any], shape: Any, value: Any) -> np.ndarray:
    if isinstance(arrays[0], bytes):
        column = np.empty(len(arrays), object)
        column[:] = arrays
        return column
    sizes = [None] * np.ndim(arrays[0]) if shape is None else _sizes(shape)
    ranks = {np.ndim(array) for array in arrays}
    if ranks != {len(sizes)}:
        raise InputError(
            f"Component {name} has elements with {' and '.join(map(str, sorted(ranks)))} axes, padded to {sizes}.",
            "Write padded_shapes with one size (or None) for each axis of an element, without the batch.",
        )
    largest = np.max([np.shape(array) for array in arrays], axis=0).tolist()
    full = [most if size is None else size for most, size in zip(largest, sizes, strict=True)]
    if any(most > size for most, size in zip(largest, full, strict=True)):
        raise InputError(
            f"Component {name} has an element of size {largest}, but padded_shapes says {full}.",
            "Write larger padded_shapes, or None to pad to the largest element of a batch, or cut the elements with "
            "map.",
        )
    dtype = arrays[0].dtype
    fill = value if value is not None else b"" if dtype.hasobject else np.zeros((), dtype)
    column = np.full((len(arrays), *full), fill, dtype)
    for row, array in enumerate(arrays):
        column[(row, *map(slice, np.shape(array)))] = array
    return column


class Padded(Node):
    """Batches with their rows filled up to one shape.

    Args:
        batches: The batches, as `Batched` makes them.
        padding: The shapes.
        size: Rows of a batch, None where the last may have fewer.
    """

    in_memory = False  # filling up is Python's work, row by row

    def __init__(self, batches: Node, padding: Padding, size: int | None) -> None:
        super().__init__([batches])
        self._padding = padding
        self._size = size

    def stream(self, key: Key) -> Stream:
        return DerivedStream(self.inputs[0].stream(key), self._padded)

    def _padded(self, batches: Block) -> Block:
        assert isinstance(batches, BatchBlock)
        return batches.each(self._filled_up)

    def _filled_up(self, batch: Block) -> Block:
        if self._padding.is_known:
            return MapBlock(self._padding.one, batch)
        # The shape is that of the largest row, so every worker reads all of them.
        return ColumnsBlock(self._padding.columns(batch.elements()))

    def _make_spec(self) -> Tree:
        size = self._size if isinstance(self.inputs[0], Batched) else None  # of `Resized` they have several sizes
        return self._padding.spec(Unbatch([self.inputs[0]]).spec, size)
