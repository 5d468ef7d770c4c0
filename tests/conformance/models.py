"""Small models, one for each thing that a step can do. Each function returns a compiled model."""

# Keras's layers and operations bear types of all its backends, and arguments those of their defaults.
# pyright: reportOptionalSubscript=false, reportOptionalOperand=false, reportOptionalMemberAccess=false
# pyright: reportOperatorIssue=false, reportAssignmentType=false, reportArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import keras
from keras import layers, ops

FEATURES = 6
CLASSES = 3
WORDS = 7
LENGTH = 5


def _from_logits(**kwargs: Any) -> keras.losses.Loss:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, **kwargs)


def _stack(*hidden: keras.layers.Layer) -> keras.Sequential:
    return keras.Sequential([keras.Input((FEATURES,)), *hidden, layers.Dense(CLASSES)])


def mlp(
    optimizer: keras.optimizers.Optimizer | None = None,
    *,
    reduction: str = "sum_over_batch_size",
    accumulate: int | None = None,
    **compile_arguments: Any,
) -> keras.Model:
    model = _stack(layers.Dense(8, activation="tanh"))
    chosen = optimizer or keras.optimizers.Adam(0.01, gradient_accumulation_steps=accumulate)
    model.compile(optimizer=chosen, loss=_from_logits(reduction=reduction), metrics=["accuracy"], **compile_arguments)
    return model


def cnn() -> keras.Model:
    """The network of the tutorials, made small."""
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(4, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(8, activation="relu"),
            layers.Dense(CLASSES),
        ]
    )
    model.compile(optimizer=keras.optimizers.SGD(0.05), loss=_from_logits(), metrics=["accuracy"])
    return model


def regularised() -> keras.Model:
    model = _stack(
        layers.Dense(8, activation="relu", kernel_regularizer="l2", bias_regularizer="l1", activity_regularizer="l1")
    )
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss=_from_logits(), metrics=["accuracy"])
    return model


def penalised() -> keras.Model:
    """A penalty of the weights alone, which does not depend on the rows."""
    model = _stack(layers.Dense(8, activation="tanh", kernel_regularizer=keras.regularizers.L2(0.05)))
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss=_from_logits(), metrics=["accuracy"])
    return model


def built_by_fit() -> keras.Model:
    """No `Input`: the first batch tells the shapes."""
    model = keras.Sequential([layers.Dense(8, activation="relu"), layers.Dense(CLASSES)])
    model.compile(optimizer="adam", loss=_from_logits(), metrics=["accuracy"])
    return model


def two_inputs_two_outputs() -> keras.Model:
    numbers = keras.Input((FEATURES,), name="numbers")
    words = keras.Input((LENGTH,), name="words", dtype="int32")
    bag = layers.GlobalAveragePooling1D()(layers.Embedding(WORDS, 3)(words))
    hidden = layers.Concatenate()([layers.Dense(5, activation="tanh")(numbers), bag])
    outputs = {
        "kind": layers.Dense(CLASSES, name="kind", activation="softmax")(hidden),
        "size": layers.Dense(1, name="size")(hidden),
    }
    model = keras.Model({"numbers": numbers, "words": words}, outputs)
    model.compile(
        optimizer=keras.optimizers.SGD(0.05, momentum=0.9),
        loss={"kind": "sparse_categorical_crossentropy", "size": "mse"},
        loss_weights={"kind": 1.0, "size": 0.5},
        metrics={"kind": ["accuracy"], "size": ["mae", keras.metrics.R2Score()]},
        weighted_metrics={"kind": ["accuracy"], "size": ["mse"]},
    )
    return model


