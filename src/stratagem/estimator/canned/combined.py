"""Wide and deep models (`tf.estimator.DNNLinearCombinedClassifier`). Source of the semantics:
https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/estimator/DNNLinearCombinedClassifier
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from stratagem.core.errors import InputError
from stratagem.estimator.canned.base import Canned, Folder, minimizing
from stratagem.estimator.canned.linear import linear_logits
from stratagem.estimator.canned.network import Network
from stratagem.estimator.feature_column.models import ordered
from stratagem.estimator.heads import Head, RegressionHead, classification_head
from stratagem.estimator.run_config import RunConfig
from stratagem.estimator.spec import EstimatorSpec
from stratagem.estimator.updates import group


class DNNLinearCombinedEstimator(Canned):
    """A linear model and a network of dense layers, summed, under any head (`tf.estimator.DNNLinearCombinedEstimator`).

    Args:
        head: Makes loss, predictions and metrics of logits.
        model_dir: As for `Estimator`.
        linear_feature_columns: Columns of the linear model; None for no such model.
        linear_optimizer: As for `LinearEstimator`.
        dnn_feature_columns: Columns of the network; None for none.
        dnn_optimizer: As for `LinearEstimator`.
        dnn_hidden_units: Units of each layer of the network.
        dnn_activation_fn: As for `DNNEstimator`.
        dnn_dropout: As for `DNNEstimator`.
        config: As for `Estimator`.
        warm_start_from: As for `Estimator`.
        batch_norm: As for `DNNEstimator`.
        linear_sparse_combiner: As for `LinearEstimator`.

    Raises:
        InputError: There are no columns, or a network without units or columns.
    """

    def __init__(
        self,
        head: Head,
        model_dir: Folder = None,
        linear_feature_columns: Sequence[Any] | None = None,
        linear_optimizer: Any = "Ftrl",
        dnn_feature_columns: Sequence[Any] | None = None,
        dnn_optimizer: Any = "Adagrad",
        dnn_hidden_units: Sequence[int] | None = None,
        dnn_activation_fn: Any = "relu",
        dnn_dropout: float | None = None,
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        wide, deep = list(linear_feature_columns or []), list(dnn_feature_columns or [])
        if not wide + deep or bool(deep) != bool(dnn_hidden_units):
            raise InputError(
                f"The combined model was given {len(wide)} linear_feature_columns, {len(deep)} dnn_feature_columns "
                f"and dnn_hidden_units={dnn_hidden_units!r}.",
                "A part of the model would have no input, or no layers.",
                "Give columns to each part, and dnn_hidden_units=[100, 50] to the network.",
            )
        units = head.logits_dimension
        network = None
        if deep:
            network = Network(dnn_hidden_units or (), ordered(deep), units, dnn_activation_fn, dnn_dropout, batch_norm)
        columns = ordered(wide) if wide else []
        rate = min(0.005, 1.0 / math.sqrt(max(1, len(columns))))
        train_deep = minimizing("dnn_optimizer", dnn_optimizer, 0.001, "dnn/")
        train_wide = minimizing("linear_optimizer", linear_optimizer, rate, "linear/")

        def train_op(loss: Any) -> Any:
            return group(*([train_deep(loss)] if deep else []), *([train_wide(loss)] if columns else []))

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            parts = [] if network is None else [network(features, mode)]
            if columns:
                parts.append(linear_logits(features, columns, units, linear_sparse_combiner))

            return head.create_estimator_spec(features, mode, sum(parts), labels, train_op_fn=train_op)

        super().__init__(model_fn, model_dir, config, warm_start_from)


class DNNLinearCombinedClassifier(DNNLinearCombinedEstimator):
    """A wide and deep model that tells classes apart (`tf.estimator.DNNLinearCombinedClassifier`).

    Args:
        model_dir: As for `Estimator`.
        n_classes: How many classes; labels are numbers from 0 on.
        weight_column: Key of the feature that says how much an example weighs.
        label_vocabulary: Names of the classes, where labels are text.
        loss_reduction: "sum_over_batch_size" or "sum".
        options: Other arguments of `DNNLinearCombinedEstimator`, by name.
    """

    def __init__(
        self,
        model_dir: Folder = None,
        *,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[Any] | None = None,
        loss_reduction: str = "sum_over_batch_size",
        **options: Any,
    ) -> None:
        head = classification_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(head, model_dir, **options)


class DNNLinearCombinedRegressor(DNNLinearCombinedEstimator):
    """A wide and deep model that predicts numbers (`tf.estimator.DNNLinearCombinedRegressor`).

    Args:
        model_dir: As for `Estimator`.
        label_dimension: How many numbers for each example.
        weight_column: Key of the feature that says how much an example weighs.
        loss_reduction: "sum_over_batch_size" or "sum".
        options: Other arguments of `DNNLinearCombinedEstimator`, by name.
    """

    def __init__(
        self,
        model_dir: Folder = None,
        *,
        label_dimension: int = 1,
        weight_column: Any = None,
        loss_reduction: str = "sum_over_batch_size",
        **options: Any,
    ) -> None:
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        super().__init__(head, model_dir, **options)
