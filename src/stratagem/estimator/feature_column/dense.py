"""Dense columns: numbers to compute with, which `DenseFeatures` joins."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

from stratagem.core.errors import InputError
from stratagem.data.files.example import FixedLenFeature
from stratagem.data.specs import sizes_of
from stratagem.estimator.checks import unusable
from stratagem.estimator.feature_column.columns import Categorical, Column, feature_of
from stratagem.estimator.text import Text

_COMBINERS = ("mean", "sqrtn", "sum")


@dataclass(frozen=True)
class Dense(Column):
    """A column of numbers.

    Args:
        width: How many numbers a row has.
    """

    width: int

    @abstractmethod
    def rows(self, features: Mapping[str, Any], table: Any) -> jax.Array:
        """Return the numbers of a batch, float32 of shape (rows, width).

        Args:
            features: The features.
            table: The variable of `table_of_weights`, if it has one.
        """


@dataclass(frozen=True)
class Numeric(Dense):
    """Numbers as they are; see `numeric_column`."""

    shape: tuple[int, ...]
    default_value: Any
    dtype: Any
    normalizer_fn: Callable[[Any], Any] | None

    @property
    def parse_spec(self) -> dict[str, Any]:
        kind = "int64" if np.issubdtype(np.dtype(getattr(self.dtype, "name", self.dtype)), np.integer) else "float32"
        return {self.key: FixedLenFeature(self.shape, kind, self.default_value)}

    def rows(self, features: Mapping[str, Any], table: Any) -> jax.Array:
        values = feature_of(self, self.key, features)
        if isinstance(values, Text) or math.prod(values.shape[1:]) != self.width:
            found = "text" if isinstance(values, Text) else f"of shape {values.shape}"
            raise InputError(
                f"The column {self.name!r} is one of numbers of shape {self.shape}; the feature {self.key!r} is "
                f"{found}.",
                "Write numeric_column(key, shape=...) with the shape of one row, or use a categorical column.",
            )
        values = values.astype("float32").reshape(-1, *self.shape)
        if self.normalizer_fn is not None:
            values = jnp.asarray(self.normalizer_fn(values), "float32")
        return values.reshape(-1, self.width)


@dataclass(frozen=True)
class Bucketized(Dense, Categorical):
    """Numbers sorted into ranges; see `bucketized_column`."""

    source_column: Numeric
    boundaries: tuple[float, ...]

    @property
    def parse_spec(self) -> dict[str, Any]:
        return self.source_column.parse_spec

    def numbers(self, features: Mapping[str, Any]) -> jax.Array:
        values = self.source_column.rows(features, None)
        ranges = jnp.searchsorted(jnp.asarray(self.boundaries, "float32"), values, side="right").astype("int32")
        return ranges + (len(self.boundaries) + 1) * jnp.arange(self.source_column.width)

    def rows(self, features: Mapping[str, Any], table: Any) -> jax.Array:
        return many_hot(self, features)


@dataclass(frozen=True)
class OfCategorical(Dense):
    """Numbers for the values of a categorical column."""

    categorical_column: Categorical

    @property
    def parse_spec(self) -> dict[str, Any]:
        return self.categorical_column.parse_spec


@dataclass(frozen=True)
class Indicator(OfCategorical):
    """The count of each value in a row; see `indicator_column`."""

    def rows(self, features: Mapping[str, Any], table: Any) -> jax.Array:
        return many_hot(self.categorical_column, features)


@dataclass(frozen=True)
class Embedding(OfCategorical):
    """A vector for each value, which is trained; see `embedding_column`."""

    combiner: str
    initializer: Any
    trainable: bool
    shared_name: str | None = None

    @property
    def dimension(self) -> int:
        """The length of a vector, by TensorFlow's name."""
        return self.width

    def table_of_weights(self) -> keras.Variable:
        """Make its variable."""
        initializer = self.initializer
        if initializer is None:
            initializer = keras.initializers.TruncatedNormal(0.0, 1.0 / math.sqrt(self.width))
        shape = (self.categorical_column.buckets, self.width)
        return keras.Variable(initializer, shape=shape, trainable=self.trainable, name="embedding_weights")

    def rows(self, features: Mapping[str, Any], table: Any) -> jax.Array:
        return combined(self.categorical_column, features, table, self.combiner)


def numeric_column(
    key: str,
    shape: Any = (1,),
    default_value: Any = None,
    dtype: Any = "float32",
    normalizer_fn: Callable[[Any], Any] | None = None,
) -> Numeric:
    """Return a column of numbers (`tf.feature_column.numeric_column`).

    Args:
        key: Key of the feature.
        shape: Shape of one row.
        default_value: Value for an example that lacks the feature.
        dtype: Dtype in files of examples.
        normalizer_fn: Function that is applied to the batch of numbers.

    Example:
        >>> column = numeric_column("age", normalizer_fn=lambda age: age / 100)
        >>> column.rows({"age": jnp.array([50, 25])}, None).tolist()
        [[0.5], [0.25]]
    """
    sizes = tuple(int(size) for size in sizes_of(shape))
    if not isinstance(key, str) or (normalizer_fn is not None and not callable(normalizer_fn)):
        remedy = 'Write numeric_column("age", normalizer_fn=lambda age: age / 100).'
        raise unusable("numeric_column", remedy, key=key, normalizer_fn=normalizer_fn)
    return Numeric(key, math.prod(sizes), sizes, default_value, dtype, normalizer_fn)


