"""Models that look at no feature (`tf.estimator.BaselineClassifier`, `BaselineRegressor`). Source of the semantics:
https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/estimator/BaselineClassifier
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from stratagem.estimator.canned.base import Canned, Folder, minimizing
from stratagem.estimator.graph import get_variable, variable_scope
from stratagem.estimator.heads import Head, RegressionHead, classification_head
from stratagem.estimator.run_config import RunConfig
from stratagem.estimator.spec import EstimatorSpec


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
        train_op = minimizing("optimizer", optimizer, 0.3)

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            with variable_scope("baseline"):
                bias = get_variable("bias", (head.logits_dimension,), initializer="zeros")
            rows = jax.tree.leaves(features)[0].shape[0]
            logits = jnp.broadcast_to(jnp.asarray(bias), (rows, head.logits_dimension))
            return head.create_estimator_spec(features, mode, logits, labels, train_op_fn=train_op)

        super().__init__(model_fn, model_dir, config, None)


class BaselineClassifier(BaselineEstimator):
    """How often each class occurs (`tf.estimator.BaselineClassifier`).

    Args:
        model_dir: As for `Estimator`.
        n_classes: How many classes; labels are numbers from 0 on.
        weight_column: Key of the feature that says how much an example weighs.
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
        super().__init__(
            classification_head(n_classes, weight_column, label_vocabulary, loss_reduction), model_dir, **options
        )


class BaselineRegressor(BaselineEstimator):
    """The mean of the labels (`tf.estimator.BaselineRegressor`).

    Args:
        model_dir: As for `Estimator`.
        label_dimension: How many numbers for each example.
        weight_column: Key of the feature that says how much an example weighs.
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
