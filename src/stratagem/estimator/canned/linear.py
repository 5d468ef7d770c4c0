"""Linear models (`tf.estimator.LinearClassifier`, `LinearRegressor`), and models that look at no feature.

Source of the semantics:
https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/estimator/LinearClassifier
https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/estimator/BaselineClassifier
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from stratagem.estimator.canned.base import Canned, Folder, Logits, Part, minimizing
from stratagem.estimator.canned.heads import Head, RegressionHead, classification_head
from stratagem.estimator.feature_column.models import LinearModel, ordered
from stratagem.estimator.graph import get_variable, opened, variable_scope
from stratagem.estimator.run_config import RunConfig


class BaselineEstimator(Canned):
    """A model that looks at no feature: one number for each logit, under any head (`tf.estimator.BaselineEstimator`).

    Args:
        head: Makes loss, predictions and metrics of logits.
        model_dir: As for `Estimator`.
        optimizer: As for `LinearEstimator`.
        config: As for `Estimator`.
    """

    def __init__(
        self, head: Head, model_dir: Folder = None, optimizer: Any = "Ftrl", config: RunConfig | None = None
    ) -> None:
        units = head.logits_dimension

        def logits(features: Any, mode: str) -> jax.Array:
            with variable_scope("baseline"):
                bias = get_variable("bias", (units,), initializer="zeros")
            return jnp.broadcast_to(jnp.asarray(bias), (jax.tree.leaves(features)[0].shape[0], units))

        super().__init__(head, [Part(logits, minimizing("optimizer", optimizer, 0.3))], model_dir, config)


class BaselineClassifier(BaselineEstimator):
    """A model of how often each class occurs (`tf.estimator.BaselineClassifier`).

    Args:
        model_dir: As for `Estimator`.
        n_classes: How many classes; labels are numbers from 0 on.
        weight_column: Key of the feature with the weights of examples.
        label_vocabulary: Names of the classes, where labels are text.
        loss_reduction: "sum_over_batch_size" or "sum".
        options: Other arguments of `BaselineEstimator`, by name.
    """

    def __init__(
        self,
        model_dir: Folder = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[Any] | None = None,
        *,
        loss_reduction: str = "sum_over_batch_size",
        **options: Any,
    ) -> None:
        head = classification_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(head, model_dir, **options)


class BaselineRegressor(BaselineEstimator):
    """The mean of the labels (`tf.estimator.BaselineRegressor`).

    Args:
        model_dir: As for `Estimator`.
        label_dimension: How many numbers for each example.
        weight_column: Key of the feature with the weights of examples.
        loss_reduction: "sum_over_batch_size" or "sum".
        options: Other arguments of `BaselineEstimator`, by name.
    """

    def __init__(
        self,
        model_dir: Folder = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        *,
        loss_reduction: str = "sum_over_batch_size",
        **options: Any,
    ) -> None:
        super().__init__(RegressionHead(label_dimension, weight_column, loss_reduction), model_dir, **options)


class LinearEstimator(Canned):
    """A linear model under any head (`tf.estimator.LinearEstimator`).

    Args:
        head: Makes loss, predictions and metrics of logits.
        feature_columns: Columns of any kind.
        model_dir: As for `Estimator`.
        optimizer: An optimizer, one of the names "Adagrad", "Adam", "Ftrl", "RMSProp", "SGD", or a function that makes
            one in the model_fn.
        config: As for `Estimator`.
        sparse_combiner: How the weights of several values of a feature become one: "sum", "mean" or "sqrtn".
        warm_start_from: As for `Estimator`.
    """

    def __init__(
        self,
        head: Head,
        feature_columns: Sequence[Any],
        model_dir: Folder = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        sparse_combiner: str = "sum",
        warm_start_from: Any = None,
    ) -> None:
        columns = ordered(feature_columns)
        train = minimizing("optimizer", optimizer, min(0.2, 1.0 / math.sqrt(len(columns))))
        part = Part(linear_logits(columns, head.logits_dimension, sparse_combiner), train)
        super().__init__(head, [part], model_dir, config, warm_start_from)


class LinearClassifier(LinearEstimator):
    """A linear model that tells classes apart (`tf.estimator.LinearClassifier`).

    Args:
        feature_columns: Columns of any kind.
        model_dir: As for `Estimator`.
        n_classes: How many classes; labels are numbers from 0 on.
        weight_column: Key of the feature with the weights of examples.
        label_vocabulary: Names of the classes, where labels are text.
        loss_reduction: "sum_over_batch_size" or "sum".
        options: Other arguments of `LinearEstimator`, by name.

    Example:
        >>> from stratagem.estimator import RunConfig, feature_column
        >>> columns = [feature_column.categorical_column_with_vocabulary_list("color", ["red", "blue"])]
        >>> classifier = LinearClassifier(columns, config=RunConfig(save_summary_steps=None))
        >>> input_fn = lambda: ({"color": ["red", "blue"]}, [1, 0])
        >>> [bytes(row["classes"][0]) for row in classifier.train(input_fn, steps=50).predict(input_fn)]
        [b'1', b'0']
    """

    def __init__(
        self,
        feature_columns: Sequence[Any],
        model_dir: Folder = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[Any] | None = None,
        *,
        loss_reduction: str = "sum_over_batch_size",
        **options: Any,
    ) -> None:
        head = classification_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(head, feature_columns, model_dir, **options)


class LinearRegressor(LinearEstimator):
    """A linear model that predicts numbers (`tf.estimator.LinearRegressor`).

    Args:
        feature_columns: Columns of any kind.
        model_dir: As for `Estimator`.
        label_dimension: How many numbers for each example.
        weight_column: Key of the feature with the weights of examples.
        loss_reduction: "sum_over_batch_size" or "sum".
        options: Other arguments of `LinearEstimator`, by name.
    """

    def __init__(
        self,
        feature_columns: Sequence[Any],
        model_dir: Folder = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        *,
        loss_reduction: str = "sum_over_batch_size",
        **options: Any,
    ) -> None:
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        super().__init__(head, feature_columns, model_dir, **options)


def linear_logits(columns: Sequence[Any], units: int, combiner: str) -> Logits:
    """Return a function that computes the outputs of a linear model.

    Args:
        columns: The columns, in order.
        units: How many outputs.
        combiner: How the weights of several values of a feature become one.
    """

    def logits(features: Any, mode: str) -> Any:
        with opened("linear"):
            return LinearModel(columns, units, combiner)(features)

    return logits
