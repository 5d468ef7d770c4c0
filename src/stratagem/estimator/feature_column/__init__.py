"""Feature columns, which turn features into the numbers of a model (`tf.feature_column`).

Words are looked up and hashed on the devices, from the fingerprints that the input pipeline makes of them.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/feature_column
"""

from __future__ import annotations

from stratagem.estimator.feature_column.columns import (
    categorical_column_with_hash_bucket as categorical_column_with_hash_bucket,
)
from stratagem.estimator.feature_column.columns import (
    categorical_column_with_identity as categorical_column_with_identity,
)
from stratagem.estimator.feature_column.columns import (
    categorical_column_with_vocabulary_file as categorical_column_with_vocabulary_file,
)
from stratagem.estimator.feature_column.columns import (
    categorical_column_with_vocabulary_list as categorical_column_with_vocabulary_list,
)
from stratagem.estimator.feature_column.columns import crossed_column as crossed_column
from stratagem.estimator.feature_column.columns import make_parse_example_spec as make_parse_example_spec
from stratagem.estimator.feature_column.columns import weighted_categorical_column as weighted_categorical_column
from stratagem.estimator.feature_column.dense import bucketized_column as bucketized_column
from stratagem.estimator.feature_column.dense import embedding_column as embedding_column
from stratagem.estimator.feature_column.dense import indicator_column as indicator_column
from stratagem.estimator.feature_column.dense import numeric_column as numeric_column
from stratagem.estimator.feature_column.dense import shared_embeddings as shared_embeddings
from stratagem.estimator.feature_column.models import DenseFeatures as DenseFeatures
from stratagem.estimator.feature_column.models import LinearModel as LinearModel
from stratagem.estimator.feature_column.models import input_layer as input_layer
from stratagem.estimator.feature_column.models import linear_model as linear_model
