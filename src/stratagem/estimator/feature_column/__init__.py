"""Feature columns: how features become numbers that a model takes (`tf.feature_column`).

Words are looked up and hashed on the devices, from the fingerprints that the input pipeline makes of them.
Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/feature_column
"""

from __future__ import annotations

from stratagem.estimator.feature_column.categorical import (
    categorical_column_with_hash_bucket,
    categorical_column_with_identity,
    categorical_column_with_vocabulary_file,
    categorical_column_with_vocabulary_list,
    crossed_column,
    weighted_categorical_column,
)
from stratagem.estimator.feature_column.dense import (
    bucketized_column,
    embedding_column,
    indicator_column,
    numeric_column,
    shared_embeddings,
)
from stratagem.estimator.feature_column.models import (
    DenseFeatures,
    LinearModel,
    input_layer,
    linear_model,
    make_parse_example_spec,
)

__all__ = [
    "DenseFeatures",
    "LinearModel",
    "bucketized_column",
    "categorical_column_with_hash_bucket",
    "categorical_column_with_identity",
    "categorical_column_with_vocabulary_file",
    "categorical_column_with_vocabulary_list",
    "crossed_column",
    "embedding_column",
    "indicator_column",
    "input_layer",
    "linear_model",
    "make_parse_example_spec",
    "numeric_column",
    "shared_embeddings",
    "weighted_categorical_column",
]
