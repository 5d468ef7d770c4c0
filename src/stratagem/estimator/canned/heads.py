"""Heads: loss, predictions and metrics of classifiers and regressors, from logits (`tf.estimator.Head`).

Keys and numbers are those of Estimator's heads in TensorFlow 2.

Source of the semantics: https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/estimator/Head
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras

from stratagem.core.errors import InputError
from stratagem.estimator.checks import unusable
from stratagem.estimator.losses import cross_entropies
from stratagem.estimator.spec import EstimatorSpec, ModeKeys
from stratagem.estimator.text import Names, Text, Vocabulary, as_bytes
from stratagem.tf.derivatives import sigmoid_cross_entropy

_MEANS = ("sum_over_batch_size", "weighted_sum_over_batch_size", "auto", "mean", "weighted_sum_by_nonzero_weights")
_SUMS = ("sum", "weighted_sum")


class Head(ABC):
    """Base of heads, which make an `EstimatorSpec` from logits.

    Args:
        weight_column: Key of the feature with the weights of examples, or a numeric column; None for equal weights.
        loss_reduction: "sum_over_batch_size" for the mean over the batch of a replica, or "sum".
        name: Suffix of the names of metrics.
        loss_fn: Function of labels and logits that returns the losses of the examples, in place of the head's own.

    Raises:
        InputError: The reduction is unknown.
    """

    logits_dimension: int
    """Number of logits for each example."""

    def __init__(
        self, weight_column: Any, loss_reduction: str, name: str | None, loss_fn: Callable[..., Any] | None = None
    ) -> None:
        if loss_reduction not in (*_MEANS, *_SUMS):
            raise InputError(f"loss_reduction is {loss_reduction!r}.", 'Write "sum_over_batch_size" or "sum".')
        self._weight_column = weight_column
        self._loss_fn = loss_fn
        self._sums = loss_reduction in _SUMS
        self.name = name

    @abstractmethod
    def losses(self, labels: Any, logits: jax.Array) -> jax.Array:
        """Return the loss of each example, of shape (rows, 1).

        Args:
            labels: The result of `checked_labels`.
            logits: Logits of shape (rows, logits_dimension).
        """

    @abstractmethod
    def predictions(self, logits: jax.Array) -> dict[str, Any]:
        """Return the predictions by name.

        Args:
            logits: Logits of shape (rows, logits_dimension).
        """

    def checked_labels(self, labels: Any) -> jax.Array:
        """Return labels as numbers with a row for each example.

        Raises:
            InputError: There are no labels, or they have another shape.
        """
        return _column(labels, self.logits_dimension).astype("float32")

    @abstractmethod
    def metrics(self, labels: jax.Array, predictions: Mapping[str, Any], weights: Any) -> dict[str, keras.Metric]:
        """Return the updated metrics, except the average loss."""

    def create_estimator_spec(
        self,
        features: Any,
        mode: str,
        logits: Any,
        labels: Any = None,
        optimizer: Any = None,
        trainable_variables: Sequence[Any] | None = None,
        train_op_fn: Callable[[Any], Any] | None = None,
        update_ops: Any = None,
        regularization_losses: Sequence[Any] | None = None,
    ) -> EstimatorSpec:
        """Return the spec of a model_fn.

        Args:
            features: Features, for the weights of examples.
            mode: A `ModeKeys`.
            logits: Logits of shape (rows, logits_dimension).
            labels: The labels; None to predict.
            optimizer: The optimizer that minimizes the loss.
            trainable_variables: The variables to train; None means all.
            train_op_fn: Function of the loss that returns the `train_op`, in place of `optimizer`.
            update_ops: Accepted as in TensorFlow.
            regularization_losses: Losses to add.

        Raises:
            InputError: Labels or logits cannot be used, or there is no way to train.
        """
        logits = self._checked_logits(logits)
        predictions = self.predictions(logits)
        if mode == ModeKeys.PREDICT:
            return EstimatorSpec(mode, predictions=predictions)
        labels = self.checked_labels(labels)
        weights = self._weights(features)
        losses = self._losses(labels, logits)
        weighted = losses if weights is None else losses * weights
        loss: Any = jnp.sum(weighted) if self._sums else jnp.mean(weighted)
        loss = sum(regularization_losses or (), loss)
        if mode == ModeKeys.TRAIN:
            return EstimatorSpec(mode, loss=loss, train_op=_train_op(loss, optimizer, trainable_variables, train_op_fn))
        metrics = {"average_loss": _updated(keras.metrics.Mean(), losses, weights=weights)}
        metrics |= self.metrics(labels, predictions, weights)
        if regularization_losses:
            metrics["regularization_loss"] = _updated(keras.metrics.Mean(), sum(regularization_losses), weights=None)
        behind = "" if self.name is None else f"/{self.name}"
        named = {f"{key}{behind}": metric for key, metric in metrics.items()}
        return EstimatorSpec(mode, loss=loss, predictions=predictions, eval_metric_ops=named)

    def _losses(self, labels: Any, logits: jax.Array) -> jax.Array:
        return jnp.asarray((self._loss_fn or self.losses)(labels=labels, logits=logits))

    def _checked_logits(self, logits: Any) -> jax.Array:
        logits = jnp.asarray(logits)
        if logits.ndim < 2 or logits.shape[-1] != self.logits_dimension:
            raise InputError(
                f"{type(self).__name__} was given logits of shape {logits.shape}.",
                f"Let the last layer have {self.logits_dimension} unit(s), or make the head for another number.",
            )
        return logits

    def _weights(self, features: Any) -> Any:
        if self._weight_column is None:
            return None
        key = getattr(self._weight_column, "name", self._weight_column)
        if not isinstance(features, Mapping) or key not in features:
            raise InputError(
                f"weight_column is {key!r}, and features have no such key.",
                f"Let input_fn return a dictionary of features with {key!r} in it.",
            )
        return jnp.reshape(jnp.asarray(features[key], "float32"), (-1, 1))


class _ExclusiveClasses(Head):
    """A head whose classes exclude each other: their numbers and their names.

    Args:
        count: How many classes there are.
        vocabulary: Their names, which labels then are; None where labels are numbers.
        options: Other arguments of `Head`.
    """

    def __init__(self, count: int, vocabulary: Sequence[Any] | None, *options: Any) -> None:
        super().__init__(*options)
        if vocabulary is not None and len(vocabulary) != count:
            raise InputError(
                f"label_vocabulary has {len(vocabulary)} names, for {count} classes.",
                f"Give {count} names, or n_classes={len(vocabulary)}.",
            )
        words = [str(number) for number in range(count)] if vocabulary is None else vocabulary
        self._names = tuple(as_bytes(word) for word in words)
        self._vocabulary = None if vocabulary is None else Vocabulary(vocabulary)

    def _class_numbers(self, labels: Any) -> jax.Array:
        """Return labels as class numbers of shape (rows, 1)."""
        if isinstance(labels, Text):
            if self._vocabulary is None:
                raise InputError(
                    "Labels are text, and the classifier has no label_vocabulary.",
                    'Write label_vocabulary=["setosa", "versicolor", ...], or give class numbers.',
                )
            labels = self._vocabulary.places(labels)
        return _column(labels, 1)

    def _losses(self, labels: Any, logits: jax.Array) -> jax.Array:
        return _column(super()._losses(labels, logits), 1)

    def _predicted(self, scores: jax.Array) -> dict[str, Any]:
        """Return the predicted class of each example, the one with the greatest score, and its names."""
        numbers = jnp.argmax(scores, axis=-1)[:, None]
        every = jnp.broadcast_to(jnp.arange(len(self._names)), (numbers.shape[0], len(self._names)))
        return {
            "probabilities": jax.nn.softmax(scores),
            "class_ids": numbers,
            "classes": Names(numbers, self._names),
            "all_class_ids": every,
            "all_classes": Names(every, self._names),
        }


class BinaryClassHead(_ExclusiveClasses):
    """Head for two classes with one logit (`tf.estimator.BinaryClassHead`).

    Args:
        weight_column: As for `Head`.
        thresholds: Probabilities for additional metrics, such as `accuracy/positive_threshold_0.3`.
        label_vocabulary: Names of the classes, if labels are text.
        loss_reduction: As for `Head`.
        loss_fn: Function of labels and logits of shape (rows, 1) that returns losses of that shape.
        name: As for `Head`.
    """

    logits_dimension = 1

    def __init__(
        self,
        weight_column: Any = None,
        thresholds: Sequence[float] | None = None,
        label_vocabulary: Sequence[Any] | None = None,
        loss_reduction: str = "sum_over_batch_size",
        loss_fn: Callable[..., Any] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(2, label_vocabulary, weight_column, loss_reduction, name, loss_fn)
        self._thresholds = tuple(thresholds or ())

    def checked_labels(self, labels: Any) -> jax.Array:
        numbers = self._class_numbers(labels).astype("float32")
        return jnp.where((numbers >= 0) & (numbers <= 1), numbers, jnp.nan)

    def losses(self, labels: Any, logits: jax.Array) -> jax.Array:
        return sigmoid_cross_entropy(labels, logits)

    def predictions(self, logits: jax.Array) -> dict[str, Any]:
        both = jnp.concatenate([jnp.zeros_like(logits), logits], axis=-1)
        return {"logits": logits, "logistic": jax.nn.sigmoid(logits), **self._predicted(both)}

    def metrics(self, labels: jax.Array, predictions: Mapping[str, Any], weights: Any) -> dict[str, keras.Metric]:
        chosen, likely = predictions["class_ids"], predictions["logistic"]
        found = {
            "accuracy": _updated(keras.metrics.Mean(), (chosen == labels).astype("float32"), weights=weights),
            "precision": _updated(keras.metrics.Precision(), labels, chosen, weights=weights),
            "recall": _updated(keras.metrics.Recall(), labels, chosen, weights=weights),
            "prediction/mean": _updated(keras.metrics.Mean(), likely, weights=weights),
            "label/mean": _updated(keras.metrics.Mean(), labels, weights=weights),
            "accuracy_baseline": _updated(_BetterOfTwo(), labels, weights=weights),
            "auc": _updated(keras.metrics.AUC(), labels, likely, weights=weights),
            "auc_precision_recall": _updated(keras.metrics.AUC(curve="PR"), labels, likely, weights=weights),
        }
        for threshold in self._thresholds:
            matches = ((likely > threshold) == (labels > 0.5)).astype("float32")
            at = f"positive_threshold_{threshold:g}"
            precision, recall = keras.metrics.Precision(threshold), keras.metrics.Recall(threshold)
            found[f"accuracy/{at}"] = _updated(keras.metrics.Mean(), matches, weights=weights)
            found[f"precision/{at}"] = _updated(precision, labels, likely, weights=weights)
            found[f"recall/{at}"] = _updated(recall, labels, likely, weights=weights)
        return found


class MultiClassHead(_ExclusiveClasses):
    """Head for several exclusive classes (`tf.estimator.MultiClassHead`).

    Args:
        n_classes: Number of classes, more than two.
        weight_column: As for `Head`.
        label_vocabulary: Names of the classes, if labels are text.
        loss_reduction: As for `Head`.
        loss_fn: Function of labels of shape (rows, 1) and logits that returns losses of shape (rows, 1).
        name: As for `Head`.

    Raises:
        InputError: There are not more than two classes, or the number of names differs.
    """

    def __init__(
        self,
        n_classes: int,
        weight_column: Any = None,
        label_vocabulary: Sequence[Any] | None = None,
        loss_reduction: str = "sum_over_batch_size",
        loss_fn: Callable[..., Any] | None = None,
        name: str | None = None,
    ) -> None:
        if not isinstance(n_classes, int) or n_classes < 3:
            remedy = "Write a whole number from 3 on, or use BinaryClassHead."
            raise unusable("MultiClassHead", remedy, n_classes=n_classes)
        super().__init__(n_classes, label_vocabulary, weight_column, loss_reduction, name, loss_fn)
        self.logits_dimension = n_classes

    def checked_labels(self, labels: Any) -> jax.Array:
        return self._class_numbers(labels).astype("int32")

    def losses(self, labels: Any, logits: jax.Array) -> jax.Array:
        return cross_entropies(labels[..., 0], logits)[..., None]

    def predictions(self, logits: jax.Array) -> dict[str, Any]:
        return {"logits": logits, **self._predicted(logits)}

    def metrics(self, labels: jax.Array, predictions: Mapping[str, Any], weights: Any) -> dict[str, keras.Metric]:
        matches = (predictions["class_ids"] == labels).astype("float32")
        return {"accuracy": _updated(keras.metrics.Mean(), matches, weights=weights)}


class RegressionHead(Head):
    """Head for regression (`tf.estimator.RegressionHead`).

    Args:
        label_dimension: Number of labels for each example.
        weight_column: As for `Head`.
        loss_reduction: As for `Head`.
        loss_fn: Function of labels and logits of shape (rows, label_dimension) that returns losses of that shape; None
            means the squared differences.
        inverse_link_fn: Function from logits to predictions; None leaves logits unchanged.
        name: As for `Head`.
    """

    def __init__(
        self,
        label_dimension: int = 1,
        weight_column: Any = None,
        loss_reduction: str = "sum_over_batch_size",
        loss_fn: Callable[..., Any] | None = None,
        inverse_link_fn: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(weight_column, loss_reduction, name, loss_fn)
        self.logits_dimension = label_dimension
        self._inverse_link_fn = inverse_link_fn

    def losses(self, labels: Any, logits: jax.Array) -> jax.Array:
        return jnp.square(labels - logits)

    def predictions(self, logits: jax.Array) -> dict[str, Any]:
        if self._inverse_link_fn is None:
            return {"predictions": logits}
        return {"predictions": self._inverse_link_fn(logits), "logits": logits}

    def metrics(self, labels: jax.Array, predictions: Mapping[str, Any], weights: Any) -> dict[str, keras.Metric]:
        return {
            "prediction/mean": _updated(keras.metrics.Mean(), predictions["predictions"], weights=weights),
            "label/mean": _updated(keras.metrics.Mean(), labels, weights=weights),
        }


class MultiLabelHead(Head):
    """Head for several classes that do not exclude each other (`tf.estimator.MultiLabelHead`).

    Args:
        n_classes: Number of classes; labels are 0 and 1 of shape (rows, n_classes).
        weight_column: As for `Head`.
        loss_reduction: As for `Head`.
        name: As for `Head`.
    """

    def __init__(
        self,
        n_classes: int,
        weight_column: Any = None,
        loss_reduction: str = "sum_over_batch_size",
        name: str | None = None,
    ) -> None:
        super().__init__(weight_column, loss_reduction, name)
        self.logits_dimension = n_classes

    def losses(self, labels: Any, logits: jax.Array) -> jax.Array:
        return jnp.mean(sigmoid_cross_entropy(labels, logits), axis=-1, keepdims=True)

    def predictions(self, logits: jax.Array) -> dict[str, Any]:
        return {"logits": logits, "probabilities": jax.nn.sigmoid(logits)}

    def metrics(self, labels: jax.Array, predictions: Mapping[str, Any], weights: Any) -> dict[str, keras.Metric]:
        likely = predictions["probabilities"]
        return {
            "auc": _updated(keras.metrics.AUC(), labels, likely, weights=weights),
            "auc_precision_recall": _updated(keras.metrics.AUC(curve="PR"), labels, likely, weights=weights),
        }


class _BetterOfTwo(keras.metrics.Mean):
    """The accuracy of always saying the class that is more frequent."""

    def result(self) -> Any:
        mean: Any = super().result()
        return keras.ops.maximum(mean, 1.0 - mean)


def classification_head(
    n_classes: int, weight_column: Any, label_vocabulary: Sequence[Any] | None, loss_reduction: str
) -> Head:
    """Return the head of a classifier.

    Args:
        n_classes: How many classes.
        weight_column: As for `Head`.
        label_vocabulary: Names of the classes, if labels are text.
        loss_reduction: As for `Head`.
    """
    if n_classes == 2:
        return BinaryClassHead(weight_column, label_vocabulary=label_vocabulary, loss_reduction=loss_reduction)
    return MultiClassHead(n_classes, weight_column, label_vocabulary, loss_reduction)


def _train_op(
    loss: Any, optimizer: Any, variables: Sequence[Any] | None, train_op_fn: Callable[[Any], Any] | None
) -> Any:
    if (optimizer is None) == (train_op_fn is None):
        remedy = "The head does not know how to train.", "Give one of them."
        raise unusable("create_estimator_spec", *remedy, optimizer=optimizer, train_op_fn=train_op_fn)
    return train_op_fn(loss) if train_op_fn is not None else optimizer.minimize(loss, var_list=variables)


def _column(labels: Any, width: int) -> jax.Array:
    """Return labels of shape (rows, width), from (rows,) as well where the width is 1."""
    if labels is None:
        raise InputError("input_fn gives no labels.", "Let input_fn return (features, labels).")
    if isinstance(labels, Mapping | Text):
        raise InputError(
            f"Labels are {'a dictionary' if isinstance(labels, Mapping) else 'text'}.",
            "Let input_fn return (features, labels) with one tensor of numbers as labels.",
        )
    labels = jnp.asarray(labels)
    labels = labels[:, None] if labels.ndim == 1 else labels
    if labels.ndim != 2 or labels.shape[-1] != width:
        raise InputError(f"Labels have shape {labels.shape}.", f"Let input_fn return labels of shape (rows, {width}).")
    return labels


def _updated(metric: keras.Metric, *values: Any, weights: Any) -> keras.Metric:
    metric.update_state(*values, sample_weight=weights)
    return metric
