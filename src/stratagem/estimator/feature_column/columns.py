"""Columns: the base of all, and the categorical ones, whose values each go into one of a number of buckets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from stratagem.core.errors import InputError
from stratagem.data.files.example import VarLenFeature
from stratagem.estimator.checks import unusable
from stratagem.estimator.text import Text, Vocabulary

MISSING: Final = -1
"""The bucket of a value that is not there."""


@dataclass(frozen=True)
class Column(ABC):
    """A way to make numbers of one feature or of several.

    Args:
        name: Its name, from which the names of its variables are made; the key of its feature, if it has one.
    """

    name: str

    @property
    def key(self) -> str:
        """The key of its feature."""
        return self.name

    @property
    @abstractmethod
    def parse_spec(self) -> dict[str, Any]:
        """The specs by which its features are read from files of examples."""


@dataclass(frozen=True)
class Categorical(Column):
    """A column whose values have numbers.

    Args:
        buckets: How many different numbers there are.
    """

    buckets: int

    @property
    def number_buckets(self) -> int:
        """The number of buckets, by TensorFlow's name."""
        return self.buckets

    @abstractmethod
    def numbers(self, features: Mapping[str, Any]) -> jax.Array:
        """Return the numbers of a batch.

        Args:
            features: The features.

        Returns:
            int32 of shape (rows, values), `MISSING` where there is no value.
        """

    def weights(self, features: Mapping[str, Any]) -> jax.Array | None:
        """Return how much each value weighs, of the shape of `numbers`; None for equal weights."""
        return None


@dataclass(frozen=True)
class OfFeature(Categorical):
    """A categorical column of one feature.

    Args:
        dtype: What is in files of examples: "string" or "int64".
    """

    dtype: str

    @property
    def parse_spec(self) -> dict[str, Any]:
        return {self.key: VarLenFeature(self.dtype)}


@dataclass(frozen=True)
class OfVocabulary(OfFeature):
    """Values of a list; see `categorical_column_with_vocabulary_list`."""

    vocabulary: tuple[Any, ...]
    default: int
    _words: Vocabulary | None = field(compare=False, repr=False)

    def numbers(self, features: Mapping[str, Any]) -> jax.Array:
        values = rows_of(self, self.key, features, text=self._words is not None)
        if self._words is None:
            found = _places(values, self.vocabulary)
        else:
            found = self._words.places(values)
        hashed, missing = hashes(values)
        known = len(self.vocabulary)
        unknown = known + (hashed % (self.buckets - known)).astype("int32") if self.buckets > known else self.default
        return jnp.where(missing, MISSING, jnp.where(found < 0, unknown, found))


@dataclass(frozen=True)
class Identity(OfFeature):
    """Values that are numbers already; see `categorical_column_with_identity`."""

    default: int | None

    def numbers(self, features: Mapping[str, Any]) -> jax.Array:
        values = rows_of(self, self.key, features, text=False).astype("int32")
        inside = (values >= 0) & (values < self.buckets)
        if self.default is None:  # no device can raise an error
            return jnp.where(inside, values, MISSING)
        return jnp.where(values == MISSING, MISSING, jnp.where(inside, values, self.default))


@dataclass(frozen=True)
class Hashed(OfFeature):
    """Values of any kind; see `categorical_column_with_hash_bucket`."""

    def numbers(self, features: Mapping[str, Any]) -> jax.Array:
        hashed, missing = hashes(rows_of(self, self.key, features))
        return jnp.where(missing, MISSING, (hashed % self.buckets).astype("int32"))


@dataclass(frozen=True)
class Crossed(Categorical):
    """Pairs, triples and so on of values; see `crossed_column`."""

    keys: tuple[Any, ...]
    hash_key: int

    @property
    def parse_spec(self) -> dict[str, Any]:
        return make_parse_example_spec(Hashed(key, 1, "string") if isinstance(key, str) else key for key in self.keys)

    def numbers(self, features: Mapping[str, Any]) -> jax.Array:
        total: Any = jnp.full((1, 1), self.hash_key % 2**32, "uint32")
        missing: Any = jnp.zeros((1, 1), bool)
        for key in self.keys:
            if isinstance(key, str):
                hashed, absent = hashes(rows_of(self, key, features))
            else:
                values = key.numbers(features)
                hashed, absent = mixed(values), values < 0
            # Each value of one with each value of the others.
            total = mixed(total[:, :, None] * np.uint32(31) + hashed[:, None, :])
            missing = missing[:, :, None] | absent[:, None, :]
            total, missing = (part.reshape(part.shape[0], -1) for part in (total, missing))
        return jnp.where(missing, MISSING, (total % self.buckets).astype("int32"))


@dataclass(frozen=True)
class Weighted(Categorical):
    """Values with weights; see `weighted_categorical_column`."""

    categorical_column: Categorical
    weight_key: str

    @property
    def parse_spec(self) -> dict[str, Any]:
        return {**self.categorical_column.parse_spec, self.weight_key: VarLenFeature("float32")}

    def numbers(self, features: Mapping[str, Any]) -> jax.Array:
        return self.categorical_column.numbers(features)

    def weights(self, features: Mapping[str, Any]) -> jax.Array | None:
        return rows_of(self, self.weight_key, features, text=False).astype("float32")


