"""`Dataset`: the operations of tf.data. Each adds a step, which is defined in a module beside this one.

The file is long because every public operation has its arguments, errors and a tested example here.
"""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self, cast

import numpy as np

from stratagem.core.advancing import becomes_constant
from stratagem.core.cores import available_cores
from stratagem.core.errors import InputError, explain
from stratagem.data import batches as _batches
from stratagem.data import check, input_advice
from stratagem.data.cache import Cache
from stratagem.data.files import saved
from stratagem.data.files.names import FileList, matching_files
from stratagem.data.files.source import FileStep
from stratagem.data.interleave import DEFAULT_CYCLE_LENGTH, Interleave
from stratagem.data.missing_methods import absent
from stratagem.data.nodes import Node, Stream, drawn_apart, elements_of, rewrite, walk
from stratagem.data.one_shot import OneShotIterator
from stratagem.data.options import AUTOTUNE, Options
from stratagem.data.processes.readers import ReaderPool
from stratagem.data.sequence import (
    SHARD_HINT,
    Choose,
    Concatenate,
    Every,
    RandomBits,
    RandomNumbers,
    Repeat,
    Shard,
    Take,
    Zip,
)
from stratagem.data.shuffle import Shuffle
from stratagem.data.sources import ArraySource, Counter, Generated, Indexed, ObjectSource, RangeSource
from stratagem.data.specs import DatasetSpec, TensorSpec, datasets_in_batch, signature_of
from stratagem.data.storing import Storing
from stratagem.data.structure import Composite, Tree, as_array, as_arrays, eager, flatten, map_leaves, stack
from stratagem.data.transforms import Batched, Filter, Map, Padded, Padding, Unbatch, call, name_of


def _calls_at_once(num_parallel_calls: int | None) -> int:
    if num_parallel_calls == AUTOTUNE:
        return available_cores()
    remedy = "Write how many batches may be read at the same time, or stratagem.data.AUTOTUNE."
    return 1 if num_parallel_calls is None else check.integer("num_parallel_calls", num_parallel_calls, 1, remedy)


class Cardinality(int):
    """A number of elements that also answers `.numpy()`."""

    def numpy(self) -> np.int64:
        """Return the number as NumPy's int64 (`tf.Tensor.numpy`)."""
        return np.int64(self)


class LengthError(InputError, TypeError):
    """The dataset has no length. A TypeError, because `list(dataset)` asks for the length and expects that."""