def bucketized_column(source_column: Numeric, boundaries: Sequence[float]) -> Bucketized:
    """Return a column of ranges of numbers (`tf.feature_column.bucketized_column`).

    Args:
        source_column: A numeric column.
        boundaries: Ascending numbers; each is the start of a range.

    Raises:
        InputError: The column is not numeric, or the numbers are not ascending.

    Example:
        >>> column = bucketized_column(numeric_column("age"), [18, 65])
        >>> column.rows({"age": jnp.array([17, 18])}, None).tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    bounds = tuple(boundaries)
    if not isinstance(source_column, Numeric) or not bounds or any(a >= b for a, b in itertools.pairwise(bounds)):
        remedy = 'Write bucketized_column(numeric_column("age"), boundaries=[18, 25, 30]), with rising numbers.'
        raise unusable("bucketized_column", remedy, source_column=source_column, boundaries=boundaries)
    buckets = (len(bounds) + 1) * source_column.width
    return Bucketized(f"{source_column.name}_bucketized", buckets, buckets, source_column, bounds)


def indicator_column(categorical_column: Categorical) -> Indicator:
    """Return a column with a 1 for each value, else 0 (`tf.feature_column.indicator_column`).

    Args:
        categorical_column: The values.
    """
    _check_categorical("indicator_column", categorical_column)
    return Indicator(f"{categorical_column.name}_indicator", categorical_column.buckets, categorical_column)


def embedding_column(
    categorical_column: Categorical,
    dimension: int,
    combiner: str = "mean",
    initializer: Any = None,
    ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None,
    trainable: bool = True,
    **options: Any,
) -> Embedding:
    """Return a column with a vector for each value (`tf.feature_column.embedding_column`).

    Args:
        categorical_column: The values.
        dimension: Length of the vectors.
        combiner: How the vectors of several values in a row are combined: "mean", "sqrtn" or "sum".
        initializer: Initializer of the vectors; None means a truncated normal one with deviation `1 / sqrt(dimension)`.
        ckpt_to_load_from: Not supported; use `warm_start_from` of an Estimator.
        tensor_name_in_ckpt: As `ckpt_to_load_from`.
        max_norm: Not supported.
        trainable: Whether the vectors are trained.
        options: `use_safe_embedding_lookup`: accepted; rows without a value are 0.

    Raises:
        InputError: An argument cannot be used.
    """
    for name, value in (("ckpt_to_load_from", ckpt_to_load_from), ("max_norm", max_norm)):
        if value is not None:
            remedy = "Leave it out. For initial weights, write Estimator(..., warm_start_from=WarmStartSettings(...))."
            raise unusable("embedding_column", remedy, **{name: value})
    if combiner not in _COMBINERS or not isinstance(dimension, int | np.integer) or dimension < 1:
        remedy = f"Write a whole number from 1 on, and one of {', '.join(_COMBINERS)}."
        raise unusable("embedding_column", remedy, dimension=dimension, combiner=combiner)
    _check_categorical("embedding_column", categorical_column)
    name = f"{categorical_column.name}_embedding"
    return Embedding(name, int(dimension), categorical_column, combiner, initializer, trainable)


def shared_embeddings(
    categorical_columns: Sequence[Categorical],
    dimension: int,
    combiner: str = "mean",
    initializer: Any = None,
    shared_embedding_collection_name: str | None = None,
    **options: Any,
) -> list[Embedding]:
    """Return columns that share the vectors of equal values (`tf.feature_column.shared_embeddings`).

    Args:
        categorical_columns: Columns with equal numbers of buckets.
        dimension: As for `embedding_column`.
        combiner: As for `embedding_column`.
        initializer: As for `embedding_column`.
        shared_embedding_collection_name: Name of the vectors.
        options: As for `embedding_column`.

    Raises:
        InputError: The columns have different numbers of buckets.
    """
    if len({column.buckets for column in categorical_columns}) != 1:
        raise InputError(
            f"shared_embeddings was given columns of {[column.buckets for column in categorical_columns]} buckets.",
            "Make them with the same vocabulary: only then can they share vectors.",
        )
    name = shared_embedding_collection_name
    name = name or "_".join(sorted(column.name for column in categorical_columns)) + "_shared_embedding"
    single = [embedding_column(column, dimension, combiner, initializer, **options) for column in categorical_columns]
    return [
        replace(column, name=f"{column.categorical_column.name}_shared_embedding", shared_name=name)
        for column in single
    ]


def many_hot(column: Categorical, features: Mapping[str, Any]) -> jax.Array:
    """Return the count of each value in each row, or its weight, of shape (rows, buckets)."""
    ones = jax.nn.one_hot(column.numbers(features), column.buckets)
    weights = column.weights(features)
    return jnp.sum(ones if weights is None else ones * weights[..., None], axis=1)


def combined(column: Categorical, features: Mapping[str, Any], table: Any, combiner: str) -> jax.Array:
    """Return for each row the vectors of its values made one; 0 without any.

    Args:
        column: The values.
        features: The features.
        table: The vectors, of shape (buckets, dimension).
        combiner: "mean", "sqrtn" or "sum".
    """
    numbers, weights = column.numbers(features), column.weights(features)
    there = (numbers >= 0).astype("float32")
    weights = there if weights is None else there * weights
    vectors = jnp.take(jnp.asarray(table), jnp.maximum(numbers, 0), axis=0)
    total = jnp.sum(vectors * weights[..., None], axis=1)
    if combiner == "sum":
        return total
    size = jnp.sum(weights, axis=1) if combiner == "mean" else jnp.sqrt(jnp.sum(weights**2, axis=1))
    return total / jnp.where(size == 0, 1.0, size)[:, None]


def _check_categorical(what: str, column: Any) -> None:
    if not isinstance(column, Categorical):
        raise InputError(
            f"{what} was given {getattr(column, 'name', column)!r}, a {type(column).__name__}.",
            "Give a column of categorical_column_with_..., bucketized_column or crossed_column.",
        )