def categorical_column_with_vocabulary_list(
    key: str,
    vocabulary_list: Sequence[Any],
    dtype: Any = None,
    default_value: int = MISSING,
    num_oov_buckets: int = 0,
) -> Categorical:
    """Return a column of words or integers of a list (`tf.feature_column.categorical_column_with_vocabulary_list`).

    Args:
        key: Key of the feature.
        vocabulary_list: The values (words or integers), each once. The number of a value is its position.
        dtype: Accepted as in TensorFlow; the values have it.
        default_value: Number for values that are not in the list; -1 treats them as missing.
        num_oov_buckets: Number of additional buckets for such values, in place of `default_value`.

    Raises:
        InputError: The list is empty, or has a value twice.

    Example:
        >>> column = categorical_column_with_vocabulary_list("size", [1, 3, 8])
        >>> column.numbers({"size": jnp.array([3, 8, 5])}).tolist()
        [[1], [2], [-1]]
    """
    values = tuple(np.asarray(vocabulary_list).tolist())
    if not values:
        raise InputError(
            f"The vocabulary_list of column {key!r} is empty.",
            "Write the values: vocabulary_list=['female', 'male'], or use categorical_column_with_hash_bucket.",
        )
    words = Vocabulary(values) if isinstance(values[0], str | bytes) else None
    if words is None and len(set(values)) < len(values):
        raise InputError(
            f"The vocabulary_list of column {key!r} has a number twice: {values}.",
            "Write each number once.",
        )
    kind = "int64" if words is None else "string"
    return OfVocabulary(_key(key), len(values) + num_oov_buckets, kind, values, default_value, words)


def categorical_column_with_vocabulary_file(
    key: str,
    vocabulary_file: str,
    vocabulary_size: int | None = None,
    num_oov_buckets: int = 0,
    default_value: int | None = None,
    dtype: Any = "string",
    **options: Any,
) -> Categorical:
    """Return a column of the words in a file (`tf.feature_column.categorical_column_with_vocabulary_file`).

    Args:
        key: Key of the feature.
        vocabulary_file: File with one word in each line.
        vocabulary_size: Number of lines to read; None means all.
        num_oov_buckets: As for `categorical_column_with_vocabulary_list`.
        default_value: As for `categorical_column_with_vocabulary_list`.
        dtype: Integers are read as integers.
        options: `file_format`: accepted, text files only.
    """
    lines = [line for line in Path(vocabulary_file).read_text().splitlines() if line][:vocabulary_size]
    values = lines if _is_words(dtype) else [int(line) for line in lines]
    default = MISSING if default_value is None else default_value
    return categorical_column_with_vocabulary_list(key, values, dtype, default, num_oov_buckets)


def categorical_column_with_identity(key: str, num_buckets: int, default_value: int | None = None) -> Categorical:
    """Return a column of integers from 0 (`tf.feature_column.categorical_column_with_identity`).

    Args:
        key: Key of the feature.
        num_buckets: Number of buckets: one more than the greatest integer.
        default_value: Value for integers out of range. None treats them as missing; TensorFlow raises an error.
    """
    return Identity(_key(key), _count("num_buckets", num_buckets), "int64", default_value)


def categorical_column_with_hash_bucket(key: str, hash_bucket_size: int, dtype: Any = "string") -> Categorical:
    """Return a column of any words or integers (`tf.feature_column.categorical_column_with_hash_bucket`).

    The hash function differs from TensorFlow's, so values get other buckets.

    Args:
        key: Key of the feature.
        hash_bucket_size: Number of buckets; different values may share one.
        dtype: Dtype in files of examples: words or integers.
    """
    kind = "string" if _is_words(dtype) else "int64"
    return Hashed(_key(key), _count("hash_bucket_size", hash_bucket_size), kind)


def crossed_column(keys: Sequence[Any], hash_bucket_size: int, hash_key: int | None = None) -> Categorical:
    """Return a column of combinations of values (`tf.feature_column.crossed_column`).

    Args:
        keys: Two or more: keys of features of words or integers, and categorical or bucketized columns.
        hash_bucket_size: Number of buckets; different combinations may share one.
        hash_key: Seed of the hash.

    Raises:
        InputError: There are fewer than two keys, or one that has no buckets.
    """
    parts = tuple(keys) if isinstance(keys, list | tuple) else (keys,)
    wrong = [part for part in parts if not isinstance(part, str) and not hasattr(part, "numbers")]
    if len(parts) < 2 or wrong:
        raise unusable(
            "crossed_column",
            "No combinations of values can be put into buckets.",
            "Give two or more of: keys of words and integers, categorical columns, bucketized columns.",
            keys=keys,
        )
    single = [one for part in parts for one in (part.keys if isinstance(part, Crossed) else (part,))]
    name = "_X_".join(sorted(one if isinstance(one, str) else one.name for one in single))
    return Crossed(name, _count("hash_bucket_size", hash_bucket_size), parts, hash_key or 0)


