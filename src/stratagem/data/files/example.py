"""Reading `tf.train.Example` records as arrays (`tf.io.parse_single_example`)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from stratagem.core import optional
from stratagem.core.eager import EagerArray
from stratagem.core.errors import InputError
from stratagem.core.example import message
from stratagem.data.ragged import RaggedTensor
from stratagem.data.specs import sizes_of
from stratagem.data.structure import eager, encoded, objects
from stratagem.data.transforms import in_element_function
from stratagem.data.variable_length import VariableLength


class _Kind(NamedTuple):
    """Kind of the values of a feature."""

    name: str
    field: str
    dtype: np.dtype
    scalar: type
    """Type of one value."""

    def array(self, values: Any) -> np.ndarray:
        """Return the values along one axis."""
        return objects(values) if self.scalar is bytes else np.array(values, self.dtype)


_INT64 = _Kind("int64", "int64_list", np.dtype(np.int64), np.int64)
_FLOAT32 = _Kind("float32", "float_list", np.dtype(np.float32), np.float32)
_STRING = _Kind("string", "bytes_list", np.dtype(object), bytes)


def _kind_of(dtype: Any) -> _Kind:
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", None)
    for kind in (_INT64, _FLOAT32, _STRING):
        if name == kind.name:
            return kind
    if name in ("bytes", "str", "object"):
        return _STRING
    raise InputError(
        f"The dtype of a feature is {dtype!r}.",
        'Write "int64", "float32" or "string", and convert the array afterwards.',
    )


class FeatureConfiguration(ABC):
    """Conversion of one feature of an example to an array.

    Args:
        dtype: "int64", "float32" or "string", the same dtypes of NumPy or TensorFlow, or `bytes`.
    """

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self._kind = _kind_of(dtype)

    @abstractmethod
    def parse(self, key: str, features: Any) -> Any:
        """Return the value of the feature `key` of one example, whose features are given as a protobuf map."""

    @abstractmethod
    def join(self, values: list[Any]) -> Any:
        """Return the values of several examples as one."""

    def _values(self, key: str, features: Any) -> Any:
        """Return the values of a feature, None where the example lacks it."""
        if key not in features:
            return None
        feature = features[key]
        values = getattr(feature, self._kind.field).value
        held = self._kind.field if values else feature.WhichOneof("kind")
        if held not in (None, self._kind.field):
            raise InputError(
                f"The feature {key!r} of an example is a {held}; it is read as {self._kind.name}.",
                "Correct the dtype: int64 for int64_list, float32 for float_list, string for bytes_list.",
            )
        return None if held is None else values


class FixedLenFeature(FeatureConfiguration):
    """A feature with the same number of values in every example (`tf.io.FixedLenFeature`).

    Args:
        shape: Shape of its array; () means one value, and a number means a list of that length.
        dtype: "int64", "float32" or "string", the same dtypes of NumPy or TensorFlow, or `bytes`.
        default_value: Value for examples that lack the feature, of this shape or a single value. None makes a missing
            feature an error.

    Raises:
        InputError: The dtype is not one of these, or `default_value` does not have the shape.
    """

    def __init__(self, shape: Sequence[int] | int, dtype: Any, default_value: Any = None) -> None:
        super().__init__(dtype)
        self.shape = sizes_of(shape)
        self.default_value = default_value
        self._size = math.prod(self.shape)
        self._default = None if default_value is None else self._filled(default_value)

    def _filled(self, value: Any) -> Any:
        try:
            array = np.array(encoded(value) if self._kind is _STRING else value, self._kind.dtype)
            return np.broadcast_to(array, self.shape)[()]
        except (TypeError, ValueError) as error:
            raise InputError(
                f"default_value is {value!r}: {error}.",
                f"The feature has shape {self.shape} and dtype {self._kind.name}.",
                "Write one value, or an array of that shape.",
            ) from None

    def parse(self, key: str, features: Any) -> Any:
        values = self._values(key, features)
        if values is None:
            if self._default is None:
                raise _missing(key, features)
            return self._default if self.shape == () else self._default.copy()
        if len(values) != self._size:
            raise InputError(
                f"The feature {key!r} of an example has {len(values)} values, but shape {self.shape} has {self._size}.",
                "Correct the shape. If the number varies, write VarLenFeature.",
            )
        if self.shape == ():
            return self._kind.scalar(values[0])
        return self._kind.array(values).reshape(self.shape)

    def join(self, values: list[Any]) -> np.ndarray:
        return np.array(values, self._kind.dtype)


class VarLenFeature(FeatureConfiguration):
    """A feature whose number of values varies (`tf.io.VarLenFeature`).

    TensorFlow makes a sparse tensor of it. Here one example has a vector, which is empty if the feature is missing. A
    batch has a vector of vectors, with dtype `object`. Both also have `values`, `indices` and `dense_shape`.

    Args:
        dtype: As for `FixedLenFeature`.
    """

    def parse(self, key: str, features: Any) -> np.ndarray:
        return self._kind.array(self._values(key, features) or ()).view(VariableLength)

    def join(self, values: list[Any]) -> np.ndarray:
        return objects([value.view(np.ndarray) for value in values]).view(VariableLength)


class RaggedFeature(FeatureConfiguration):
    """A feature whose number of values varies, as rows of a ragged tensor (`tf.io.RaggedFeature`).

    One example has a vector, which is empty if the feature is missing. A batch has a `RaggedTensor`.

    Args:
        dtype: As for `FixedLenFeature`.
        value_key: The name in the example; None means the key in `features`.
        partitions: Must be empty.
        row_splits_dtype: Accepted as in TensorFlow; offsets are int64.
        validate: Accepted as in TensorFlow.

    Raises:
        InputError: There are partitions.
    """

    def __init__(
        self,
        dtype: Any,
        value_key: str | None = None,
        partitions: Sequence[Any] = (),
        row_splits_dtype: Any = "int32",
        validate: bool = False,
    ) -> None:
        super().__init__(dtype)
        self.value_key = value_key
        if partitions:
            raise InputError(
                f"RaggedFeature was given {len(partitions)} partitions.",
                "Read the feature that holds them as another RaggedFeature, and make the rows from both with "
                "tf.RaggedTensor.from_row_splits and its like.",
            )

    def parse(self, key: str, features: Any) -> np.ndarray:
        return eager(self._kind.array(self._values(self.value_key or key, features) or ()))

    def join(self, values: list[Any]) -> Any:
        return RaggedTensor.from_row_lengths(np.concatenate([self._kind.array(()), *values]), list(map(len, values)))


class FixedLenSequenceFeature(FeatureConfiguration):
    """A feature that is a sequence of arrays of one shape (`tf.io.FixedLenSequenceFeature`).

    One example has an array of shape `(steps, *shape)`. In a batch the shorter ones are padded.

    Args:
        shape: Shape of one step.
        dtype: As for `FixedLenFeature`.
        allow_missing: Whether an example that lacks the feature has zero steps; otherwise that is an error.
        default_value: The padding; None means 0 or b"".
    """

    def __init__(
        self, shape: Sequence[int] | int, dtype: Any, allow_missing: bool = False, default_value: Any = None
    ) -> None:
        super().__init__(dtype)
        self.shape = sizes_of(shape)
        self.allow_missing = allow_missing
        self.default_value = default_value

    def parse(self, key: str, features: Any) -> np.ndarray:
        values = self._values(key, features)
        if values is None:
            if not self.allow_missing:
                raise _missing(key, features)
            values = ()
        steps, left = divmod(len(values), math.prod(self.shape))
        if left:
            raise InputError(
                f"The feature {key!r} of an example has {len(values)} values; a step has {math.prod(self.shape)}.",
                "Correct the shape.",
            )
        return self._kind.array(values).reshape(steps, *self.shape)

    def join(self, values: list[Any]) -> np.ndarray:
        shape = (len(values), max(map(len, values)), *self.shape)
        padding = self._kind.scalar() if self.default_value is None else self.default_value
        padding = encoded(padding) if self._kind is _STRING else padding
        joined = np.full(shape, padding, values[0].dtype)
        for row, value in zip(joined, values, strict=True):
            row[: len(value)] = value
        return joined


Features = Mapping[str, FeatureConfiguration]


def parse_single_example(
    serialized: Any, features: Features, example_names: Any = None, name: str | None = None
) -> dict[str, Any]:
    """Read one `tf.train.Example` (`tf.io.parse_single_example`).

    Args:
        serialized: The result of `SerializeToString` of an Example: bytes, or an array without axes that contains them.
        features: For each key, the kind of feature. Features of the example that are not named are left out.
        example_names: Accepted as in TensorFlow, without effect.
        name: Accepted as in TensorFlow, without effect.

    Returns:
        An array for each key; in a function given to a dataset also a NumPy scalar or bytes.

    Raises:
        InputError: The bytes are not an Example, or a feature is missing or has another dtype or size.

    Example:
        >>> from stratagem.train import Example, Feature, Features, Int64List
        >>> label = Feature(int64_list=Int64List(value=[3]))
        >>> record = Example(features=Features(feature={"label": label})).SerializeToString()
        >>> parse_single_example(record, {"label": FixedLenFeature([], "int64")})["label"].numpy()
        np.int64(3)
    """
    found = _features_of(serialized)
    return _answering({key: configuration.parse(key, found) for key, configuration in features.items()})


def parse_example(
    serialized: Iterable[Any], features: Features, example_names: Any = None, name: str | None = None
) -> dict[str, np.ndarray]:
    """Read a batch of `tf.train.Example` (`tf.io.parse_example`).

    Args:
        serialized: At least one example, each as for `parse_single_example`; for example a batch of a dataset of
            records.
        features: For each key, the kind of feature.
        example_names: Accepted as in TensorFlow, without effect.
        name: Accepted as in TensorFlow, without effect.

    Returns:
        An array for each key, whose first axis counts the examples.

    Raises:
        InputError: As for `parse_single_example`.

    Example:
        >>> parse_example([b"", b""], {"label": FixedLenFeature([], "int64", default_value=-1)})["label"].tolist()
        [-1, -1]
    """
    found = [_features_of(record) for record in serialized]
    parsed = {
        key: configuration.join([configuration.parse(key, example) for example in found])
        for key, configuration in features.items()
    }
    return _answering(parsed)


def _answering(parsed: dict[str, Any]) -> dict[str, Any]:
    """Return features whose arrays answer `.numpy()` outside of functions given to a dataset."""
    if in_element_function():
        return parsed
    return {key: value if isinstance(value, EagerArray) else eager(value) for key, value in parsed.items()}


def _features_of(serialized: Any) -> Any:
    record = serialized if isinstance(serialized, bytes) else np.asarray(serialized).item()
    error_class = optional.load("google.protobuf.message", "files", "tf.train.Example").DecodeError
    try:
        return message("Example").FromString(record).features.feature
    except (error_class, TypeError) as error:
        raise InputError(
            f"A record of {len(record) if isinstance(record, bytes) else type(record).__name__} bytes is not a "
            f"tf.train.Example: {error}.",
            "Parse records one by one, as SerializeToString of an Example returned them. For a batch, use "
            "parse_example.",
        ) from None


def _missing(key: str, features: Any) -> InputError:
    return InputError(
        f"An example has no feature {key!r}; it has {', '.join(map(repr, sorted(features))) or 'none'}.",
        "Correct the key, or write default_value=... for examples that lack it.",
    )
