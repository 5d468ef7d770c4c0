"""Names of layers whose objects are Keras's own, so that they are saved and loaded as those, also without Stratagem."""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from stratagem.core.errors import InputError
from stratagem.data.dataset import Dataset
from stratagem.data.nodes import INFINITE_CARDINALITY
from stratagem.feed.distributed import DistributedDataset


class MakingKeras(type):
    """Metaclass of such a name. A program's subclass of it is an ordinary class."""

    def __call__(cls, *args: Any, **named: Any) -> Any:
        make: Callable[..., Any] = vars(cls).get("_made") or super().__call__
        return make(*args, **named)

    def __eq__(cls, other: object) -> bool:
        """Whether it is the class, or that of its objects: `type(layer) == tf.keras.layers.Dense`."""
        return cls is other or ("_made" in vars(cls) and cls.__bases__[-1] is other)

    def __hash__(cls) -> int:
        return hash(cls.__bases__[-1]) if "_made" in vars(cls) else super().__hash__()

    def __subclasscheck__(cls, subclass: type) -> bool:
        if "_made" in vars(cls):
            return issubclass(subclass, cls.__bases__[-1])
        return super().__subclasscheck__(subclass)

    def __instancecheck__(cls, instance: Any) -> bool:
        if "_made" in vars(cls):
            return isinstance(instance, cls.__bases__[-1])
        return super().__instancecheck__(instance)


class InputLayer(keras.layers.InputLayer, metaclass=MakingKeras):
    """Keras's `InputLayer`, where `input_shape=` is `shape=` without a warning (`tf.keras.layers.InputLayer`).

    Args:
        shape: Shape of a row; also by the name `input_shape`.
        batch_size: The number of rows in a batch, if it is fixed.
        dtype: The dtype of the input.
        others: Those of `keras.layers.InputLayer`.

    Example:
        >>> layer = InputLayer(input_shape=(3,))
        >>> layer.batch_shape, isinstance(layer, InputLayer)
        ((None, 3), True)
    """

    @staticmethod
    def _made(*args: Any, **named: Any) -> keras.layers.InputLayer:
        if "input_shape" in named:
            named["shape"] = named.pop("input_shape")
        return keras.layers.InputLayer(*args, **named)


class AveragePooling1D(keras.layers.AveragePooling1D, metaclass=MakingKeras):
    """Keras's `AveragePooling1D` (`tf.keras.layers.AveragePooling1D`); see `AveragePooling2D`."""

    @staticmethod
    def _made(pool_size: Any = 2, *args: Any, **named: Any) -> keras.layers.AveragePooling1D:
        return keras.layers.AveragePooling1D(pool_size, *args, **named)


class AveragePooling2D(keras.layers.AveragePooling2D, metaclass=MakingKeras):
    """Keras's `AveragePooling2D`, whose windows have the default size 2 (`tf.keras.layers.AveragePooling2D`).

    Args:
        pool_size: The sizes of a window.
        others: Those of `keras.layers.AveragePooling2D`.

    Example:
        >>> layer = AveragePooling2D()
        >>> layer.pool_size, isinstance(layer, AveragePooling2D)
        ((2, 2), True)
    """

    @staticmethod
    def _made(pool_size: Any = 2, *args: Any, **named: Any) -> keras.layers.AveragePooling2D:
        return keras.layers.AveragePooling2D(pool_size, *args, **named)


class AveragePooling3D(keras.layers.AveragePooling3D, metaclass=MakingKeras):
    """Keras's `AveragePooling3D` (`tf.keras.layers.AveragePooling3D`); see `AveragePooling2D`."""

    @staticmethod
    def _made(pool_size: Any = 2, *args: Any, **named: Any) -> keras.layers.AveragePooling3D:
        return keras.layers.AveragePooling3D(pool_size, *args, **named)


