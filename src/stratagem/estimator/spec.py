"""What a model function returns, and what it is called for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import keras

from stratagem.core.errors import InputError
from stratagem.estimator.hooks.base import SessionRunHook, check_hooks
from stratagem.estimator.scaffold import Scaffold


class ModeKeys:
    """What a model function is called for (`tf.estimator.ModeKeys`)."""

    TRAIN: Final = "train"
    EVAL: Final = "eval"
    PREDICT: Final = "infer"


_MODES: Final = (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)
_HOOKS: Final = ("training_hooks", "training_chief_hooks", "evaluation_hooks", "prediction_hooks")


@dataclass(frozen=True)
class EstimatorSpec:
    """What a model function computes in one mode (`tf.estimator.EstimatorSpec`).

    Source of the semantics: https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/estimator/EstimatorSpec

    Args:
        mode: The mode that the function was called for, a `ModeKeys`.
        predictions: A tensor or a dictionary of tensors, one row for each example; needed to predict.
        loss: A scalar; needed to train and to evaluate.
        train_op: What `optimizer.minimize` or `apply_gradients` returned; needed to train.
        eval_metric_ops: Keras metrics that have been updated, or what functions of `stratagem.estimator.metrics`
            returned, by name.
        export_outputs: Accepted as in TensorFlow; what is exported are the predictions.
        training_chief_hooks: Hooks for training, on the chief only.
        training_hooks: Hooks for training, on all workers.
        scaffold: A `Scaffold`, whose `init_fn` gives variables other values to begin with.
        evaluation_hooks: Hooks for evaluation.
        prediction_hooks: Hooks for prediction.

    Raises:
        InputError: Something that the mode needs is missing, or of the wrong kind; the message names it.

    Example:
        >>> EstimatorSpec(ModeKeys.PREDICT, predictions={"logits": [[0.1, 0.9]]}).mode
        'infer'
    """

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metric_ops: Mapping[str, Any] | None = None
    export_outputs: Mapping[str, Any] | None = None
    training_chief_hooks: Sequence[SessionRunHook] = ()
    training_hooks: Sequence[SessionRunHook] = ()
    scaffold: Scaffold | None = None
    evaluation_hooks: Sequence[SessionRunHook] = ()
    prediction_hooks: Sequence[SessionRunHook] = ()

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise InputError(
                f"EstimatorSpec was given mode={self.mode!r}.",
                "It could not be told what the spec is for.",
                "Pass on the mode that model_fn was given: EstimatorSpec(mode, ...).",
            )
        if self.mode == ModeKeys.PREDICT:
            self._need("predictions", 'EstimatorSpec(mode, predictions={"logits": logits})')
        else:
            self._need("loss", "EstimatorSpec(mode, loss=loss, ...)")
            self._check_loss()
        if self.mode == ModeKeys.TRAIN:
            self._need("train_op", "EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss))")
        self._check_metrics()
        self._check_scaffold()
        for name in _HOOKS:
            object.__setattr__(self, name, check_hooks(f"EstimatorSpec was given {name}", getattr(self, name)))

    def _need(self, name: str, remedy: str) -> None:
        if getattr(self, name) is None:
            raise InputError(
                f"EstimatorSpec for mode {self.mode!r} has no {name}.",
                f"There is nothing to {_PURPOSES[self.mode]} with.",
                f"Write {remedy}.",
            )

    def _check_loss(self) -> None:
        shape = tuple(getattr(self.loss, "shape", ()))
        if any(size != 1 for size in shape):
            raise InputError(
                f"EstimatorSpec was given a loss of shape {shape}.",
                "Training needs one number to make smaller.",
                "Reduce it: loss=keras.ops.mean(loss), or keras.ops.sum(loss) * (1.0 / BATCH_SIZE).",
            )

    def _check_scaffold(self) -> None:
        if not isinstance(self.scaffold, Scaffold | None):
            raise InputError(
                f"EstimatorSpec was given scaffold={self.scaffold!r} of type {type(self.scaffold).__name__}.",
                "How the session begins is not known.",
                "Write scaffold=stratagem.estimator.Scaffold(init_fn=init_fn), or leave it out.",
            )

    def _check_metrics(self) -> None:
        metrics = self.eval_metric_ops
        if metrics is None:
            return
        if not isinstance(metrics, Mapping):
            raise InputError(
                f"EstimatorSpec was given eval_metric_ops of type {type(metrics).__name__}.",
                "Its entries have no names to be reported by.",
                'Write eval_metric_ops={"accuracy": accuracy}.',
            )
        for name, metric in metrics.items():
            if not isinstance(metric_of(metric), keras.Metric):
                raise InputError(
                    f"EstimatorSpec was given eval_metric_ops[{name!r}] of type {type(metric).__name__}.",
                    "It could not be updated batch by batch.",
                    "Give a Keras metric after metric.update_state(labels, predictions), or the pair that a "
                    "function of stratagem.estimator.metrics returned.",
                )


_PURPOSES: Final = {ModeKeys.TRAIN: "train", ModeKeys.EVAL: "evaluate", ModeKeys.PREDICT: "predict"}


def metric_of(entry: Any) -> Any:
    """Return the metric of an entry of `eval_metric_ops`: itself, or the first of a pair."""
    return entry[0] if isinstance(entry, tuple) and len(entry) == 2 else entry