class Dataset(Storing, Composite):
    """Elements in a fixed order, read when asked for (`tf.data.Dataset`).

    An element is a tree of arrays: tuples and dicts nest, lists become arrays. A dataset is immutable: every operation
    returns a new one. Reading it again starts from the beginning. Its order depends on the dataset, its seeds and the
    iteration (how often it was read before), never on the number of workers.

    To make a dataset, use `from_tensor_slices`, `from_tensors`, `from_source`, `from_generator`, `range` or `zip`. The
    argument `name` of operations has no effect.

    Example:
        >>> dataset = Dataset.from_tensor_slices(([1, 2, 3], [4.0, 5.0, 6.0])).batch(2)
        >>> for x, y in dataset:
        ...     print(x.numpy(), y.numpy())
        [1 2] [4. 5.]
        [3] [6.]
    """

    def __init__(self, node: Node, options: Options) -> None:
        self._node = node
        self._options = options
        self._iterations = 0

    # ------------------------------------------------------------------ sources

    @staticmethod
    def from_tensor_slices(tensors: Any, name: str | None = None) -> Dataset:
        """Make a dataset of the slices of arrays along their first axis.

        Args:
            tensors: An array or a tree of arrays, all of shape (n, ...): NumPy, JAX, pandas, lists. They are not
                copied, so do not change them.
            name: Accepted as in tf.data.

        Raises:
            InputError: The first axes differ in length, or an array has none.

        Example:
            >>> list(Dataset.from_tensor_slices({"a": [1, 2], "b": [3, 4]}).as_numpy_iterator())
            [{'a': np.int32(1), 'b': np.int32(3)}, {'a': np.int32(2), 'b': np.int32(4)}]
        """
        return Dataset(Indexed(ArraySource(tensors)), Options())

    @staticmethod
    def from_tensors(tensors: Any, name: str | None = None) -> Dataset:
        """Make a dataset of one element.

        Args:
            tensors: The element: an array or a tree of arrays.
            name: Accepted as in tf.data.

        Example:
            >>> list(Dataset.from_tensors([1, 2]).as_numpy_iterator())
            [array([1, 2], dtype=int32)]
        """
        element = as_arrays(tensors)
        return Dataset(Indexed(ArraySource(stack([element]))), Options())

    @staticmethod
    def from_generator(
        generator: Callable[..., Iterable[Any]],
        output_types: Any = None,
        output_shapes: Any = None,
        args: tuple[Any, ...] | None = None,
        output_signature: Any = None,
        name: str | None = None,
    ) -> Dataset:
        """Make a dataset of the elements that a generator yields.

        Every worker runs the generator and keeps its own rows, so it must yield the same on all of them.

        Args:
            generator: Function that returns an iterable of elements; called anew for every pass.
            output_types: Tree of dtypes; elements are converted to them.
            output_shapes: Tree of shapes to go with `output_types`; None in a shape stands for any size.
            args: Arguments for `generator`, given as arrays.
            output_signature: Tree of `TensorSpec`, in place of the two above. If nothing is given, the first element
                decides (TensorFlow requires a signature).
            name: Accepted as in tf.data.

        Raises:
            InputError: `generator` is not callable, or both forms of the signature are given. While reading: an element
                does not fit the signature.

        Example:
            >>> dataset = Dataset.from_generator(lambda: iter([1, 2]), output_signature=TensorSpec((), "int64"))
            >>> list(dataset.as_numpy_iterator())
            [np.int64(1), np.int64(2)]
        """
        if not callable(generator):
            raise InputError(
                f"generator is {type(generator).__name__}, which cannot be called.",
                "It would be used up before the second pass over the data.",
                "Give the function that makes the generator, without calling it: from_generator(make_examples).",
            )
        if output_signature is not None and (output_types is not None or output_shapes is not None):
            raise InputError(
                "Both output_signature and output_types or output_shapes are given.", "Give output_signature alone."
            )
        if output_types is not None:
            output_signature = signature_of(output_types, output_shapes)
        elif output_signature is not None:
            output_signature = map_leaves(TensorSpec.of, output_signature)
        arrays = tuple(as_array(argument) for argument in args or ())
        return Dataset(Generated(generator, arrays, output_signature), Options())

    @staticmethod
    def from_source(source: Any) -> Dataset:
        """Make a dataset of an object with `__len__` and `__getitem__`.

        Examples are Hugging Face datasets (`dataset.with_format("numpy")`), map-style datasets of torch and
        random-access sources of Grain. Each worker reads only the elements that it needs. TensorFlow has no
        counterpart.

        Args:
            source: Object with `__len__` and `__getitem__(int)`. If it has `__getitems__(list)`, that is called
                instead. Several threads may call it at once. An element is a tree of arrays or numbers.

        Raises:
            InputError: The object has no length or no `__getitem__`.

        Example:
            >>> list(Dataset.from_source("ab").map(ord).batch(2).as_numpy_iterator())
            [array([97, 98], dtype=int32)]
        """
        return Dataset(Indexed(ObjectSource(source)), Options())

    @staticmethod
    def range(*args: int, output_type: Any = np.int64, name: str | None = None) -> Dataset:
        """Make a dataset of the numbers of Python's `range`: `range(stop)`, `range(start, stop[, step])`.

        Args:
            *args: The integers.
            output_type: Dtype of the numbers.
            name: Accepted as in tf.data.

        Example:
            >>> list(Dataset.range(1, 7, 2).as_numpy_iterator())
            [np.int64(1), np.int64(3), np.int64(5)]
        """
        try:
            numbers = range(*(operator.index(arg) for arg in args))
        except (TypeError, ValueError) as error:
            raise InputError(
                f"Dataset.range got {args}: {error}.",
                "Write range(stop), range(start, stop) or range(start, stop, step) with integers.",
            ) from None
        return Dataset(Indexed(RangeSource(numbers.start, numbers.step, len(numbers), output_type)), Options())

    @staticmethod
    def counter(start: int = 0, step: int = 1, dtype: Any = np.int64, name: str | None = None) -> Dataset:
        """Make an endless dataset of numbers.

        Example:
            >>> [int(x) for x in Dataset.counter(5, 2).take(3)]
            [5, 7, 9]
        """
        remedy = "Write an integer, such as 1."
        first, further = check.integer("start", start, None, remedy), check.integer("step", step, None, remedy)
        return Dataset(Counter(first, further, dtype), Options())

    @staticmethod
    def random(
        seed: int | None = None, rerandomize_each_iteration: bool | None = None, name: str | None = None
    ) -> Dataset:
        """Make an endless dataset of random int64 numbers from 0 to 2**32 - 1; they are not TensorFlow's.

        Args:
            seed: Makes the numbers reproducible; None draws a seed now (see `shuffle`).
            rerandomize_each_iteration: Whether each iteration and each repetition has new numbers.
            name: Accepted as in tf.data.

        Example:
            >>> all(0 <= int(x) < 2**32 for x in Dataset.random(seed=1).take(5))
            True
        """
        seed = None if seed is None else check.integer("seed", seed, None, "Write an integer, or None.")
        return Dataset(RandomBits(seed, bool(rerandomize_each_iteration)), Options())

    @staticmethod
    def load(
        path: Any,
        element_spec: Any = None,
        compression: str | None = None,
        reader_func: Callable[[Dataset], Dataset] | None = None,
        wait: bool = False,
    ) -> Dataset:
        """Make a dataset of a folder that `save` wrote. A worker reads only the rows that it needs.

        Args:
            path: The folder.
            element_spec: Accepted as in tf.data; the file contains it.
            compression: Accepted as in tf.data; the file contains it.
            reader_func: Function of a dataset with one dataset as element; it returns a dataset.
            wait: Accepted as in tf.data. There another program may still write; here no file appears before it is
                complete.

        Raises:
            InputError: The folder contains nothing that `save` wrote. While reading: it is damaged.

        Example:
            >>> folder = getfixture("tmp_path") / "numbers"
            >>> Dataset.range(3).map(lambda x: x * 10).save(folder)
            >>> [int(x) for x in Dataset.load(folder)]
            [0, 10, 20]
        """
        return Dataset(saved.reading(saved.saved_in(path)), Options())._read_by(reader_func)

    @staticmethod
    def list_files(
        file_pattern: Any, shuffle: bool | None = None, seed: int | None = None, name: str | None = None
    ) -> Dataset:
        """Make a dataset of the names of the files that match a pattern, as bytes.

        Unlike tf.data, the files are looked up at this call, and a file that matches two patterns comes once.

        Args:
            file_pattern: A pattern with `*`, `?` and `[...]` (which also match a leading dot), or a list of patterns.
            shuffle: Whether each iteration has a new random order. None means yes; otherwise the names are sorted.
            seed: Makes the random order reproducible (see `shuffle`).
            name: Accepted as in tf.data.

        Raises:
            InputError: No file matches.

        Example:
            >>> [name.decode() for name in Dataset.list_files("/et[c]", shuffle=False).as_numpy_iterator()]
            ['/etc']
        """
        files = Dataset(FileList(matching_files(file_pattern)), Options())
        return files if shuffle is not None and not shuffle else files.shuffle(len(files), seed)

    @staticmethod
    def zip(*args: Any, datasets: Any = None, name: str | None = None) -> Dataset:
        """Put the elements of several datasets side by side; the result is as long as the shortest.

        Args:
            *args: Datasets, or one tuple or dict of datasets, which may be nested.
            datasets: A tuple or dict of datasets, in place of `args`.
            name: Accepted as in tf.data.

        Raises:
            InputError: An argument is not a dataset.

        Example:
            >>> a, b = Dataset.range(3), Dataset.range(5, 8)
            >>> list(Dataset.zip(a, b).as_numpy_iterator())[0]
            (np.int64(0), np.int64(5))
        """
        args = args if datasets is None else (*args, datasets)
        leaves, structure = flatten(args[0] if len(args) == 1 else args)
        remedy = "Write Dataset.zip((a, b)) with datasets; arrays become one through Dataset.from_tensor_slices."
        nodes = _nodes("Dataset.zip", leaves, remedy)
        options = Options()
        for leaf in leaves:
            options = options.merged(leaf._options)
        return Dataset(Zip(structure, nodes), options)

    @staticmethod
    def choose_from_datasets(
        datasets: Sequence[Dataset], choice_dataset: Dataset, stop_on_empty_dataset: bool = True
    ) -> Dataset:
        """Take each element from the dataset whose number is given.

        Args:
            datasets: The datasets to choose from; their elements have the same structure.
            choice_dataset: Integers from 0 to `len(datasets) - 1`.
            stop_on_empty_dataset: Whether to end when a dataset is chosen that has ended; otherwise such a choice is
                skipped.

        Raises:
            InputError: An argument is not a dataset. While reading: a number names no dataset.

        Example:
            >>> choices = Dataset.from_tensor_slices([0, 1, 1, 0])
            >>> [int(x) for x in Dataset.choose_from_datasets([Dataset.range(3), Dataset.range(7, 9)], choices)]
            [0, 7, 8, 1]
        """
        nodes = _nodes("choose_from_datasets", [choice_dataset, *datasets])
        return Dataset(Choose(nodes[0], nodes[1:], stop_on_empty_dataset), datasets[0].options())

    @staticmethod
    def sample_from_datasets(
        datasets: Sequence[Dataset],
        weights: Sequence[float] | None = None,
        seed: int | None = None,
        stop_on_empty_dataset: bool = False,
        rerandomize_each_iteration: bool | None = True,
    ) -> Dataset:
        """Take each element from a randomly drawn dataset.

        Args:
            datasets: The datasets to draw from; their elements have the same structure.
            weights: Relative probability of each dataset; None means equal ones.
            seed: Makes the draws reproducible; None draws a seed now (see `shuffle`).
            stop_on_empty_dataset: Whether to end when a dataset is drawn that has ended; otherwise the others continue.
            rerandomize_each_iteration: Whether each iteration and each repetition has new draws.

        Raises:
            InputError: An argument is not a dataset, or `weights` do not fit.

        Example:
            >>> mixed = Dataset.sample_from_datasets([Dataset.range(3), Dataset.range(7, 9)], [0.9, 0.1], seed=1)
            >>> sorted(int(x) for x in mixed)
            [0, 1, 2, 7, 8]
        """
        nodes = _nodes("sample_from_datasets", datasets)
        weights = check.weights(weights, len(nodes))
        seed = None if seed is None else check.integer("seed", seed, None, "Write an integer, or None.")
        drawn = [(node, weight) for node, weight in zip(nodes, weights, strict=True) if weight]
        numbers = RandomNumbers([weight for _, weight in drawn], seed, rerandomize_each_iteration is not False)
        return Dataset(Choose(numbers, [node for node, _ in drawn], stop_on_empty_dataset), datasets[0].options())

    # ------------------------------------------------------------------ operations

    def _then(self, node: Node) -> Self:
        return cast(Self, Dataset(node, self._options))  # a subclass differs in its constructor alone

    def concatenate(self, dataset: Dataset, name: str | None = None) -> Dataset:
        """Append the elements of another dataset.

        Raises:
            InputError: `dataset` is not a dataset.

        Example:
            >>> list(Dataset.range(2).concatenate(Dataset.range(5, 6)).as_numpy_iterator())
            [np.int64(0), np.int64(1), np.int64(5)]
        """
        (node,) = _nodes("concatenate", [dataset])
        return Dataset(Concatenate(self._node, node), self._options.merged(dataset._options))

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        synchronous: bool | None = None,
        use_unbounded_threadpool: bool = False,
        name: str | None = None,
    ) -> Dataset:
        """Apply a function to each element.

        TensorFlow traces `map_func` once. Here it is called with NumPy values for each element, when the element is
        read, and only for this worker's rows. A tuple is spread over the arguments; any other element is one argument.
        The result becomes NumPy, so you can use functions of `keras.ops` and `jax.numpy`. Each call of those takes tens
        of microseconds, so call them on a batch: `dataset.batch(n).map(f)` calls `f` once for each whole global batch.

        Args:
            map_func: Function from element to element. A list that it returns counts as a tuple, as in tf.data.
            num_parallel_calls: Number of batches that are read at the same time, each in its own thread, if something
                reads ahead, as `fit` does. `map_func` is then called from several threads. AUTOTUNE means the number of
                cores of this process. It helps if the function leaves Python: NumPy, image decoding, files. None means
                one call at a time, in order, so that a function may have a state.
            deterministic: Accepted as in tf.data; the order never varies.
            synchronous: Accepted as in tf.data, without effect.
            use_unbounded_threadpool: Accepted as in tf.data, without effect.
            name: Accepted as in tf.data.

        Raises:
            InputError: `num_parallel_calls` is neither AUTOTUNE nor at least 1.

        Example:
            >>> list(Dataset.range(3).map(lambda x: x * 10).as_numpy_iterator())
            [np.int64(0), np.int64(10), np.int64(20)]
        """
        function = check.function("map_func", map_func)
        return self._then(Map(self._node, function, _calls_at_once(num_parallel_calls)))

    def interleave(
        self,
        map_func: Callable[..., Dataset],
        cycle_length: int | None = None,
        block_length: int | None = None,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Make a dataset from each element, such as a file name, and read several of them in turn.

        The order is that of tf.data: `block_length` elements of one dataset, then of the next. A dataset that has ended
        is replaced at its next turn. A worker reads only the rows that it needs.

        Args:
            map_func: Function of an element, as in `map`, that returns a `Dataset`. It is called once for each file
                name. A shuffle without a seed in it gets a seed that all workers share.
            cycle_length: Number of datasets to read in turn. None and `AUTOTUNE` mean 16. (tf.data uses the number of
                cores, but the order must not depend on the machine.)
            block_length: Number of elements of one dataset at a time; None means 1.
            num_parallel_calls: Number of batches that are read at the same time, as in `map`.
            deterministic: Accepted as in tf.data; the order never varies.
            name: Accepted as in tf.data.

        Raises:
            InputError: A length is below 1. While reading: `map_func` returned no dataset.

        Example:
            >>> dataset = Dataset.range(1, 4).interleave(lambda n: Dataset.from_tensors(n).repeat(3), cycle_length=2)
            >>> [int(x) for x in dataset]
            [1, 2, 1, 2, 1, 2, 3, 3, 3]
        """
        automatic = cycle_length is None or cycle_length == AUTOTUNE
        cycle = DEFAULT_CYCLE_LENGTH if automatic else cycle_length
        cycle = check.integer("cycle_length", cycle, 1, "Write how many datasets to read in turn, or None.")
        block = 1 if block_length is None else block_length
        block = check.integer("block_length", block, 1, "Write how many elements of each to read at a time.")
        part = functools.partial(_dataset_of, check.function("map_func", map_func))
        return self._then(Interleave(self._node, part, cycle, block, _calls_at_once(num_parallel_calls)))

    def flat_map(self, map_func: Callable[..., Dataset], name: str | None = None) -> Dataset:
        """Make a dataset from each element, and read them one after another (see `interleave`).

        Example:
            >>> [int(x) for x in Dataset.range(4).flat_map(lambda n: Dataset.range(n))]
            [0, 0, 1, 0, 1, 2]
        """
        return self.interleave(map_func, cycle_length=1)

    def filter(self, predicate: Callable[..., Any], name: str | None = None) -> Dataset:
        """Keep the elements for which `predicate` returns True.

        Every worker evaluates all elements, because each must know which ones remain.

        Args:
            predicate: Function of an element, as in `map`, that returns one boolean.
            name: Accepted as in tf.data.

        Example:
            >>> list(Dataset.range(6).filter(lambda x: x % 2 == 0).as_numpy_iterator())
            [np.int64(0), np.int64(2), np.int64(4)]
        """
        return self._then(Filter(self._node, check.function("predicate", predicate)))

    def shuffle(
        self,
        buffer_size: int,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = True,
        name: str | None = None,
    ) -> Dataset:
        """Put the elements into a random order by drawing from a buffer, which is refilled in order.

        The element at position i comes no earlier than position i - buffer_size + 1. If the buffer is as large as the
        dataset, every order is equally likely. The buffer holds only row numbers, unless the elements come from a
        generator, a filter or batches: then it holds the elements.

        A buffer as large as a dataset of more than a million elements needs no memory, if the elements can be read at
        any position. This holds for arrays, ranges and files, also after `map`, `zip`, `take`, `skip`, `shard`,
        `repeat`, `concatenate` and `batch`. The order is then a permutation that is computed position by position, and
        going to the middle of 10**9 elements takes milliseconds.

        Args:
            buffer_size: Number of elements to draw from.
            seed: Makes the order reproducible. None draws a seed at this call, from Python's `random`, which
                `keras.utils.set_random_seed` seeds. A strategy gives the chief's seed to all workers.
            reshuffle_each_iteration: Whether each iteration and each repetition has a new order.
            name: Accepted as in tf.data.

        Raises:
            InputError: `buffer_size` is below 1, or `seed` is not an integer.

        Example:
            >>> sorted(int(x) for x in Dataset.range(4).shuffle(4, seed=1))
            [0, 1, 2, 3]
        """
        size = check.integer("buffer_size", buffer_size, 1, "Write the number of elements to draw from, such as 10000.")
        seed = None if seed is None else check.integer("seed", seed, None, "Write an integer, or None.")
        reshuffle = reshuffle_each_iteration is None or bool(reshuffle_each_iteration)
        return self._then(Shuffle(self._node, size, seed, reshuffle))

    def repeat(self, count: int | None = None, name: str | None = None) -> Dataset:
        """Repeat the dataset; None and -1 repeat it for ever.

        `shuffle().repeat()` shuffles each repetition separately; `repeat().shuffle()` mixes repetitions.

        Example:
            >>> [int(x) for x in Dataset.range(2).repeat(2)]
            [0, 1, 0, 1]
        """
        times = -1 if count is None else check.integer("count", count, -1, "Write how often, or -1 for ever.")
        return self._then(Repeat(self._node, times))

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Join consecutive elements along a new first axis.

        For training this is the *global* batch size. Rows are read when the batch is formed, by the worker that needs
        them.

        Args:
            batch_size: Number of elements in a batch.
            drop_remainder: Whether to drop a last batch that is not full.
            num_parallel_calls: Accepted without effect; `map` sets how many batches are read at a time.
            deterministic: Accepted as in tf.data; the order never varies.
            name: Accepted as in tf.data.

        Raises:
            InputError: `batch_size` is below 1. While reading: the elements differ in shape.

        Example:
            >>> [batch.tolist() for batch in Dataset.range(5).batch(2)]
            [[0, 1], [2, 3], [4]]
        """
        size = check.integer("batch_size", batch_size, 1, "Write the number of examples in a global batch, such as 32.")
        return self._then(Batched(self._node, size, bool(drop_remainder)))

    def padded_batch(
        self,
        batch_size: int,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Dataset:
        """Join consecutive elements of different shapes along a new first axis, padded to one shape.

        If `padded_shapes` has a size for every axis, a worker reads only its rows. Otherwise the size is that of the
        largest row of the global batch, so every worker reads all rows. A new shape also compiles a new step.

        Args:
            batch_size: Number of elements in a batch.
            padded_shapes: The shape of each component, nested like an element; None or -1 means the largest of a batch.
            padding_values: The padding, one number or nested like an element; None means zero.
            drop_remainder: Whether to drop a last batch that is not full.
            name: Accepted as in tf.data.

        Raises:
            InputError: `batch_size` is below 1. While reading: an element is larger than `padded_shapes`.

        Example:
            >>> dataset = Dataset.range(1, 4).map(lambda n: np.full(n, n)).padded_batch(2)
            >>> [batch.tolist() for batch in dataset]
            [[[1, 0], [2, 2]], [[3, 3, 3]]]
        """
        batches = self.batch(batch_size, drop_remainder)._node
        size = batch_size if drop_remainder else None
        return self._then(Padded(batches, Padding(padded_shapes, padding_values), size))

    def unbatch(self, name: str | None = None) -> Dataset:
        """Split each element into its rows.

        Example:
            >>> [int(x) for x in Dataset.range(4).batch(3).unbatch()]
            [0, 1, 2, 3]
        """
        return self._then(Unbatch([self._node]))

    def take(self, count: int, name: str | None = None) -> Dataset:
        """Keep the first `count` elements; -1 keeps all.

        Example:
            >>> [int(x) for x in Dataset.range(9).take(2)]
            [0, 1]
        """
        first = check.integer("count", count, -1, "Write how many, or -1 for all.")
        return self._then(self._node if first < 0 else Take(self._node, first))

    def skip(self, count: int, name: str | None = None) -> Dataset:
        """Skip the first `count` elements; -1 skips all.

        Example:
            >>> [int(x) for x in Dataset.range(5).skip(3)]
            [3, 4]
        """
        first = check.integer("count", count, -1, "Write how many, or -1 for all.")
        return self._then(Take(self._node, 0) if first < 0 else Every(self._node, first))

    def shard(self, num_shards: int, index: int, name: str | None = None) -> Dataset:
        """Keep every `num_shards`-th element, starting with element `index`.

        You do not need this for a dataset that you give to `fit` or to a strategy.

        Args:
            num_shards: Number of parts, or `experimental.SHARD_HINT`.
            index: Index of the part, or `experimental.SHARD_HINT`.
            name: Accepted as in tf.data.

        Raises:
            InputError: `num_shards` is below 1, or `index` is not one of 0 ... num_shards - 1.

        Example:
            >>> [int(x) for x in Dataset.range(5).shard(num_shards=2, index=1)]
            [1, 3]
        """
        if not num_shards == index == SHARD_HINT:
            check.shard(num_shards, index)
        return self._then(Shard(self._node, int(num_shards), int(index)))

    def enumerate(self, start: int = 0, name: str | None = None) -> Dataset:
        """Number the elements: each becomes `(number, element)`, the number an int64.

        Example:
            >>> list(Dataset.range(7, 9).enumerate(start=1).as_numpy_iterator())
            [(np.int64(1), np.int64(7)), (np.int64(2), np.int64(8))]
        """
        first = check.integer("start", start, None, "Write the first number, such as 0.")
        numbers = Dataset.range(first, first + 2**62)
        return self._then(Dataset.zip(numbers, self)._node)

    def cache(self, filename: Any = "", name: str | None = None) -> Dataset:
        """Keep the elements that the first complete pass reads, so that a `map` before it runs once for each row.

        A `shuffle` before it keeps the order of iteration 0. In memory, rows are kept when this worker first reads
        them. A file contains all rows, so every worker reads all of them in the first pass. Later passes, also those of
        later programs, read the file by position. Delete the file when the data or the functions change.

        Args:
            filename: The file; "" means memory. If workers have separate folders, give a seed to a `shuffle` before it,
                or shuffle after it.
            name: Accepted as in tf.data.

        Raises:
            InputError: While reading: the file cannot be written, or is damaged.

        Example:
            >>> [int(x) for x in Dataset.range(3).cache()]
            [0, 1, 2]
        """
        path = os.fsdecode(filename)
        return self._then(saved.Stored(self._node, path) if path else Cache(self._node))

    def prefetch(self, buffer_size: int | None = AUTOTUNE, name: str | None = None) -> Dataset:
        """Do nothing: `fit` and the strategies read ahead automatically, at the end of the pipeline.

        Args:
            buffer_size: Accepted as in tf.data, without effect.
            name: Accepted as in tf.data.

        Example:
            >>> [int(x) for x in Dataset.range(2).prefetch(AUTOTUNE)]
            [0, 1]
        """
        if buffer_size is not None:
            check.integer("buffer_size", buffer_size, -1, "Write how many elements, or stratagem.data.AUTOTUNE.")
        return self._then(self._node)

    def apply(self, transformation_func: Callable[[Dataset], Dataset]) -> Dataset:
        """Return `transformation_func(self)`, to call a function of datasets in a chain of operations.

        Raises:
            InputError: The function returned no dataset.

        Example:
            >>> [int(x) for x in Dataset.range(9).apply(lambda dataset: dataset.skip(7))]
            [7, 8]
        """
        dataset = check.function("transformation_func", transformation_func)(self)
        _nodes("apply", [dataset])
        return dataset

    def reduce(self, initial_state: Any, reduce_func: Callable[[Any, Any], Any], name: str | None = None) -> Any:
        """Combine all elements into one by `state = reduce_func(state, element)`.

        Args:
            initial_state: An array or a tree of arrays.
            reduce_func: Function of the state and an element (a tuple is one argument) that returns the new state.
            name: Accepted as in tf.data.

        Returns:
            The last state.

        Example:
            >>> Dataset.range(5).reduce(np.int64(0), lambda state, element: state + element).numpy()
            np.int64(10)
        """
        state = as_arrays(initial_state)
        for element in self.as_numpy_iterator():
            state = as_arrays(check.function("reduce_func", reduce_func)(state, element))
        return eager(state)

    def with_options(self, options: Options, name: str | None = None) -> Dataset:
        """Return the dataset with the options that were set in `options`.

        Raises:
            InputError: `options` is not a `stratagem.data.Options`.

        Example:
            >>> options = Options()
            >>> options.experimental_distribute.auto_shard_policy = 2
            >>> Dataset.range(1).with_options(options).options().experimental_distribute.auto_shard_policy.name
            'DATA'
        """
        if not isinstance(options, Options):
            raise InputError(
                f"with_options got {type(options).__module__}.{type(options).__qualname__}.",
                "Write options = stratagem.data.Options() and set its attributes.",
            )
        return Dataset(self._node, self._options.merged(options))

    # ------------------------------------------------------------------ what is known

    def options(self) -> Options:
        """Return a copy of the options (`tf.data.Dataset.options`)."""
        return Options().merged(self._options)

    @property
    def element_spec(self) -> Tree:
        """Tree of `TensorSpec` of an element.

        To find it, a function given to `map` is called once on the first element, and a generator without a signature
        is started.

        Example:
            >>> Dataset.range(3).batch(2).element_spec
            TensorSpec(shape=(None,), dtype=dtype('int64'), name=None)
        """
        return self._node.spec

    def cardinality(self) -> Cardinality:
        """Return the number of elements, `INFINITE_CARDINALITY` (-1) or `UNKNOWN_CARDINALITY` (-2).

        Example:
            >>> Dataset.range(10).batch(4).cardinality().numpy()
            np.int64(3)
        """
        return Cardinality(self._node.cardinality())

    def __len__(self) -> int:
        length = self.cardinality()
        if length < 0:
            raise LengthError(
                explain(
                    f"The dataset has {'no end' if length == -1 else 'a length that is known only after reading'}.",
                    "len() cannot answer.",
                    "Use dataset.cardinality(), which returns -1 for no end and -2 for unknown; for fit, write "
                    "steps_per_epoch.",
                )
            )
        return int(length)

    def __bool__(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        if hasattr(type(self), name):  # a property met an AttributeError, of a user's function say: it is the true one
            return object.__getattribute__(self, name)
        raise absent(name)

    @property
    def component_spec(self) -> DatasetSpec:
        """Spec of this dataset as a component of an element."""
        return DatasetSpec(self.element_spec)

    def refused_in_batch(self) -> InputError:
        return datasets_in_batch()

    def __repr__(self) -> str:
        return f"<stratagem.data.Dataset of {int(self.cardinality())} elements>"

    # ------------------------------------------------------------------ reading

    def __iter__(self) -> _batches.DatasetIterator[Any]:
        return self._pass(lambda stream, _: map(eager, elements_of(stream)))

    def make_one_shot_iterator(self) -> OneShotIterator:
        """Return an iterator whose `get_next()` an `input_fn` of an Estimator may return (TensorFlow 1)."""
        return OneShotIterator(self)

    def as_numpy_iterator(self) -> _batches.DatasetIterator[Any]:
        """Iterate over the elements as plain NumPy arrays and scalars."""
        return self._pass(lambda stream, _: elements_of(stream))

    def batches(
        self,
        rows_of: _batches.RowsOf = _batches.whole,
        *,
        prefetch: int = 0,
        iteration: int | None = None,
        readers: ReaderPool | None = None,
        together: int = 1,
    ) -> _batches.DatasetIterator[_batches.Batch]:
        """Iterate over the global batches, and read only some rows of each.

        Args:
            rows_of: Function of the number of rows of a global batch that returns the contiguous slice to read.
            prefetch: Number of batches to read ahead in background threads, or in reader processes if the options say
                so; 0 reads in the caller.
            iteration: Number of the pass, for the order of shuffles. None continues the count of this dataset object,
                which every `iter` and `batches` advances.
            readers: Reader processes (`reader_pool`) that outlive the pass; None starts them for this pass only.
            together: Number of batches that are used at once. If nothing is read ahead, arrays in memory are read in
                groups of this size, or larger ones if batches are small.

        Returns:
            An iterator of `Batch(rows, data)` with `get_state`, `set_state` and `close`.

        Raises:
            InputError: `prefetch` is negative. While reading: an element has no batch dimension.

        Example:
            >>> batches = Dataset.range(5).batch(4).batches(lambda rows: slice(rows // 2, rows))
            >>> [(batch.rows, batch.data.tolist()) for batch in batches]
            [(4, [2, 3]), (1, [4])]
        """
        check.integer("prefetch", prefetch, 0, "Write how many batches to read ahead, or 0.")
        read = functools.partial(
            _batches.read_batches,
            rows_of=rows_of,
            prefetch=prefetch,
            threads=max(node.parallel_calls for node in walk(self._node)),
            processes=self._options.reader_processes,
            readers=readers,
            together=together if self.in_memory else 0,
        )
        return self._pass(read, iteration)

    def reader_pool(self) -> ReaderPool | None:
        """Return the reader processes that the options ask for, not yet started; None for 0."""
        return ReaderPool(self._options.reader_processes) if self._options.reader_processes else None

    def _pass(
        self, read: Callable[[Stream, int], Iterator[Any]], iteration: int | None = None
    ) -> _batches.DatasetIterator[Any]:
        if iteration is not None:
            self._iterations = check.integer("iteration", iteration, 0, "Write the number of the pass, from 0.")
        constant = becomes_constant(all(step.repeats_itself for step in walk(self._node)))
        self._iterations += 1
        return _batches.DatasetIterator(self._node, read, self._iterations - 1, is_constant=constant)

    def next_pass(self) -> _batches.State:
        """Return the state that `batches()` would have now, without starting that pass.

        Example:
            >>> dataset = Dataset.range(2).batch(1)
            >>> len(list(dataset.batches())), dataset.next_pass()
            (2, {'iteration': 1, 'batches': 0, 'seeds': []})
        """
        return {"iteration": self._iterations, "batches": 0, "seeds": self.random_seeds()}

    # ------------------------------------------------------------------ for strategies

    def random_seeds(self) -> list[int]:
        """Return the seed of every step that draws, in an order that equal pipelines share."""
        return _batches.random_seeds(self._node)

    def with_random_seeds(self, seeds: list[int]) -> Dataset:
        """Return the dataset with these seeds in its steps that draw: the chief's, so that all workers see one order.

        Raises:
            InputError: The number of seeds is not that of these steps.

        Example:
            >>> Dataset.range(3).shuffle(3).with_random_seeds([7]).random_seeds()
            [7]
        """
        return self._then(_batches.with_random_seeds(self._node, seeds))

    def drawn_apart(self, stream: int) -> Dataset:
        """Return the dataset as one of several workers reads it for itself, in an order of its own.

        Args:
            stream: Tells workers apart. Steps that were given a seed draw alike in all streams.

        Example:
            >>> dataset = Dataset.range(9).shuffle(9)
            >>> dataset.drawn_apart(0).random_seeds() == dataset.drawn_apart(1).random_seeds()
            False
        """
        return self._then(drawn_apart(self._node, stream))

    @property
    def in_memory(self) -> bool:
        """Whether a batch is only a gather from arrays, which is too cheap to read ahead."""
        return all(step.in_memory for step in walk(self._node))

    def faster(self) -> str:
        """Return what makes reading slow, and what to write instead, in one clause.

        Example:
            >>> "map(<lambda>)" in Dataset.range(2).map(lambda x: x).faster()
            True
        """
        return input_advice.faster(self._node, self._options.reader_processes, available_cores())

    @property
    def batch_size(self) -> int | None:
        """The size of the batches that the last step makes; None where it makes none.

        Example:
            >>> Dataset.range(5).batch(2).batch_size
            2
        """
        return self._node.size if isinstance(self._node, Batched) else None

    @property
    def has_shard_hint(self) -> bool:
        """Whether `shard(SHARD_HINT, SHARD_HINT)` stands somewhere in the pipeline."""
        return any(isinstance(node, Shard) and node.is_hint for node in walk(self._node))

    def with_shard_hint(self, num_shards: int, index: int) -> Dataset:
        """Return the dataset with these numbers in place of `SHARD_HINT`.

        Example:
            >>> dataset = Dataset.range(4).shard(SHARD_HINT, SHARD_HINT)
            >>> [int(x) for x in dataset.with_shard_hint(num_shards=2, index=0)]
            [0, 2]
        """
        check.shard(num_shards, index)

        def resolve(node: Node) -> Node:
            return Shard(node.inputs[0], num_shards, index) if isinstance(node, Shard) and node.is_hint else node

        return self._then(rewrite(self._node, resolve))

    @property
    def shards(self) -> list[tuple[int, int]]:
        """The number and the index of every `shard(number, index)` in the pipeline, hints aside."""
        steps = [node for node in walk(self._node) if isinstance(node, Shard) and not node.is_hint]
        return [(step.count, step.index) for step in steps]

    def unread(self) -> Dataset:
        """Return the dataset as another process would have it: no pass was begun, and nothing is cached."""
        return self._then(rewrite(self._node, lambda node: node))

    @property
    def files(self) -> list[FileStep]:
        """The steps of the pipeline that read files, or lists of their names."""
        return [node for node in walk(self._node) if isinstance(node, FileStep)]

    def with_files_of(self, num_shards: int, index: int, *, divide_batches: bool) -> Dataset:
        """Return the dataset of every `num_shards`-th file, from number `index` on (`AutoShardPolicy.FILE`).

        Args:
            num_shards: Number of workers.
            index: Index of the worker that reads.
            divide_batches: Whether a batch is to be the worker's part of one, rather than as large as before.
        """
        check.shard(num_shards, index)

        def divide(node: Node) -> Node:
            if divide_batches and isinstance(node, Batched):
                return node.divided(num_shards)
            return node.of_files(node.paths[index::num_shards]) if isinstance(node, FileStep) else node

        return self._then(rewrite(self._node, divide))


def _nodes(
    operation: str,
    datasets: Iterable[Any],
    remedy: str = "Make a dataset of arrays first: Dataset.from_tensor_slices(...).",
) -> list[Node]:
    found = list(datasets)
    if not found or not all(isinstance(dataset, Dataset) for dataset in found):
        given = ", ".join(type(dataset).__name__ for dataset in found)
        raise InputError(f"{operation} got {given or 'no dataset'}.", remedy)
    return [dataset._node for dataset in found]


def _dataset_of(function: Callable[..., Any], element: Tree) -> Node:
    dataset = call(function, element)
    if not isinstance(dataset, Dataset):
        raise InputError(
            f"The function {name_of(function)} given to interleave or flat_map returned {type(dataset).__name__}.",
            "Return a stratagem.data.Dataset, such as TFRecordDataset(file_name); map takes any other function.",
        )
    return dataset._node