def weighted_categorical_column(
    categorical_column: Categorical, weight_feature_key: str, dtype: Any = None
) -> Categorical:
    """Return a column whose values have weights (`tf.feature_column.weighted_categorical_column`).

    Args:
        categorical_column: The values.
        weight_feature_key: Key of the feature with the weights, of the same shape.
        dtype: Accepted as in TensorFlow.
    """
    name = f"{categorical_column.name}_weighted_by_{weight_feature_key}"
    return Weighted(name, categorical_column.buckets, categorical_column, weight_feature_key)


def make_parse_example_spec(feature_columns: Iterable[Column]) -> dict[str, Any]:
    """Return the kind of each feature of columns, for `stratagem.io.parse_example`.

    Args:
        feature_columns: Columns of any kind.

    Raises:
        InputError: Two of them read one feature differently.

    Example:
        >>> from stratagem.estimator.feature_column import numeric_column
        >>> make_parse_example_spec([numeric_column("age")])["age"].shape
        (1,)
    """
    found: dict[str, Any] = {}
    for column in feature_columns:
        for key, spec in column.parse_spec.items():
            before = found.setdefault(key, spec)
            if type(before) is not type(spec) or before.dtype != spec.dtype:
                raise InputError(
                    f"Two columns read the feature {key!r} differently: as {type(before).__name__} of "
                    f"{before.dtype} and as {type(spec).__name__} of {spec.dtype}.",
                    "Give one of the features another key.",
                )
    return found


def feature_of(column: Column, key: str, features: Mapping[str, Any]) -> Any:
    """Return a feature, with a row for each example.

    Args:
        column: For which; for the error message.
        key: Key of the feature.
        features: All features.

    Raises:
        InputError: It is not there.
    """
    if not isinstance(features, Mapping) or key not in features:
        there = ", ".join(map(repr, features)) if isinstance(features, Mapping) else f"one {type(features).__name__}"
        raise InputError(
            f"The column {column.name!r} needs the feature {key!r}; input_fn gives {there}.",
            f"Let input_fn return a dictionary of features with {key!r} in it.",
        )
    value = features[key]
    return value if isinstance(value, Text) else jnp.asarray(value)


def rows_of(column: Column, key: str, features: Mapping[str, Any], *, text: bool | None = None) -> Any:
    """Return a feature as (rows, values), text or numbers.

    Args:
        column: For which; for the error message.
        key: Key of the feature.
        features: All features.
        text: Whether it must be text, or must not; None for either.

    Raises:
        InputError: It is not there, or of another kind.
    """
    values = feature_of(column, key, features)
    if text is not None and isinstance(values, Text) != text:
        raise InputError(
            f"The column {column.name!r} is one of {'words' if text else 'numbers'}; the feature {key!r} is "
            f"{'text' if isinstance(values, Text) else 'of dtype ' + str(values.dtype)}.",
            "Let input_fn give the kind that the column is for, or make the column for this kind.",
        )
    if text is None and not isinstance(values, Text) and jnp.issubdtype(values.dtype, jnp.floating):
        raise InputError(
            f"The column {column.name!r} takes values one by one; the feature {key!r} is of dtype {values.dtype}.",
            "Numbers that are almost equal would be in different buckets.",
            f"Use bucketized_column(numeric_column({key!r}), boundaries), or let input_fn give integers.",
        )
    return values.reshape(values.shape[0], -1)


def hashes(values: Any) -> tuple[jax.Array, jax.Array]:
    """Return a hash of each value, and whether it is missing."""
    if isinstance(values, Text):
        return values.words[..., 1], jnp.all(values.words == 0, axis=-1)
    return mixed(values), values == MISSING


def mixed(numbers: jax.Array) -> jax.Array:
    """Return integers well mixed, by the last lines of MurmurHash3."""
    mix = numbers.astype("uint32")
    mix = (mix ^ (mix >> 16)) * np.uint32(0x85EBCA6B)
    mix = (mix ^ (mix >> 13)) * np.uint32(0xC2B2AE35)
    return mix ^ (mix >> 16)


def _places(values: jax.Array, vocabulary: tuple[int, ...]) -> jax.Array:
    order = np.argsort(vocabulary)
    table = np.asarray(vocabulary)[order].astype("int32")
    place = jnp.minimum(jnp.searchsorted(table, values), len(table) - 1)
    return jnp.where(jnp.asarray(table)[place] == values, jnp.asarray(order.astype("int32"))[place], MISSING)


def _is_words(dtype: Any) -> bool:
    return getattr(dtype, "name", dtype) in ("string", "bytes", str, bytes, "str", "object")


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise InputError(f"A column was given key={key!r}.", 'Write the name of a feature: key="age".')
    return key


def _count(name: str, count: Any) -> int:
    if not isinstance(count, int | np.integer) or count < 1:
        raise InputError(f"{name} is {count!r}.", f"Write a whole number from 1 on as {name}.")
    return int(count)
