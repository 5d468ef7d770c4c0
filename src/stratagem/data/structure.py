"""Trees of arrays, nested the way tf.data nests an element: tuples, dicts and None are structure, lists are values.

The trees are `optree`'s (Keras depends on it, and it flattens in C++). Two shapes of data are told apart: an
*element* is one tree of arrays, *columns* are one tree of arrays whose leading axis counts elements.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optree

from stratagem.core.eager import EagerArray
from stratagem.core.errors import InputError

Tree = Any
"""A tree of arrays. Python cannot spell the type; the leaves are `numpy.ndarray`, NumPy scalars, or bytes.

Bytes stay Python's own objects, in columns of dtype `object`: NumPy's byte strings lose the zeros at their end.
"""


class Composite:
    """A component that is no plain array: a dataset in a window, a ragged or sparse tensor.

    It stays what it is on its way through a pipeline. One with rows answers `shape`, `take`, `[rows]` and `iter` as
    arrays do.
    """

    @property
    def component_spec(self) -> Any:
        """What stands for it in a tree of `TensorSpec`."""
        raise NotImplementedError

    @classmethod
    def stacked(cls, elements: Sequence[Any]) -> Any:
        """Return such components (at least one) joined along a new leading axis."""
        raise elements[0].refused_in_batch()

    @classmethod
    def joined(cls, parts: Sequence[Any]) -> Any:
        """Return the rows of such components (at least one) one after another."""
        raise parts[0].refused_in_batch()

    def dense(self, default_value: Any = None) -> Any:
        """Return one array that holds all, and a value elsewhere; None for zero and b""."""
        raise self.refused_in_batch()

    def refused_in_batch(self) -> InputError:
        """Return the error for a use as an array."""
        raise NotImplementedError


def _is_value(node: Any) -> bool:
    return isinstance(node, list)


def flatten(tree: Tree) -> tuple[list[Any], optree.PyTreeSpec]:
    """Return the leaves of `tree` and its structure. A list is a leaf, None has no leaf."""
    return optree.tree_flatten(tree, is_leaf=_is_value)


def map_leaves(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Return `tree` with `function` applied to its leaves, and to those at the same place in `others`."""
    return optree.tree_map(function, tree, *others, is_leaf=_is_value)


def component_names(tree: Tree) -> list[str]:
    """Return how a person writes each leaf: `[0]`, `['image']`, `[1]['mask']`; `element` when there is only one.

    Example:
        >>> component_names(({"a": 1, "b": 2}, 3))
        ["[0]['a']", "[0]['b']", '[1]']
        >>> component_names(7)
        ['element']
    """
    paths = optree.tree_paths(tree, is_leaf=_is_value)
    return ["".join(f"[{step!r}]" for step in path) or "element" for path in paths]


def as_array(value: Any) -> Any:
    """Return `value` as NumPy: an array, or a NumPy scalar left as it is.

    Python numbers, and lists of them, become float32 and int32 as in TensorFlow (int64 where int32 is too small).
    Whatever has a dtype keeps it: arrays of NumPy, JAX, pandas, PyTorch, TensorFlow. Text becomes bytes, in arrays of
    dtype `object`.

    A sparse matrix of SciPy is left as it is; its rows become dense when they are read. One of JAX becomes dense.

    Args:
        value: An array, a number, text, or a list of them.

    Raises:
        InputError: The value has no regular shape.
    """
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, np.ndarray):
        return as_texts(np.asarray(value))  # no subclass
    if isinstance(value, np.generic | bytes | Composite) or is_sparse(value):
        return value
    if hasattr(value, "todense"):
        value = value.todense()
    if isinstance(_first(value), bytes):
        return np.array(value, object)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError(
            f"A list could not be converted to an array: {error}.",
            "Make all rows of the list equally long, or use Dataset.from_generator.",
        ) from None
    if not _holds_python_numbers(value):
        return as_texts(array)
    if array.dtype == np.float64:
        return array.astype(np.float32)
    narrow = np.iinfo(np.int32)
    if array.dtype == np.int64 and narrow.min <= array.min() and array.max() <= narrow.max:
        return array.astype(np.int32)
    return array


def as_texts(array: np.ndarray) -> np.ndarray:
    """Return an array with text as TensorFlow holds it, as bytes in an array of objects; other arrays as they are."""
    holds_str = array.dtype.hasobject and any(isinstance(item, str) for item in array.flat)
    return np.asarray(encoded(array), object) if holds_str or array.dtype.kind in "US" else array


def is_sparse(value: Any) -> bool:
    """Whether `value` is a sparse matrix of SciPy, which need not be installed."""
    return hasattr(value, "tocsr")


def _first(value: Any) -> Any:
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return value


def _holds_python_numbers(value: Any) -> bool:
    value = _first(value)
    # An empty list becomes float32, as in TensorFlow. numpy.float64 is a Python float too, but knows its dtype.
    return isinstance(value, int | float | list) and not isinstance(value, np.generic)


def as_arrays(tree: Tree) -> Tree:
    """Return `tree` with every leaf as NumPy (see `as_array`)."""
    leaves, structure = flatten(tree)
    return structure.unflatten([as_array(leaf) for leaf in leaves])