class Dense(keras.layers.Dense, metaclass=MakingKeras):
    """Keras's `Dense`, whose sizes may be NumPy's integers (`tf.keras.layers.Dense`).

    Args:
        arguments: Those of `keras.layers.Dense`.

    Example:
        >>> Dense(np.int64(3)).units
        3
    """

    @staticmethod
    def _made(*arguments: Any, **named: Any) -> keras.layers.Dense:
        return _of_whole_numbers(keras.layers.Dense, arguments, named)


class Embedding(keras.layers.Embedding, metaclass=MakingKeras):
    """Keras's `Embedding`, whose sizes may be NumPy's integers (`tf.keras.layers.Embedding`).

    Args:
        arguments: Those of `keras.layers.Embedding`.

    Example:
        >>> Embedding(np.array([4, 2]).max() + 1, 8).input_dim
        5
    """

    @staticmethod
    def _made(*arguments: Any, **named: Any) -> keras.layers.Embedding:
        return _of_whole_numbers(keras.layers.Embedding, arguments, named)


class MultiHeadAttention(keras.layers.MultiHeadAttention, metaclass=MakingKeras):
    """Keras's `MultiHeadAttention`, whose sizes may be NumPy's integers (`tf.keras.layers.MultiHeadAttention`).

    Args:
        arguments: Those of `keras.layers.MultiHeadAttention`.

    Example:
        >>> MultiHeadAttention(np.int64(2), np.int64(4)).num_heads
        2
    """

    @staticmethod
    def _made(*arguments: Any, **named: Any) -> keras.layers.MultiHeadAttention:
        return _of_whole_numbers(keras.layers.MultiHeadAttention, arguments, named)


class RepeatVector(keras.layers.RepeatVector, metaclass=MakingKeras):
    """Keras's `RepeatVector`, whose sizes may be NumPy's integers (`tf.keras.layers.RepeatVector`).

    Args:
        arguments: Those of `keras.layers.RepeatVector`.

    Example:
        >>> RepeatVector(np.int64(5)).n
        5
    """

    @staticmethod
    def _made(*arguments: Any, **named: Any) -> keras.layers.RepeatVector:
        return _of_whole_numbers(keras.layers.RepeatVector, arguments, named)


