"""Sources of elements: arrays, ranges, objects read by position, generators. Files are in the folder `files`.

Objects read by position are Hugging Face datasets, map-style datasets of torch and sources of Grain.
"""

from __future__ import annotations

import functools
import operator
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from stratagem.core.errors import InputError
from stratagem.data.blocks import IndexBlock, Source
from stratagem.data.nodes import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Key,
    Lookup,
    Node,
    PositionStream,
    Stream,
    stream_of,
)
from stratagem.data.specs import TensorSpec, spec_of
from stratagem.data.structure import (
    Tree,
    as_arrays,
    common_length,
    component_names,
    encoded,
    flatten,
    is_composite,
    is_sparse,
    map_leaves,
    objects,
    stack,
)


class _SparseRows:
    """The rows of a sparse matrix; only those that are taken become dense."""

    def __init__(self, matrix: Any) -> None:
        self._matrix = matrix.tocsr()
        self.shape: tuple[int, ...] = self._matrix.shape
        self.dtype: np.dtype = self._matrix.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def take(self, index: np.ndarray, axis: int) -> np.ndarray:
        return self._matrix[index].toarray()


class ArraySource:
    """Arrays in memory, read by position.

    Args:
        columns: A tree of arrays; the leading axes are equally long.
        lends: Whether rows that lie side by side may be handed out as views that cannot be written to: where nobody
            keeps them, or calls a function of the user with them.

    Raises:
        InputError: There is no array, one has no axis, or they differ in length.
    """

    in_memory = True

    def __init__(self, columns: Tree, *, lends: bool = False) -> None:
        leaves, self._structure = flatten(as_arrays(columns))
        self._leaves = [_rows_of(leaf) for leaf in leaves]
        self._length = common_length(
            self._structure.unflatten(self._leaves),
            "The arrays differ in their first dimension, or have none",
            "Give arrays whose first dimension counts the same examples. For a single element, use "
            "Dataset.from_tensors.",
        )
        arrays = [leaf for leaf in self._leaves if isinstance(leaf, np.ndarray)]
        self._lent = arrays if lends and len(arrays) == len(self._leaves) else None

    def __len__(self) -> int:
        return self._length

    def take(self, index: np.ndarray) -> Tree:
        """Return copies of the rows at `index`, or views where they may be lent."""
        if self._lent and len(index) and np.count_nonzero(index[1:] - index[:-1] == 1) == len(index) - 1:
            return self._structure.unflatten([_view(leaf, index[0], len(index)) for leaf in self._lent])
        return self._structure.unflatten([leaf.take(index, axis=0) for leaf in self._leaves])

    @property
    def spec(self) -> Tree:
        """Spec of one row."""
        return map_leaves(operator.methodcaller("row"), spec_of(self._structure.unflatten(self._leaves)))


def _rows_of(leaf: Any) -> Any:
    if is_composite(leaf):
        return leaf
    return _SparseRows(leaf) if is_sparse(leaf) else np.asarray(leaf)


def _view(rows: np.ndarray, first: int, count: int) -> np.ndarray:
    view = rows[first : first + count]
    view.flags.writeable = False
    return view


class RangeSource:
    """Numbers that lie equally far apart.

    Args:
        start: The first.
        step: How far each is behind the one before.
        length: How many there are.
        dtype: Of the numbers.
    """

    in_memory = True

    def __init__(self, start: int, step: int, length: int, dtype: Any = np.int64) -> None:
        self._start = start
        self._step = step
        self._length = length
        self._dtype = np.dtype(getattr(dtype, "as_numpy_dtype", dtype))

    def __len__(self) -> int:
        return self._length

    def take(self, index: np.ndarray) -> Tree:
        """Return the numbers at `index`."""
        return (self._start + index.astype(np.int64) * self._step).astype(self._dtype, copy=False)

    @property
    def spec(self) -> Tree:
        """Spec of one number."""
        return TensorSpec((), self._dtype)


class ObjectSource:
    """Elements that an object returns for the positions below its length.

    Args:
        value: Has `__len__` and `__getitem__`; its `__getitems__` is asked for several elements at once, if it has one.
    """

    in_memory = False

    def __init__(self, value: Any) -> None:
        if not hasattr(value, "__len__") or not hasattr(value, "__getitem__"):
            raise InputError(
                f"from_source got a {type(value).__module__}.{type(value).__qualname__}.",
                "It has no length, or no access by position, so workers could not read only their rows.",
                "Give an object with __len__ and __getitem__. For an object that can only be iterated over, use "
                "Dataset.from_generator(lambda: iterable).",
            )
        self._value = value

    def __len__(self) -> int:
        return len(self._value)

    def take(self, index: np.ndarray) -> Tree:
        """Return the elements at these positions as columns, of dtype object where elements differ in shape."""
        elements = [as_arrays(element) for element in self._read(index.tolist())]
        flat = [flatten(element) for element in elements]
        if len({structure for _, structure in flat}) > 1:
            return stack(elements)  # says how they differ
        columns = zip(*(leaves for leaves, _ in flat), strict=True)
        return flat[0][1].unflatten([column_of(column) for column in columns])

    def _read(self, index: list[int]) -> list[Any]:
        if hasattr(self._value, "__getitems__"):
            return list(self._value.__getitems__(index))
        return [self._value[place] for place in index]

    @property
    def spec(self) -> Tree:
        """Spec of an element, as the first one has it."""
        if not len(self):
            raise InputError(
                f"The {type(self._value).__name__} given to from_source is empty.",
                "Give one with at least one element.",
            )
        return spec_of(as_arrays(self._read([0])[0]))


