"""Metrics by their old names, as functions of a model function (`tf.compat.v1.metrics`).

Each returns a pair for `eval_metric_ops`: the metric, and its value after this batch, a tensor. Source of the
semantics: https://www.tensorflow.org/api_docs/python/tf/compat/v1/metrics
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import keras

Pair = tuple[keras.Metric, Any]
"""A metric that has been updated, and its value as a tensor."""


def accuracy(labels: Any, predictions: Any, weights: Any = None, name: str = "accuracy", **options: Any) -> Pair:
    """Return the fraction of predicted class numbers that equal the labels.

    Args:
        labels: Class numbers, of any shape.
        predictions: Class numbers of the same shape.
        weights: Weights that broadcast to them.
        name: Name of the metric.
        options: `metrics_collections`, `updates_collections`: accepted without effect.
    """
    labels = jnp.asarray(labels)
    matches = labels == jnp.asarray(predictions).astype(labels.dtype)
    return mean(matches.astype("float32"), weights, name)


def mean(values: Any, weights: Any = None, name: str = "mean", **options: Any) -> Pair:
    """Return the mean of values.

    Args:
        values: A tensor of any shape.
        weights: Weights that broadcast to it.
        name: Name of the metric.
        options: As for `accuracy`.
    """
    return _updated(keras.metrics.Mean(name=name), values, weights=weights)


def mean_absolute_error(
    labels: Any, predictions: Any, weights: Any = None, name: str = "mean_absolute_error", **options: Any
) -> Pair:
    """Return the mean of the absolute differences.

    Args:
        labels: A tensor of any shape.
        predictions: A tensor of the same shape.
        weights: Weights that broadcast to it.
        name: Name of the metric.
        options: As for `accuracy`.
    """
    return mean(keras.ops.abs(predictions - labels), weights, name)


def mean_squared_error(
    labels: Any, predictions: Any, weights: Any = None, name: str = "mean_squared_error", **options: Any
) -> Pair:
    """Return the mean of the squared differences.

    Args:
        labels: A tensor of any shape.
        predictions: A tensor of the same shape.
        weights: Weights that broadcast to it.
        name: Name of the metric.
        options: As for `accuracy`.
    """
    return mean(keras.ops.square(predictions - labels), weights, name)


def root_mean_squared_error(
    labels: Any, predictions: Any, weights: Any = None, name: str = "root_mean_squared_error", **options: Any
) -> Pair:
    """Return the root of the mean of the squared differences.

    Args:
        labels: A tensor of any shape.
        predictions: A tensor of the same shape.
        weights: Weights that broadcast to it.
        name: Name of the metric.
        options: As for `accuracy`.
    """
    return _updated(keras.metrics.RootMeanSquaredError(name=name), labels, predictions, weights=weights)


def precision(labels: Any, predictions: Any, weights: Any = None, name: str = "precision", **options: Any) -> Pair:
    """Return the precision: the fraction of positive predictions that are true.

    Args:
        labels: Booleans, or 0 and 1.
        predictions: Booleans of the same shape.
        weights: Weights that broadcast to it.
        name: Name of the metric.
        options: As for `accuracy`.
    """
    return _compared(keras.metrics.Precision(name=name), labels, predictions, weights)


def recall(labels: Any, predictions: Any, weights: Any = None, name: str = "recall", **options: Any) -> Pair:
    """Return the recall: the fraction of true labels that are predicted.

    Args:
        labels: Booleans, or 0 and 1.
        predictions: Booleans of the same shape.
        weights: Weights that broadcast to it.
        name: Name of the metric.
        options: As for `accuracy`.
    """
    return _compared(keras.metrics.Recall(name=name), labels, predictions, weights)


def auc(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    num_thresholds: int = 200,
    curve: str = "ROC",
    name: str = "auc",
    **options: Any,
) -> Pair:
    """Return the area under a curve.

    Args:
        labels: Booleans, or 0 and 1.
        predictions: Probabilities of the same shape.
        weights: Weights that broadcast to it.
        num_thresholds: Number of points of the curve.
        curve: "ROC" or "PR".
        name: Name of the metric.
        options: As for `accuracy`.
    """
    metric = keras.metrics.AUC(num_thresholds=num_thresholds, curve=curve, name=name)
    return _compared(metric, labels, predictions, weights)


def true_positives(labels: Any, predictions: Any, weights: Any = None, name: str = "tp", **options: Any) -> Pair:
    """Return the number of true positives; arguments as for `precision`."""
    return _compared(keras.metrics.TruePositives(name=name), labels, predictions, weights)


def true_negatives(labels: Any, predictions: Any, weights: Any = None, name: str = "tn", **options: Any) -> Pair:
    """Return the number of true negatives; arguments as for `precision`."""
    return _compared(keras.metrics.TrueNegatives(name=name), labels, predictions, weights)


def false_positives(labels: Any, predictions: Any, weights: Any = None, name: str = "fp", **options: Any) -> Pair:
    """Return the number of false positives; arguments as for `precision`."""
    return _compared(keras.metrics.FalsePositives(name=name), labels, predictions, weights)


def false_negatives(labels: Any, predictions: Any, weights: Any = None, name: str = "fn", **options: Any) -> Pair:
    """Return the number of false negatives; arguments as for `precision`."""
    return _compared(keras.metrics.FalseNegatives(name=name), labels, predictions, weights)


def mean_iou(
    labels: Any, predictions: Any, num_classes: int, weights: Any = None, name: str = "mean_iou", **options: Any
) -> Pair:
    """Return the mean over classes of the intersection over union.

    Args:
        labels: Class numbers of any shape.
        predictions: Class numbers of the same shape.
        num_classes: Number of classes.
        weights: Weights that broadcast to the labels.
        name: Name of the metric.
        options: As for `accuracy`.
    """
    return _updated(keras.metrics.MeanIoU(num_classes, name=name), labels, predictions, weights=weights)


def mean_per_class_accuracy(
    labels: Any, predictions: Any, num_classes: int, weights: Any = None, name: str = "mean_accuracy", **options: Any
) -> Pair:
    """Return the mean over classes of the accuracy; arguments as for `mean_iou`."""
    return _updated(_MeanRecall(num_classes, name=name), labels, predictions, weights=weights)


class _MeanRecall(keras.metrics.MeanIoU):
    """The part of each class that is predicted right, averaged over the classes that occur."""

    def result(self) -> Any:
        table = keras.ops.cast(self.total_cm, self.dtype)
        there: Any = keras.ops.sum(table, axis=1)
        right = keras.ops.divide_no_nan(keras.ops.diagonal(table), there)
        return keras.ops.divide_no_nan(keras.ops.sum(right), keras.ops.sum(keras.ops.cast(there > 0, self.dtype)))


def _compared(metric: keras.Metric, labels: Any, predictions: Any, weights: Any) -> Pair:
    """Return a metric of labels and predictions, which may be booleans."""
    return _updated(metric, keras.ops.cast(labels, "float32"), keras.ops.cast(predictions, "float32"), weights=weights)


def _updated(metric: keras.Metric, *values: Any, weights: Any) -> Pair:
    metric.update_state(*values, sample_weight=weights)
    return metric, metric.result()