def _of_whole_numbers(kind: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Make a layer that asks whether its sizes are Python's integers; NumPy's become those."""
    return kind(*map(_of_python, arguments), **{name: _of_python(value) for name, value in named.items()})


def _of_python(value: Any) -> Any:
    return int(value) if isinstance(value, np.integer) else value


class Normalization(keras.layers.Normalization, metaclass=MakingKeras):
    """Keras's `Normalization`, whose `adapt` takes datasets without TensorFlow (`tf.keras.layers.Normalization`).

    Args:
        arguments: Those of `keras.layers.Normalization`.

    Example:
        >>> layer = Normalization()
        >>> layer.adapt(Dataset.from_tensor_slices([[1.0], [2.0], [6.0]]).batch(2))
        >>> layer.adapt_mean.numpy().tolist(), isinstance(layer, Normalization)
        ([3.0], True)
    """

    @staticmethod
    def _made(*arguments: Any, **named: Any) -> keras.layers.Normalization:
        return _adapting(keras.layers.Normalization(*arguments, **named), Normalization.adapt)

    def adapt(self, data: Any, batch_size: int | None = None, steps: int | None = None) -> None:
        """Learn the mean and the variance of all elements.

        Elements are batches, or single rows if they have one axis.

        The sums are float64, so the order of batches does not matter. On several workers each reads all of the data.

        Args:
            data: An array, a dataset, or an iterable of arrays or of tuples that begin with an array.
            batch_size: Accepted as in Keras 2.
            steps: The number of elements to read; None for all.

        Raises:
            InputError: The data has no end or no elements, the batches differ in shape, the data is shared by workers,
                or the layer was made with a mean.
        """
        if self.input_mean is not None:
            raise InputError("A Normalization with a mean has nothing to learn.", "Make it without mean and variance.")
        count, mean, squares = 0, np.zeros(()), np.zeros(())
        for batch in _batches(data, steps):
            rows = np.asarray(batch, "float64")
            rows = rows[None] if rows.ndim == 1 and not _is_array(data) else rows
            if not self.built:
                self.build(rows.shape)
            kept = {axis % rows.ndim for axis in self.axis}
            reduced = tuple(axis for axis in range(rows.ndim) if axis not in kept)
            if count and mean.shape != tuple(rows.shape[axis] for axis in sorted(kept)):
                raise InputError(
                    f"adapt was given a batch of shape {rows.shape}, after others with means of shape {mean.shape}.",
                    "Give batches that differ only in their number of rows.",
                )
            own = math.prod(rows.shape[axis] for axis in reduced)
            difference = rows.mean(axis=reduced) - mean
            count += own
            mean = mean + difference * own / count
            squares = squares + rows.var(axis=reduced) * own + difference**2 * own * (count - own) / count
        self.adapt_mean.assign(mean)
        self.adapt_variance.assign(squares / count)
        self.finalize_state()


class Discretization(keras.layers.Discretization, metaclass=MakingKeras):
    """Keras's `Discretization`, whose `adapt` needs no TensorFlow (`tf.keras.layers.Discretization`).

    Args:
        arguments: Those of `keras.layers.Discretization`.

    Example:
        >>> layer = Discretization(num_bins=2)
        >>> layer.adapt(Dataset.range(9).batch(4))
        >>> [round(boundary, 3) for boundary in layer.bin_boundaries]
        [3.5]
    """

    @staticmethod
    def _made(*arguments: Any, **named: Any) -> keras.layers.Discretization:
        return _adapting(keras.layers.Discretization(*arguments, **named), Discretization.adapt)

    def adapt(self, data: Any, steps: int | None = None, batch_size: int | None = None) -> None:
        """Learn the boundaries of the bins.

        For long data the boundaries are estimates that depend on its order, so all workers must read the same order.

        Args:
            data: An array, a dataset, or an iterable of arrays or of tuples that begin with an array.
            steps: The number of elements to read; None for all.
            batch_size: Accepted as in Keras 2.

        Raises:
            InputError: The data has no end or no elements, or is shared by workers.
            ValueError: The layer was made with `bin_boundaries`.
        """
        if self.num_bins is None:
            raise ValueError("A Discretization with bin_boundaries has nothing to learn. Make it with num_bins=.")
        self.reset_state()
        for batch in _batches(data, steps):
            self.update_state(batch)
        self.finalize_state()


def _adapting(layer: Any, adapt: Callable[..., None]) -> Any:
    layer.adapt = types.MethodType(adapt, layer)
    return layer


def _is_array(data: Any) -> bool:
    numbers = isinstance(data, list | tuple) and bool(data) and not hasattr(data[0], "shape")
    return numbers or hasattr(data, "__array__")


def _batches(data: Any, steps: int | None) -> Iterator[Any]:
    """Yield the arrays to learn from: an array whole, of others each element's first part.

    Raises:
        InputError: They have no end, there are none, or they are those of a strategy.
    """
    if isinstance(data, DistributedDataset):
        raise InputError(
            "adapt was given a dataset that a strategy shares among its replicas.",
            "Each worker would learn from its own part only, and normalise differently from the others.",
            "Give adapt the dataset itself: each worker reads all of it.",
        )
    endless = isinstance(data, Dataset) and data.cardinality() == INFINITE_CARDINALITY
    if steps is None and (endless or (isinstance(data, keras.utils.PyDataset) and data.num_batches is None)):
        raise InputError("adapt was given data without an end.", "Write adapt(data, steps=...), or dataset.take(...).")
    as_numpy = getattr(data, "as_numpy_iterator", None)
    elements = data if as_numpy is None else as_numpy()
    number = -1
    for number, element in enumerate([data] if _is_array(data) else elements):
        if number == steps:
            return
        yield element[0] if isinstance(element, tuple) and not _is_array(data) else element
    if number < 0:
        raise InputError(
            "adapt was given data without elements.",
            "Make a new generator if this one is used up, or check the argument of take().",
        )
