"""Networks of dense layers (`tf.estimator.DNNClassifier`, `DNNRegressor`). Source of the semantics:
https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/estimator/DNNClassifier
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from stratagem.core.errors import InputError
from stratagem.estimator.canned.base import Canned, Folder, minimizing
from stratagem.estimator.feature_column.models import DenseFeatures, ordered
from stratagem.estimator.graph import opened
from stratagem.estimator.heads import Head, RegressionHead, classification_head
from stratagem.estimator.run_config import RunConfig
from stratagem.estimator.spec import EstimatorSpec, ModeKeys


class DNNEstimator(Canned):
    """A network of dense layers under any head (`tf.estimator.DNNEstimator`).

    Args:
        head: Makes loss, predictions and metrics of logits.
        hidden_units: Units of each layer.
        feature_columns: Numeric, bucketized, indicator and embedding columns.
        model_dir: As for `Estimator`.
        optimizer: As for `LinearEstimator`.
        activation_fn: Of each layer.
        dropout: Which part of the outputs of each layer is left out in training; None for none.
        config: As for `Estimator`.
        warm_start_from: As for `Estimator`.
        batch_norm: Whether batch normalization follows each layer.
    """

    def __init__(
        self,
        head: Head,
        hidden_units: Sequence[int],
        feature_columns: Sequence[Any],
        model_dir: Folder = None,
        optimizer: Any = "Adagrad",
        activation_fn: Any = "relu",
        dropout: float | None = None,
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        batch_norm: bool = False,
    ) -> None:
        columns = ordered(feature_columns)
        train_op = minimizing("optimizer", optimizer, 0.05)
        network = Network(hidden_units, columns, head.logits_dimension, activation_fn, dropout, batch_norm)

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            logits = network(features, mode)
            return head.create_estimator_spec(features, mode, logits, labels, train_op_fn=train_op)

        super().__init__(model_fn, model_dir, config, warm_start_from)


class DNNClassifier(DNNEstimator):
    """A network of dense layers that tells classes apart (`tf.estimator.DNNClassifier`).

    Args:
        hidden_units: Units of each layer.
        feature_columns: Numeric, bucketized, indicator and embedding columns.
        model_dir: As for `Estimator`.
        n_classes: How many classes; labels are numbers from 0 on.
        weight_column: Key of the feature that says how much an example weighs.
        label_vocabulary: Names of the classes, where labels are text.
        loss_reduction: "sum_over_batch_size" or "sum".
        options: Other arguments of `DNNEstimator`, by name.
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
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
        super().__init__(head, hidden_units, feature_columns, model_dir, **options)


class DNNRegressor(DNNEstimator):
    """A network of dense layers that predicts numbers (`tf.estimator.DNNRegressor`).

    Args:
        hidden_units: Units of each layer.
        feature_columns: Numeric, bucketized, indicator and embedding columns.
        model_dir: As for `Estimator`.
        label_dimension: How many numbers for each example.
        weight_column: Key of the feature that says how much an example weighs.
        loss_reduction: "sum_over_batch_size" or "sum".
        options: Other arguments of `DNNEstimator`, by name.
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        feature_columns: Sequence[Any],
        model_dir: Folder = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        *,
        loss_reduction: str = "sum_over_batch_size",
        **options: Any,
    ) -> None:
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        super().__init__(head, hidden_units, feature_columns, model_dir, **options)


class Network:
    """Dense layers on columns, made anew in each call of a model_fn.

    Args:
        hidden_units: Units of each layer.
        columns: The columns, in order.
        logits: How many outputs.
        activation: Of each layer.
        dropout: Which part of outputs is left out in training.
        batch_norm: Whether batch normalization follows each layer.
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        columns: Sequence[Any],
        logits: int,
        activation: Any,
        dropout: float | None,
        batch_norm: bool,
    ) -> None:
        if not isinstance(hidden_units, list | tuple) or not all(isinstance(units, int) for units in hidden_units):
            raise InputError(
                f"hidden_units is {hidden_units!r}.",
                "How many layers there are, and how wide they are, is not clear.",
                "Write a list of whole numbers, one for each layer: hidden_units=[100, 50].",
            )
        self._units = list(hidden_units)
        self._columns = columns
        self._logits = logits
        self._activation = activation
        self._dropout = dropout
        self._batch_norm = batch_norm

    def __call__(self, features: Any, mode: str) -> Any:
        """Return the logits."""
        training = mode == ModeKeys.TRAIN
        with opened("dnn/input_from_feature_columns"):
            values = DenseFeatures(self._columns, name="input_layer")(features)
        for number, units in enumerate(self._units):
            name = f"hiddenlayer_{number}"
            with opened("dnn"):
                values = keras.layers.Dense(units, self._activation, name=name)(values)
            if self._dropout is not None:
                values = keras.layers.Dropout(self._dropout)(values, training=training)
            if self._batch_norm:
                with opened(f"dnn/{name}"):
                    layer = keras.layers.BatchNormalization(momentum=0.999, name=f"batchnorm_{number}")
                    values = layer(values, training=training)
        with opened("dnn"):
            return keras.layers.Dense(self._logits, name="logits")(values)