def column_of(leaves: Sequence[Any]) -> np.ndarray:
    """Return the values of one component as a column, a vector of arrays where they differ in shape."""
    return stack(leaves) if len({np.shape(leaf) for leaf in leaves}) == 1 else objects(leaves)


class Indexed(Node):
    """All elements of a source in their order.

    Args:
        source: Elements that can be read by position.
    """

    reads_single_rows = True

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.source = source
        self.in_memory = source.in_memory

    def stream(self, key: Key) -> Stream:
        return PositionStream(len(self.source), lambda start, end: IndexBlock(self.source, np.arange(start, end)))

    def lookup(self, key: Key) -> Lookup | None:
        return functools.partial(IndexBlock, self.source)

    def cardinality(self) -> int:
        return len(self.source)

    def _make_spec(self) -> Tree:
        return self.source.spec


class Counter(Indexed):
    """Numbers that never end.

    Args:
        start: The first.
        step: How far each is behind the one before.
        dtype: Of the numbers.
    """

    def __init__(self, start: int, step: int, dtype: Any = np.int64) -> None:
        super().__init__(RangeSource(start, step, 1 << 62, dtype))

    def lookup(self, key: Key) -> Lookup | None:
        return None  # what has no end has no position counted from it

    def cardinality(self) -> int:
        return INFINITE_CARDINALITY


class InOrder(Node):
    """Elements that come one after another only."""

    in_memory = False

    @abstractmethod
    def elements(self) -> Iterator[Tree]:
        """Yield the elements, for one pass."""

    def stream(self, key: Key) -> Stream:
        return stream_of(self.elements())

    def cardinality(self) -> int:
        return UNKNOWN_CARDINALITY

    def first_spec(self) -> Tree:
        """Return the spec of the first element, None where there is none."""
        for element in self.elements():
            return spec_of(element)
        return None


class Generated(InOrder):
    """Elements that a generator function yields. It is called anew for every pass.

    Args:
        function: Returns an iterable of elements.
        args: Arguments for it.
        signature: Tree of `TensorSpec`, or None to take the first element's.
    """

    repeats_itself = False

    def __init__(self, function: Callable[..., Iterable[Any]], args: tuple[Any, ...], signature: Tree | None) -> None:
        super().__init__()
        self._function = function
        self._args = args
        self._signature = signature

    def elements(self) -> Iterator[Tree]:
        elements = self._function(*self._args)
        if self._signature is None:
            return map(_own, elements)
        check = _Check(self._signature)
        return map(check, elements)

    def _make_spec(self) -> Tree:
        spec = self.first_spec() if self._signature is None else self._signature
        if spec is None:
            raise InputError(
                "The generator yields nothing and has no output_signature.",
                "Write output_signature=(stratagem.data.TensorSpec(shape, dtype), ...).",
            )
        return spec


def _own(element: Any) -> Tree:
    # Copies, as tf.data makes: generators like to fill one buffer again and again.
    return map_leaves(_copied, as_arrays(element))


def _copied(leaf: Any) -> Any:
    return leaf if isinstance(leaf, bytes) or is_composite(leaf) else np.array(leaf)[()]


class _Check:
    """Turns what a generator yields into arrays of the promised dtypes, and holds it to the promised shapes."""

    def __init__(self, signature: Tree) -> None:
        specs, self._structure = flatten(signature)
        self._specs = [TensorSpec.of(spec) for spec in specs]
        self._names = component_names(signature)

    def __call__(self, element: Any) -> Tree:
        try:
            values = self._structure.flatten_up_to(element)
        except ValueError as error:
            raise InputError(
                f"The generator yielded an element unlike its output_signature: {error}.",
                "Yield the same tuples and dicts as output_signature has.",
            ) from None
        arrays = [self._convert(k, value) for k, value in enumerate(values)]
        return self._structure.unflatten(arrays)

    def _convert(self, k: int, value: Any) -> np.ndarray:
        spec = self._specs[k]
        if is_composite(value):
            return value
        try:
            array = np.array(encoded(value) if spec.dtype.hasobject else value, spec.dtype)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"The generator yielded a component {self._names[k]} that is not an array of {spec.dtype}: {error}.",
                "Correct the dtype in output_signature, or the values that the generator yields.",
            ) from None
        if not spec.admits(array.shape):
            raise InputError(
                f"The generator yielded component {self._names[k]} of shape {array.shape}; "
                f"its output_signature says {spec.shape}.",
                "Correct output_signature (None stands for a size that varies), or the values that the generator "
                "yields.",
            )
        return array[()]
