"""Linear models, networks of dense layers, both summed (wide and deep models), and models that look at no feature.

Source of the semantics: https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/estimator/LinearClassifier
https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/estimator/BaselineClassifier
https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/estimator/DNNClassifier
https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/estimator/DNNLinearCombinedClassifier
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras

from stratagem.core.errors import InputError
from stratagem.estimator.canned.base import Canned, Folder, Logits, Part, minimizing
from stratagem.estimator.canned.heads import Head, RegressionHead, classification_head
from stratagem.estimator.feature_column.models import DenseFeatures, LinearModel, ordered
from stratagem.estimator.graph import get_variable, opened, variable_scope
from stratagem.estimator.run_config import RunConfig
from stratagem.estimator.spec import ModeKeys


class BaselineEstimator(Canned):
    """A baseline that uses no features: one number for each logit, under any head (`tf.estimator.BaselineEstimator`).

    Args:
        head: Computes the loss, predictions and metrics from logits.
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
    """A baseline that predicts the frequency of each class (`tf.estimator.BaselineClassifier`).

    Args:
        model_dir: As for `Estimator`.
        n_classes: Number of classes; labels are numbers from 0.
        weight_column: Key of the feature with the weights of examples.
        label_vocabulary: Names of the classes, if labels are text.
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
    """A baseline that predicts the mean of the labels (`tf.estimator.BaselineRegressor`).

    Args:
        model_dir: As for `Estimator`.
        label_dimension: Number of labels for each example.
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
        head: Computes the loss, predictions and metrics from logits.
        feature_columns: Columns of any kind.
        model_dir: As for `Estimator`.
        optimizer: An optimizer, one of the names "Adagrad", "Adam", "Ftrl", "RMSProp", "SGD", or a function that makes
            an optimizer in the model_fn.
        config: As for `Estimator`.
        sparse_combiner: How the weights of several values of a feature are combined: "sum", "mean" or "sqrtn".
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
    """A linear model for classification (`tf.estimator.LinearClassifier`).

    Args:
        feature_columns: Columns of any kind.
        model_dir: As for `Estimator`.
        n_classes: Number of classes; labels are numbers from 0.
        weight_column: Key of the feature with the weights of examples.
        label_vocabulary: Names of the classes, if labels are text.
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
    """A linear model for regression (`tf.estimator.LinearRegressor`).

    Args:
        feature_columns: Columns of any kind.
        model_dir: As for `Estimator`.
        label_dimension: Number of labels for each example.
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