class _AddsLoss(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = layers.Dense(4, activation="tanh")
        self.head = layers.Dense(CLASSES)

    def call(self, x: Any) -> Any:
        hidden = self.hidden(x)
        self.add_loss(0.1 * ops.mean(hidden**2))
        return self.head(hidden)


def adds_loss() -> keras.Model:
    model = _AddsLoss()
    model.compile(optimizer="adam", loss=_from_logits(), metrics=["accuracy"])
    return model


class _OwnLoss(_AddsLoss):
    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        return ops.mean((y_pred[:, 0] - ops.cast(y, y_pred.dtype)) ** 2) + sum(self.losses)


def own_compute_loss() -> keras.Model:
    model = _OwnLoss()
    model.compile(optimizer=keras.optimizers.SGD(0.05))
    return model


class _OwnTrainStep(keras.Model):
    """Logs under names of its own, and a value that is no metric."""

    def __init__(self) -> None:
        super().__init__()
        self.head = layers.Dense(CLASSES)
        self.head.build((None, FEATURES))
        self.error = keras.metrics.Mean(name="error")
        self.first = keras.metrics.Sum(name="first")
        self.built = True

    def call(self, x: Any, training: bool = False) -> Any:
        return self.head(x)

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        return [self.error, self.first]

    def _squares(self, y: Any, outputs: Any) -> Any:
        return ops.mean((outputs[:, 0] - ops.cast(y, outputs.dtype)) ** 2)

    def _updated(self, metrics: list[Any], loss: Any, outputs: Any) -> tuple[list[Any], list[Any]]:
        error = self.error.stateless_update_state(metrics[:2], loss, sample_weight=outputs.shape[0])
        return error, self.first.stateless_update_state(metrics[2:], outputs[:, 0])

    def train_step(self, state: Any, data: Any) -> Any:
        trainable, others, optimizer, metrics = state
        x, y = data[:2]

        def objective(trainable: Any, others: Any) -> Any:
            outputs, others = self.stateless_call(trainable, others, x, training=True)
            return self._squares(y, outputs), (outputs, others)

        (loss, (outputs, others)), gradients = jax.value_and_grad(objective, has_aux=True)(trainable, others)
        trainable, optimizer = self.optimizer.stateless_apply(optimizer, gradients, trainable)
        error, first = self._updated(metrics, loss, outputs)
        logs = {
            "renamed": self.error.stateless_result(error),
            "raw_loss": loss,
            "first": self.first.stateless_result(first),
        }
        return logs, (trainable, others, optimizer, [*error, *first])

    def test_step(self, state: Any, data: Any) -> Any:
        trainable, others, metrics = state
        x, y = data[:2]
        outputs, others = self.stateless_call(trainable, others, x, training=False)
        error, first = self._updated(metrics, self._squares(y, outputs), outputs)
        return {"renamed": self.error.stateless_result(error)}, (trainable, others, [*error, *first])


def own_train_step(**compile_arguments: Any) -> keras.Model:
    model = _OwnTrainStep()
    model.compile(optimizer=keras.optimizers.SGD(0.05), **compile_arguments)
    return model


def masked_lstm() -> keras.Model:
    """Predicts a word at each place; padding counts neither in the loss nor in the accuracy."""
    model = keras.Sequential(
        [
            keras.Input((LENGTH,), dtype="int32"),
            layers.Embedding(WORDS, 4, mask_zero=True),
            layers.LSTM(6, return_sequences=True),
            layers.Dense(WORDS),
        ]
    )
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss=_from_logits(), metrics=["accuracy"])
    return model


def gru() -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((LENGTH,), dtype="int32"),
            layers.Embedding(WORDS, 4),
            layers.GRU(6),
            layers.Dense(CLASSES),
        ]
    )
    model.compile(optimizer=keras.optimizers.RMSprop(0.01), loss=_from_logits(), metrics=["accuracy"])
    return model


def batch_norm(*, synchronized: bool) -> keras.Model:
    # A bias before a normalisation has a gradient of exactly zero but for rounding, which Adam would scale up.
    model = _stack(layers.Dense(8, use_bias=False), layers.BatchNormalization(synchronized=synchronized), layers.ReLU())
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss=_from_logits(), metrics=["accuracy"])
    return model


def masked_batch_norm(*, synchronized: bool) -> keras.Model:
    """Statistics of the words alone: padding is left out."""
    model = keras.Sequential(
        [
            keras.Input((LENGTH,), dtype="int32"),
            layers.Embedding(WORDS, 4, mask_zero=True),
            layers.BatchNormalization(synchronized=synchronized),
            layers.GlobalAveragePooling1D(),
            layers.Dense(CLASSES),
        ]
    )
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss=_from_logits(), metrics=["accuracy"])
    return model


def dropout() -> keras.Model:
    model = _stack(layers.Dense(16, activation="relu"), layers.Dropout(0.4, seed=3))
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss=_from_logits(), metrics=["accuracy"])
    return model


def mixed_float16(**scaling: Any) -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            layers.Dense(8, activation="relu", dtype="mixed_float16"),
            layers.Dense(CLASSES, dtype="float32"),
        ]
    )
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), **scaling)
    model.compile(optimizer=optimizer, loss=_from_logits(), metrics=["accuracy"])
    return model


def averaged_weights() -> keras.Model:
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.9)
    return mlp(keras.optimizers.AdamW(schedule, use_ema=True, weight_decay=0.01, ema_overwrite_frequency=5))


def frozen() -> keras.Model:
    """Transfer learning: a base that does not train, and a new head."""
    base = keras.Sequential([keras.Input((FEATURES,)), layers.Dense(8, activation="relu"), layers.BatchNormalization()])
    base.trainable = False
    model = keras.Sequential([keras.Input((FEATURES,)), base, layers.Dense(CLASSES)])
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss=_from_logits(), metrics=["accuracy"])
    return model


