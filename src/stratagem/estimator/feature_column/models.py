"""Layers that take features by columns: the input of a network, and a linear model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras

from stratagem.core.errors import InputError
from stratagem.estimator.feature_column.columns import Categorical, Column
from stratagem.estimator.feature_column.dense import Dense, Embedding, combined
from stratagem.estimator.graph import opened


class DenseFeatures(keras.layers.Layer):
    """Concatenate the numbers of columns in the order of their names (`tf.keras.layers.DenseFeatures`).

    Args:
        feature_columns: Numeric, bucketized, indicator and embedding columns.
        trainable: Whether to train its variables.
        name: Name of the layer.

    Raises:
        InputError: A column gives no numbers, or two have the same name.
    """

    def __init__(self, feature_columns: Any, trainable: bool = True, name: str | None = None, **options: Any) -> None:
        super().__init__(trainable=trainable, name=name)
        self._columns = ordered(feature_columns)
        self._tables: dict[str, keras.Variable] = {}
        for column in self._columns:
            if not isinstance(column, Dense):
                raise InputError(
                    f"DenseFeatures was given {column.name!r}, a categorical column.",
                    "Wrap it: indicator_column(column), or embedding_column(column, dimension=8).",
                )

    def __call__(self, features: Mapping[str, Any], cols_to_output_tensors: Any = None, training: Any = None) -> Any:
        """Return the numbers of a batch, of shape (rows, sum of widths).

        Args:
            features: Features by key.
            cols_to_output_tensors: A dictionary that gets the numbers of each column.
            training: Without effect.
        """
        _make_variables_of(self)
        parts = [column.rows(features, self._tables.get(_table_name(column))) for column in self._columns]
        if cols_to_output_tensors is not None:
            cols_to_output_tensors.update(zip(self._columns, parts, strict=True))
        return jnp.concatenate(parts, axis=-1)

    def make_variables(self) -> None:
        """Make a table of vectors for each embedding; those that share one make it once."""
        for column in self._columns:
            name = _table_name(column)
            if isinstance(column, Embedding) and name not in self._tables:
                with opened(name):
                    self._tables = {**self._tables, name: column.table_of_weights()}


class LinearModel(keras.layers.Layer):
    """Sum of the weights of columns (`tf.compat.v1.keras.experimental.LinearModel` for columns).

    Args:
        feature_columns: Numeric and categorical columns; embeddings and indicators as well.
        units: Number of outputs for each row.
        sparse_combiner: How the weights of several values in a row are combined: "sum", "mean" or "sqrtn".
        name: Name of the layer.

    Raises:
        InputError: Two columns have the same name.
    """

    def __init__(
        self, feature_columns: Any, units: int = 1, sparse_combiner: str = "sum", name: str = "linear_model"
    ) -> None:
        super().__init__(name=name)
        self._columns = ordered(feature_columns)
        self._units = units
        self._combiner = sparse_combiner
        self._tables: dict[str, keras.Variable] = {}
        self._embeddings: dict[str, keras.Variable] = {}
        self.bias: Any = None

    def __call__(self, features: Mapping[str, Any]) -> jax.Array:
        """Return the sums, of shape (rows, units)."""
        _make_variables_of(self)
        total: Any = jnp.asarray(self.bias)
        for column in self._columns:
            table = self._tables[column.name]
            if isinstance(column, Categorical):
                total = total + combined(column, features, table, self._combiner)
            elif isinstance(column, Dense):
                total = total + column.rows(features, self._embeddings.get(column.name)) @ jnp.asarray(table)
        return total

    def make_variables(self) -> None:
        """Make the weights of each column, and the bias."""
        for column in self._columns:
            with opened(column.name):
                if isinstance(column, Embedding):
                    self._embeddings = {**self._embeddings, column.name: column.table_of_weights()}
                rows = column.buckets if isinstance(column, Categorical) else column.width  # pyright: ignore
                weights = keras.Variable("zeros", shape=(rows, self._units), name="weights")
            self._tables = {**self._tables, column.name: weights}
        self.bias = keras.Variable("zeros", shape=(self._units,), name="bias_weights")


def input_layer(
    features: Mapping[str, Any],
    feature_columns: Any,
    weight_collections: Any = None,
    trainable: bool = True,
    cols_to_vars: Any = None,
    cols_to_output_tensors: Any = None,
) -> jax.Array:
    """Return the numbers of columns, for the first layer of a network (`tf.compat.v1.feature_column.input_layer`).

    Args:
        features: Features by key.
        feature_columns: As for `DenseFeatures`.
        weight_collections: Accepted as in TensorFlow.
        trainable: Whether the vectors of embeddings are trained.
        cols_to_vars: Accepted as in TensorFlow.
        cols_to_output_tensors: A dictionary that gets the numbers of each column.

    Returns:
        An array of shape (rows, sum of the widths), with columns in the order of their names.
    """
    return DenseFeatures(feature_columns, trainable, name="input_layer")(features, cols_to_output_tensors)


def linear_model(
    features: Mapping[str, Any], feature_columns: Any, units: int = 1, sparse_combiner: str = "sum", **options: Any
) -> jax.Array:
    """Return the sums of the weights of columns (`tf.compat.v1.feature_column.linear_model`).

    Args:
        features: Features by key.
        feature_columns: As for `LinearModel`.
        units: Number of outputs for each row.
        sparse_combiner: As for `LinearModel`.
        options: `weight_collections`, `trainable`, `cols_to_vars`: accepted without effect.
    """
    return LinearModel(feature_columns, units, sparse_combiner)(features)


def _make_variables_of(layer: DenseFeatures | LinearModel) -> None:
    """Make a layer's variables before its first call; Keras's `build` would take text for tensors."""
    if not layer.built:
        with keras.name_scope(layer.name, caller=layer):
            layer.make_variables()
        layer.built = True


def _table_name(column: Any) -> str:
    return getattr(column, "shared_name", None) or column.name


def ordered(feature_columns: Any) -> Sequence[Any]:
    """Return columns in the order of their names, as TensorFlow joins them.

    Raises:
        InputError: There are none, one of them is not a column, or two have the same name.
    """
    columns = list(feature_columns) if isinstance(feature_columns, Iterable) else [feature_columns]
    wrong = [column for column in columns if not isinstance(column, Column)]
    names = [column.name for column in columns if isinstance(column, Column)]
    if wrong or not columns or len(set(names)) < len(names):
        found = f"{wrong[0]!r} among them" if wrong else f"the names {', '.join(names) or 'none'}"
        raise InputError(
            f"feature_columns were given, with {found}.",
            'Write feature_columns=[stratagem.estimator.feature_column.numeric_column("age"), ...].',
        )
    return sorted(columns, key=lambda column: column.name)