class DNNEstimator(Canned):
    """A network of dense layers under any head (`tf.estimator.DNNEstimator`).

    Args:
        head: Computes the loss, predictions and metrics from logits.
        hidden_units: Number of units of each layer.
        feature_columns: Numeric, bucketized, indicator and embedding columns.
        model_dir: As for `Estimator`.
        optimizer: As for `LinearEstimator`.
        activation_fn: Activation function of each layer.
        dropout: Fraction of the outputs of each layer that is dropped in training; None means none.
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
        columns, units = ordered(feature_columns), head.logits_dimension
        train = minimizing("optimizer", optimizer, 0.05)
        part = Part(network_logits(hidden_units, columns, units, activation_fn, dropout, batch_norm), train)
        super().__init__(head, [part], model_dir, config, warm_start_from)


class DNNClassifier(DNNEstimator):
    """A network of dense layers for classification (`tf.estimator.DNNClassifier`).

    Args:
        hidden_units: Number of units of each layer.
        feature_columns: Numeric, bucketized, indicator and embedding columns.
        model_dir: As for `Estimator`.
        n_classes: Number of classes; labels are numbers from 0.
        weight_column: Key of the feature with the weights of examples.
        label_vocabulary: Names of the classes, if labels are text.
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
    """A network of dense layers for regression (`tf.estimator.DNNRegressor`).

    Args:
        hidden_units: Number of units of each layer.
        feature_columns: Numeric, bucketized, indicator and embedding columns.
        model_dir: As for `Estimator`.
        label_dimension: Number of labels for each example.
        weight_column: Key of the feature with the weights of examples.
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


class DNNLinearCombinedEstimator(Canned):
    """A linear model and a network of dense layers, summed, under any head (`tf.estimator.DNNLinearCombinedEstimator`).

    Args:
        head: Computes the loss, predictions and metrics from logits.
        model_dir: As for `Estimator`.
        linear_feature_columns: Columns of the linear model; None means no linear model.
        linear_optimizer: As for `LinearEstimator`.
        dnn_feature_columns: Columns of the network; None means no network.
        dnn_optimizer: As for `LinearEstimator`.
        dnn_hidden_units: Number of units of each layer of the network.
        dnn_activation_fn: As for `DNNEstimator`.
        dnn_dropout: As for `DNNEstimator`.
        config: As for `Estimator`.
        warm_start_from: As for `Estimator`.
        batch_norm: As for `DNNEstimator`.
        linear_sparse_combiner: As for `LinearEstimator`.

    Raises:
        InputError: There are no columns, or the network has no units or columns.
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
                "Give columns to each part, and dnn_hidden_units=[100, 50] to the network.",
            )
        units, parts = head.logits_dimension, []
        rate = min(0.005, 1.0 / math.sqrt(max(1, len(wide))))
        train_deep = minimizing("dnn_optimizer", dnn_optimizer, 0.001, "dnn/")
        train_wide = minimizing("linear_optimizer", linear_optimizer, rate, "linear/")
        if deep:
            columns = ordered(deep)
            logits = network_logits(dnn_hidden_units, columns, units, dnn_activation_fn, dnn_dropout, batch_norm)
            parts.append(Part(logits, train_deep))
        if wide:
            parts.append(Part(linear_logits(ordered(wide), units, linear_sparse_combiner), train_wide))
        super().__init__(head, parts, model_dir, config, warm_start_from)


class DNNLinearCombinedClassifier(DNNLinearCombinedEstimator):
    """A wide and deep model for classification (`tf.estimator.DNNLinearCombinedClassifier`).

    Args:
        model_dir: As for `Estimator`.
        n_classes: Number of classes; labels are numbers from 0.
        weight_column: Key of the feature with the weights of examples.
        label_vocabulary: Names of the classes, if labels are text.
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
    """A wide and deep model for regression (`tf.estimator.DNNLinearCombinedRegressor`).

    Args:
        model_dir: As for `Estimator`.
        label_dimension: Number of labels for each example.
        weight_column: Key of the feature with the weights of examples.
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


def network_logits(
    hidden_units: Any, columns: Sequence[Any], units: int, activation: Any, dropout: float | None, batch_norm: bool
) -> Logits:
    """Return a function that computes the outputs of dense layers on columns.

    Args:
        hidden_units: Number of units of each layer.
        columns: The columns, in order.
        units: How many outputs.
        activation: Of each layer.
        dropout: Fraction of the outputs of each layer that is dropped in training; None means none.
        batch_norm: Whether batch normalization follows each layer.

    Raises:
        InputError: `hidden_units` is not a list of whole numbers.
    """
    if not isinstance(hidden_units, list | tuple) or not all(isinstance(size, int) for size in hidden_units):
        raise InputError(
            f"hidden_units is {hidden_units!r}.",
            "Write a list of whole numbers, one for each layer: hidden_units=[100, 50].",
        )
    sizes = tuple(hidden_units)

    def logits(features: Any, mode: str) -> Any:
        training = mode == ModeKeys.TRAIN
        with opened("dnn/input_from_feature_columns"):
            values = DenseFeatures(columns, name="input_layer")(features)
        for number, size in enumerate(sizes):
            name = f"hiddenlayer_{number}"
            with opened("dnn"):
                values = keras.layers.Dense(size, activation, name=name)(values)
            if dropout is not None:
                values = keras.layers.Dropout(dropout)(values, training=training)
            if batch_norm:
                with opened(f"dnn/{name}"):
                    layer = keras.layers.BatchNormalization(momentum=0.999, name=f"batchnorm_{number}")
                    values = layer(values, training=training)
        with opened("dnn"):
            return keras.layers.Dense(units, name="logits")(values)

    return logits
