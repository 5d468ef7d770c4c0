"""Operations of a dataset whose elements depend on those before them, and windows: a base class of `Dataset`.

Every worker reads all elements of these operations, in order: where the next element stands depends on the last one.
Functions of the user are therefore called on every worker, and must do the same there.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self, cast

import numpy as np

from stratagem.core.errors import InputError
from stratagem.data import check
from stratagem.data.buckets import Buckets
from stratagem.data.nodes import Node
from stratagem.data.ragged_batch import RaggedBatched
from stratagem.data.stateful import Counted, IgnoreErrors, Resample, Scan, TakeWhile, Unique, shares
from stratagem.data.structure import Tree, eager
from stratagem.data.transforms import Batched, Unbatch, in_element_function
from stratagem.data.windows import GroupByWindow, Rebatched, Window, only_element


class Operations(ABC):
    """The operations that read in order. `name` is accepted as in tf.data, and has no effect."""

    _node: Node

    @abstractmethod
    def _then(self, node: Node) -> Self:
        """Return the dataset whose last step is this one."""

    def scan(
        self, initial_state: Any, scan_func: Callable[[Any, Any], tuple[Any, Any]], name: str | None = None
    ) -> Self:
        """Make each element from the one of this dataset and from a state, which goes from element to element.

        Each pass and each repetition begins with `initial_state`.

        Args:
            initial_state: An array or a tree of them.
            scan_func: Called with the state and an element (a tuple as one argument); returns the next state, of the
                same dtypes, and the new element.
            name: Accepted as in tf.data.

        Raises:
            InputError: While reading: the function returned something else.

        Example:
            >>> from stratagem.data import Dataset
            >>> sums = Dataset.range(1, 5).scan(np.int64(0), lambda state, x: (state + x, state + x))
            >>> [int(x) for x in sums]
            [1, 3, 6, 10]
        """
        return self._then(Scan(self._node, initial_state, check.function("scan_func", scan_func)))

    def take_while(self, predicate: Callable[..., Any], name: str | None = None) -> Self:
        """Keep the elements before the first for which `predicate` returns False.

        Args:
            predicate: Takes an element as in `map`, returns one boolean.
            name: Accepted as in tf.data.

        Example:
            >>> from stratagem.data import Dataset
            >>> [int(x) for x in Dataset.range(9).take_while(lambda x: x < 3)]
            [0, 1, 2]
        """
        return self._then(TakeWhile(self._node, check.function("predicate", predicate)))

    def unique(self, name: str | None = None) -> Self:
        """Leave out elements that came before in the pass. Those that came are kept in memory.

        Raises:
            InputError: While reading: an element is not one component of int32, int64 or text.

        Example:
            >>> from stratagem.data import Dataset
            >>> [int(x) for x in Dataset.from_tensor_slices([1, 37, 2, 37, 2, 1]).unique()]
            [1, 37, 2]
        """
        return self._then(Unique([self._node]))

    def ignore_errors(self, log_warning: bool = False, name: str | None = None) -> Self:
        """Leave out elements that cannot be read: a function of the user raised, or a record is damaged.

        Args:
            log_warning: Whether the log names each error.
            name: Accepted as in tf.data.

        Raises:
            InputError: While reading: a thousand errors came in a row without an element, as for a missing file.

        Example:
            >>> from stratagem.data import Dataset
            >>> [int(x) for x in Dataset.range(-1, 3).map(lambda x: 12 // int(x)).ignore_errors()]
            [-12, 12, 6]
        """
        return self._then(IgnoreErrors(self._node, log_warning))

    def assert_cardinality(self, expected_cardinality: int) -> Self:
        """Hold the dataset to its number of elements (`tf.data.experimental.assert_cardinality`).

        `fit` then knows how long an epoch is, also of a generator.

        Args:
            expected_cardinality: How many elements there are; `INFINITE_CARDINALITY` for no end.

        Raises:
            InputError: The dataset is known to have another number. While reading: the pass has another number.

        Example:
            >>> from stratagem.data import Dataset
            >>> len(Dataset.range(6).filter(lambda x: x % 2 == 0).assert_cardinality(3))
            3
        """
        expected = check.integer("expected_cardinality", expected_cardinality, -1, "Write how many, or -1 for no end.")
        found = self._node.cardinality()
        if found not in (expected, -2):
            raise InputError(
                f"The dataset has {found} elements, but assert_cardinality({expected}) was called.",
                "Epochs would not have the length that the program expects.",
                "Correct the number, or leave the line out. Stratagem finds the sizes of files without it.",
            )
        return self._then(Counted(self._node, expected))

    def rejection_resample(
        self,
        class_func: Callable[..., Any],
        target_dist: Any,
        initial_dist: Any = None,
        seed: int | None = None,
        name: str | None = None,
    ) -> Self:
        """Leave out elements at random, so that classes come as often as wanted; pairs of a class and an element.

        TensorFlow leaves out fewer, for which it reads the data twice and takes some elements twice. Which elements
        come is therefore other than there, also with a seed.

        Args:
            class_func: Takes an element as in `map`, returns its class, a whole number from 0.
            target_dist: The share of each class that is wanted; they sum to 1.
            initial_dist: Its share in the data. None estimates it while reading.
            seed: Makes the choice reproducible; None draws a seed now (see `shuffle`).
            name: Accepted as in tf.data.

        Raises:
            InputError: The shares do not sum to 1. While reading: a class is not one of those.

        Example:
            >>> from stratagem.data import Dataset
            >>> zeros = Dataset.range(100).rejection_resample(lambda x: x % 2, [1.0, 0.0], [0.5, 0.5])
            >>> {int(label) for label, _ in zeros}
            {0}
        """
        target = shares("target_dist", target_dist)
        initial = None if initial_dist is None else shares("initial_dist", initial_dist)
        if initial is not None and (len(initial) != len(target) or (target[initial == 0] > 0).any()):
            raise InputError(
                f"target_dist is {target.tolist()}, initial_dist {initial.tolist()}.",
                "Resampling leaves elements out, so it cannot produce a class that the data does not have.",
                "Write one share for each class in both, and target_dist 0 where initial_dist is 0.",
            )
        seed = None if seed is None else check.integer("seed", seed, None, "Write an integer, or None.")
        return self._then(Resample(self._node, check.function("class_func", class_func), target, initial, seed))

    def window(
        self,
        size: int,
        shift: int | None = None,
        stride: int = 1,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Self:
        """Make windows of consecutive elements, each a dataset; of tuples or dicts, one dataset for each component.

        Windows of an array without copies: `from_tensor_slices` of `numpy.lib.stride_tricks.sliding_window_view`.

        Args:
            size: Elements of a window.
            shift: By how many elements a window begins behind the one before; None means `size`.
            stride: How far apart the elements of a window are.
            drop_remainder: Whether to leave out windows with fewer elements, at the end.
            name: Accepted as in tf.data.

        Raises:
            InputError: A number is below 1. While reading: the windows were batched; use `flat_map` first.

        Example:
            >>> from stratagem.data import Dataset
            >>> windows = Dataset.range(5).window(3, shift=1, drop_remainder=True)
            >>> [window.tolist() for window in windows.flat_map(lambda window: window.batch(3))]
            [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
        """
        elements = check.integer("size", size, 1, "Write the number of elements of a window.")
        further = check.integer(
            "shift", size if shift is None else shift, 1, "Write the distance between the beginnings of two windows."
        )
        apart = check.integer("stride", stride, 1, "Write the distance between two elements of a window, such as 1.")
        return self._then(Window(self._node, elements, further, apart, bool(drop_remainder), self._then))

    def group_by_window(
        self,
        key_func: Callable[..., Any],
        reduce_func: Callable[[Any, Self], Any],
        window_size: int | None = None,
        window_size_func: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ) -> Self:
        """Gather elements with the same key, and make a dataset of each group as soon as it is full.

        At the end come the groups that are not full, in the order of their keys.

        Args:
            key_func: Takes an element as in `map`, returns its key, a whole number.
            reduce_func: Takes a key and the dataset of the elements, returns a dataset, such as `elements.batch(n)`.
            window_size: Elements of a full group.
            window_size_func: Takes a key, returns that number; instead of `window_size`.
            name: Accepted as in tf.data.

        Raises:
            InputError: Neither or both ways of giving the size are used. While reading: a function returned something
                else.

        Example:
            >>> from stratagem.data import Dataset
            >>> groups = Dataset.range(10).group_by_window(lambda x: x % 2, lambda key, x: x.batch(3), window_size=3)
            >>> [group.tolist() for group in groups]
            [[0, 2, 4], [1, 3, 5], [6, 8], [7, 9]]
        """
        if (window_size is None) == (window_size_func is None):
            raise InputError(
                f"window_size is {window_size!r}, window_size_func is {window_size_func!r}.", "Write one of them."
            )
        sizes = (lambda _: window_size) if window_size_func is None else window_size_func
        reduced = functools.partial(self._reduced, check.function("reduce_func", reduce_func))
        return self._then(GroupByWindow(self._node, check.function("key_func", key_func), reduced, _size(sizes)))

    def _reduced(self, function: Callable[[Any, Self], Any], key: np.int64, rows: Node) -> Node:
        return self._checked("reduce_func", function(key, self._then(rows)))._node

    def _checked(self, function: str, dataset: Any) -> Self:
        """Return what a function of the user made, which must be a dataset."""
        if not isinstance(dataset, Operations):
            raise InputError(
                f"{function} returned {type(dataset).__name__}.", "Return a dataset, such as elements.batch(n)."
            )
        return cast(Self, dataset)

    def bucket_by_sequence_length(
        self,
        element_length_func: Callable[..., Any],
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int],
        padded_shapes: Any = None,
        padding_values: Any = None,
        pad_to_bucket_boundary: bool = False,
        no_padding: bool = False,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Self:
        """Join elements of similar length to batches. XLA compiles a step for each shape: few buckets are fast.

        Args:
            element_length_func: Takes an element as in `map`, returns its length.
            bucket_boundaries: Lengths at which the next bucket begins, increasing.
            bucket_batch_sizes: Elements of a batch of each bucket: one more than there are boundaries.
            padded_shapes: See `padded_batch`.
            padding_values: See `padded_batch`.
            pad_to_bucket_boundary: Whether to fill up sizes that are None to the bucket's boundary - 1, rather than to
                the longest of the batch. So there are few shapes. Every length must then be below the last boundary.
            no_padding: Whether not to fill up: all elements of a batch have one shape.
            drop_remainder: Whether to leave out batches that are not full, at the end.
            name: Accepted as in tf.data.

        Raises:
            InputError: The numbers do not fit together. While reading: a length is beyond the last boundary.

        Example:
            >>> from stratagem.data import Dataset
            >>> words = Dataset.range(1, 6).map(lambda n: np.full(n, n))
            >>> [batch.shape for batch in words.bucket_by_sequence_length(len, [3], [2, 2])]
            [(2, 2), (2, 4), (1, 5)]
        """
        buckets = Buckets(
            check.function("element_length_func", element_length_func),
            bucket_boundaries,
            bucket_batch_sizes,
            padded_shapes,
            padding_values,
            pad_to_bucket_boundary,
            no_padding,
            drop_remainder,
        )
        buckets.check()
        return self.group_by_window(buckets.number, buckets.batches, window_size_func=buckets.size)

    def rebatch(self, batch_size: int | Sequence[int], drop_remainder: bool = False, name: str | None = None) -> Self:
        """Cut batches anew.

        Args:
            batch_size: Elements in a batch; of several sizes each in turn.
            drop_remainder: Whether to leave out a last batch that is not full.
            name: Accepted as in tf.data.

        Raises:
            InputError: A size is below 1.

        Example:
            >>> from stratagem.data import Dataset
            >>> [batch.tolist() for batch in Dataset.range(8).batch(4).rebatch([2, 1])]
            [[0, 1], [2], [3, 4], [5], [6, 7]]
        """
        given: Any = batch_size if np.ndim(batch_size) else [batch_size]
        sizes = [check.integer("batch_size", size, 1, "Write the number of elements of a batch.") for size in given]
        return self._then(Rebatched(Unbatch([self._node]), sizes, bool(drop_remainder)))

    def ragged_batch(
        self, batch_size: int, drop_remainder: bool = False, row_splits_dtype: Any = None, name: str | None = None
    ) -> Self:
        """Join consecutive elements whose first sizes differ; `to_tensor()` of what comes fills them up.

        Components of one known shape become arrays as in `batch`. No step of training takes ragged rows: write
        `map(lambda batch: batch.to_tensor())` behind it. Every worker reads all rows of a batch.

        Args:
            batch_size: Elements in a batch.
            drop_remainder: Whether to leave out a last batch that is not full.
            row_splits_dtype: Accepted as in tf.data, without effect.
            name: Accepted as in tf.data.

        Raises:
            InputError: `batch_size` is below 1. While reading: elements differ in another size than the first.

        Example:
            >>> from stratagem.data import Dataset
            >>> rows = Dataset.range(1, 4).map(lambda n: np.full(n, n)).ragged_batch(2)
            >>> [batch.to_list() for batch in rows]
            [[[1], [2, 2]], [[3, 3, 3]]]
        """
        size = check.integer("batch_size", batch_size, 1, "Write the number of elements of a batch.")
        return self._then(RaggedBatched(Batched(self._node, size, bool(drop_remainder))))

    def get_single_element(self, name: str | None = None) -> Tree:
        """Return the only element: an array or a tree of them.

        Raises:
            InputError: There is none, or there are several.

        Example:
            >>> from stratagem.data import Dataset
            >>> Dataset.range(3).batch(3).get_single_element().tolist()
            [0, 1, 2]
        """
        element = only_element(self._node, (0,))
        return element if in_element_function() else eager(element)


def _size(function: Callable[[Any], Any]) -> Callable[[np.int64], int]:
    checked = check.function("window_size_func", function)
    return lambda key: check.integer(
        "window_size", np.asarray(checked(key)).tolist(), 1, "Write the number of elements of a group."
    )