class CountedRows(keras.metrics.Metric):
    """A metric as users write them: adds up what it sees."""

    def __init__(self, name: str = "counted_rows") -> None:
        super().__init__(name=name)
        self.rows = self.add_weight(name="rows", initializer="zeros")
        self.highest = self.add_weight(name="outputs", shape=(2,), initializer="zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.rows.assign(self.rows + ops.shape(y_pred)[0])
        self.highest.assign(self.highest + ops.stack([ops.sum(y_pred), ops.sum(y_pred**2)]))

    def result(self) -> dict[str, Any]:
        return {"rows": self.rows / 1.0, "spread": self.highest[1] - self.highest[0] ** 2 / self.rows}


def binary_metrics() -> Sequence[keras.metrics.Metric]:
    m = keras.metrics
    return [
        m.AUC(),
        m.AUC(curve="PR", num_thresholds=50, name="auc_pr"),
        m.BinaryAccuracy(),
        m.BinaryCrossentropy(),
        m.BinaryIoU(),
        m.F1Score(threshold=0.5),
        m.FBetaScore(beta=2.0, threshold=0.5),
        m.TruePositives(),
        m.TrueNegatives(),
        m.FalsePositives(),
        m.FalseNegatives(),
        m.Precision(),
        m.Recall(thresholds=[0.3, 0.6]),
        m.PrecisionAtRecall(0.6),
        m.RecallAtPrecision(0.5),
        m.SensitivityAtSpecificity(0.5),
        m.SpecificityAtSensitivity(0.5),
        m.Hinge(),
        m.SquaredHinge(),
    ]


def one_hot_metrics() -> Sequence[keras.metrics.Metric]:
    m = keras.metrics
    return [
        m.CategoricalAccuracy(),
        m.CategoricalCrossentropy(),
        m.TopKCategoricalAccuracy(2),
        m.CategoricalHinge(),
        m.KLDivergence(),
        m.CosineSimilarity(),
        m.PearsonCorrelation(),
        m.ConcordanceCorrelation(),
        m.F1Score(name="f1_of_each_class"),
        m.OneHotIoU(CLASSES, [0, 2]),
        m.OneHotMeanIoU(CLASSES),
        m.AUC(multi_label=True, num_labels=CLASSES, name="auc_of_labels"),
        m.Recall(class_id=1, name="recall_of_class"),
        m.Precision(top_k=2, name="precision_at_2"),
    ]


def sparse_metrics() -> Sequence[keras.metrics.Metric]:
    m = keras.metrics
    return [
        m.SparseCategoricalAccuracy(),
        m.SparseCategoricalCrossentropy(),
        m.SparseTopKCategoricalAccuracy(2),
        m.IoU(CLASSES, [0, 1], sparse_y_pred=False),
        m.MeanIoU(CLASSES, sparse_y_pred=False),
        CountedRows(),
    ]


def regression_metrics() -> Sequence[keras.metrics.Metric]:
    m = keras.metrics
    return [
        m.Accuracy(),  # some targets and outputs are exactly zero
        m.MeanSquaredError(),
        m.MeanAbsoluteError(),
        m.MeanAbsolutePercentageError(),
        m.MeanSquaredLogarithmicError(),
        m.RootMeanSquaredError(),
        m.LogCoshError(),
        m.Poisson(),
        m.R2Score(),
        m.R2Score(class_aggregation="variance_weighted_average", name="r2_weighted"),
        m.MeanMetricWrapper(keras.losses.huber, name="huber"),
    ]


def _measured(outputs: int, activation: str, loss: str, metrics: Sequence[keras.metrics.Metric]) -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            layers.Dense(8, activation="relu"),
            layers.Dense(outputs, activation=activation),
        ]
    )
    model.compile(optimizer="adam", loss=loss, metrics=list(metrics), weighted_metrics=["mae"])
    return model


def measured_binary() -> keras.Model:
    return _measured(1, "sigmoid", "binary_crossentropy", binary_metrics())


def measured_one_hot() -> keras.Model:
    return _measured(CLASSES, "softmax", "categorical_crossentropy", one_hot_metrics())


def measured_sparse() -> keras.Model:
    model = _stack(layers.Dense(8, activation="relu"), layers.Dense(8))
    model = keras.Sequential([*model.layers, layers.Softmax()])
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=list(sparse_metrics()))
    return model


def measured_regression() -> keras.Model:
    return _measured(2, "relu", "mse", regression_metrics())