def stack(elements: Sequence[Tree]) -> Tree:
    """Join elements along a new leading axis.

    Args:
        elements: At least one element; all of the same structure and shapes.

    Returns:
        Columns of `len(elements)` rows.

    Raises:
        InputError: The elements differ in structure or shape; the message names the component and the shapes.
    """
    flat = [optree.tree_flatten(element) for element in elements]
    structure = flat[0][1]
    for element, (_, other) in zip(elements, flat, strict=True):
        if other != structure:
            raise InputError(
                f"Elements of one batch are built differently: one has {', '.join(component_names(elements[0]))}, "
                f"another {', '.join(component_names(element))}.",
                "Let the function or generator return the same tuples and dicts for every element.",
            )
    columns = []
    for place, column in enumerate(zip(*(leaves for leaves, _ in flat), strict=True)):
        if isinstance(column[0], bytes):
            columns.append(objects(column))
            continue
        if isinstance(column[0], Composite):
            columns.append(column[0].stacked(column))
            continue
        shapes = {array.shape for array in column}
        if len(shapes) > 1:
            raise InputError(
                f"Component {component_names(elements[0])[place]} has elements of shapes "
                f"{' and '.join(map(str, sorted(shapes)))}.",
                "Elements of different shapes cannot be joined into one batch.",
                "Pad or crop the elements to one shape with dataset.map(...) before batch().",
            )
        # Not np.stack, which makes a view per array first: 128 images of 28x28 take 25 us here, 42 us there.
        columns.append(np.array(column))
    return structure.unflatten(columns)


def eager(element: Tree) -> Tree:
    """Return `element` with `.numpy()` on its arrays: what `for x, y in dataset` yields."""
    return map_leaves(_eager, element)


def _eager(leaf: Any) -> Any:
    if isinstance(leaf, Composite):
        return leaf
    return np.asarray(leaf, object if isinstance(leaf, bytes) else None).view(EagerArray)


def objects(items: Sequence[Any]) -> np.ndarray:
    """Return a vector of objects. NumPy itself would take a sequence of arrays or tuples apart."""
    out = np.empty(len(items), object)
    for place, item in enumerate(items):
        out[place] = item
    return out


def encoded(texts: Any) -> Any:
    """Return text as TensorFlow holds it, as UTF-8 in bytes; bytes stay as they are.

    Args:
        texts: A str, bytes, or an array or list of them.

    Example:
        >>> encoded("text"), encoded([b"a", "b"])
        (b'text', array([b'a', b'b'], dtype=object))
    """
    array = np.array(texts, object)
    items = [text.encode() if isinstance(text, str) else text for text in array.flat]
    return objects(items).reshape(array.shape)[()]


def unstack(columns: Tree) -> list[Tree]:
    """Return the elements that `columns` hold; the arrays are views, scalars are NumPy scalars or bytes."""
    leaves, structure = flatten(columns)
    return [structure.unflatten(row) for row in zip(*leaves, strict=True)]


def joined(columns: Tree) -> Tree:
    """Return columns in which lists of different lengths, which files hold as one array each, are joined too.

    Raises:
        InputError: They differ in length.
    """
    leaves = optree.tree_leaves(columns)  # not `flatten`, which asks each node if it is a list: columns hold none
    apart = any(leaf.dtype.hasobject and len(leaf) and isinstance(leaf[0], np.ndarray) for leaf in leaves)
    return stack(unstack(columns)) if apart else columns


def by_part(part: np.ndarray, place: np.ndarray) -> tuple[list[int], list[np.ndarray], np.ndarray]:
    """Group rows that lie in several parts.

    Args:
        part: For each row, the number of its part.
        place: For each row, its position in that part.

    Returns:
        The numbers of the parts that have rows; for each of these the positions of its rows; and for each row, where
        it comes when the parts' rows stand one after another.

    Example:
        >>> numbers, places, order = by_part(np.array([7, 3, 7]), np.array([10, 11, 12]))
        >>> numbers, [list(map(int, each)) for each in places], order.tolist()
        ([3, 7], [[11], [10, 12]], [1, 0, 2])
    """
    # One sort, not a search for each part: the pool of a shuffle may come from a thousand files.
    rows = np.argsort(part, kind="stable")
    numbers, starts = np.unique(part[rows], return_index=True)
    order = np.empty_like(rows)
    order[rows] = np.arange(len(rows))
    place, edges = place[rows], [*starts.tolist(), len(rows)]
    return numbers.tolist(), [place[first:last] for first, last in itertools.pairwise(edges)], order


def common_length(columns: Tree, found: str, remedy: str) -> int:
    """Return the length of the leading axis that arrays share.

    Args:
        columns: A tree of arrays, or of anything with a shape.
        found: What to say where they share none, without the end of the sentence.
        remedy: What to do then.

    Raises:
        InputError: They share none; or there is no array.
    """
    leaves = flatten(columns)[0]
    for leaf in leaves:
        if isinstance(leaf, Composite) and not hasattr(leaf, "shape"):
            raise leaf.refused_in_batch()
    shapes = [leaf.shape for leaf in leaves]
    if len({shape[:1] for shape in shapes}) == 1 and shapes[0]:
        return shapes[0][0]
    said = ", ".join(f"{name} {shape}" for name, shape in zip(component_names(columns), shapes, strict=True))
    raise InputError(f"{found}; their shapes are: {said or 'none'}.", remedy)


def without_rows(columns: Tree) -> Tree:
    """Return columns of the same shapes and dtypes with no row."""
    return map_leaves(no_rows_of, columns)


def no_rows_of(leaf: Any) -> Any:
    """Return an array, or a component with rows, that is like another and has no row."""
    return leaf[:0] if is_composite(leaf) else np.empty((0, *leaf.shape[1:]), leaf.dtype)


def joined_rows(*leaves: Any) -> Any:
    """Return the rows of arrays, or of components with rows, one after another."""
    first = leaves[0]
    return first.joined(leaves) if isinstance(first, Composite) else np.concatenate(leaves)


def is_composite(leaf: object) -> bool:
    """Whether a component is no plain array."""
    return isinstance(leaf, Composite)
