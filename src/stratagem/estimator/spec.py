"""`EstimatorSpec`, which a model function returns; its modes, and `Scaffold`, a custom start of training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import keras

from stratagem.core.errors import InputError
from stratagem.estimator.checks import check_callable, check_entries, check_kind, unusable
from stratagem.estimator.hooks.base import SessionRunHook


class ModeKeys:
    """The modes that a model function is called for (`tf.estimator.ModeKeys`)."""

    TRAIN: Final = "train"
    EVAL: Final = "eval"
    PREDICT: Final = "infer"


_NEEDED: Final = {
    ModeKeys.TRAIN: ("loss", "train_op"),
    ModeKeys.EVAL: ("loss",),
    ModeKeys.PREDICT: ("predictions",),
}
_EXAMPLES: Final = {
    "loss": "EstimatorSpec(mode, loss=loss, ...)",
    "train_op": "EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss))",
    "predictions": 'EstimatorSpec(mode, predictions={"logits": logits})',
}
_HOOKS: Final = ("training_hooks", "training_chief_hooks", "evaluation_hooks", "prediction_hooks")

_REPAIRS: Final = {
    "init_op": "Give variables initializers, or values in init_fn.",
    "init_feed_dict": "Give variables initializers, or values in init_fn.",
    "ready_op": "Leave it out: variables have their values before the first step.",
    "ready_for_local_init_op": "Leave it out: variables have their values before the first step.",
    "local_init_op": "Leave it out: metrics begin anew in each session.",
    "local_init_feed_dict": "Leave it out: metrics begin anew in each session.",
    "summary_op": "Write stratagem.estimator.summary.scalar(name, tensor) in model_fn.",
    "saver": "Write RunConfig(keep_checkpoint_max=..., keep_checkpoint_every_n_hours=...); to begin with weights of "
    "another checkpoint, Estimator(warm_start_from=WarmStartSettings(...)).",
    "copy_from_scaffold": "Make a Scaffold of the same arguments.",
}


class Scaffold:
    """A custom start of training (`tf.compat.v1.train.Scaffold`): `EstimatorSpec(scaffold=Scaffold(init_fn=...))`.

    Only `init_fn` is supported. The other arguments are operations of a graph and of its saver.

    Args:
        init_op: None.
        init_feed_dict: None.
        init_fn: Function `init_fn(scaffold, session)`. It is called before the first step if no checkpoint is restored,
            when the variables have their initial values. It can assign others:
            `session.variables["dense/kernel"].assign(value)`.
        **operations: None. The error for each argument says what to use instead.

    Raises:
        InputError: An operation of a graph is given.

    Example:
        >>> Scaffold(init_fn=lambda scaffold, session: None).saver is None
        True
    """

    saver = None

    def __init__(
        self,
        init_op: Any = None,
        init_feed_dict: Any = None,
        init_fn: Callable[[Scaffold, Any], object] | None = None,
        **operations: Any,
    ) -> None:
        for name, value in {"init_op": init_op, "init_feed_dict": init_feed_dict, **operations}.items():
            if value is not None or name not in _REPAIRS:
                why = "There is no graph for this operation, so it would never run."
                repair = _REPAIRS.get(name, "Only Scaffold(init_fn=...) is used.")
                raise unusable("Scaffold", why, repair, **{name: value})
        if init_fn is not None:
            check_callable("Scaffold was given init_fn", init_fn, "Write a function init_fn(scaffold, session).")
        self.init_fn = init_fn

    def finalize(self) -> Scaffold:
        """Return the scaffold, because there is no graph to finish."""
        return self


@dataclass(frozen=True)
class EstimatorSpec:
    """The result of a model function in one mode (`tf.estimator.EstimatorSpec`).

    Source of the semantics: https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/estimator/EstimatorSpec

    Args:
        mode: The mode that the function was called for, a `ModeKeys`.
        predictions: A tensor or a dictionary of tensors, one row for each example; needed to predict.
        loss: A scalar; needed to train and to evaluate.
        train_op: The result of `optimizer.minimize` or `apply_gradients`; needed to train.
        eval_metric_ops: By name, updated Keras metrics, or results of functions of `stratagem.estimator.metrics`.
        export_outputs: Accepted as in TensorFlow; the predictions are exported.
        training_chief_hooks: Hooks for training, on the chief only.
        training_hooks: Hooks for training, on all workers.
        scaffold: A `Scaffold`, whose `init_fn` gives variables other initial values.
        evaluation_hooks: Hooks for evaluation.
        prediction_hooks: Hooks for prediction.

    Raises:
        InputError: An argument that the mode needs is missing or has the wrong type; the message names it.

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
        if self.mode not in _NEEDED:
            remedy = "Pass on the mode that model_fn was given: EstimatorSpec(mode, ...)."
            raise unusable("EstimatorSpec", remedy, mode=self.mode)
        for name in _NEEDED[self.mode]:
            if getattr(self, name) is None:
                raise InputError(f"EstimatorSpec for mode {self.mode!r} has no {name}.", f"Write {_EXAMPLES[name]}.")
        shape = tuple(getattr(self.loss, "shape", ()))
        if self.mode != ModeKeys.PREDICT and any(size != 1 for size in shape):
            raise InputError(
                f"EstimatorSpec was given a loss of shape {shape}.",
                "Training needs a single number as the loss.",
                "Reduce it: loss=keras.ops.mean(loss), or keras.ops.sum(loss) * (1.0 / BATCH_SIZE).",
            )
        self._check_metrics()
        remedy = "Write scaffold=stratagem.estimator.Scaffold(init_fn=init_fn), or leave it out."
        check_kind("EstimatorSpec was given scaffold", self.scaffold, Scaffold | None, remedy)
        for name in _HOOKS:
            hooks = check_entries(f"EstimatorSpec was given {name} with", getattr(self, name), SessionRunHook)
            object.__setattr__(self, name, hooks)

    def _check_metrics(self) -> None:
        metrics = self.eval_metric_ops
        if metrics is None:
            return
        if not isinstance(metrics, Mapping):
            raise InputError(
                f"EstimatorSpec was given eval_metric_ops of type {type(metrics).__name__}.",
                'Write eval_metric_ops={"accuracy": accuracy}.',
            )
        for name, metric in metrics.items():
            if not isinstance(metric_of(metric), keras.Metric):
                raise InputError(
                    f"EstimatorSpec was given eval_metric_ops[{name!r}] of type {type(metric).__name__}.",
                    "Give a Keras metric after metric.update_state(labels, predictions), or the pair that a "
                    "function of stratagem.estimator.metrics returned.",
                )


def metric_of(entry: Any) -> Any:
    """Return the metric of an entry of `eval_metric_ops`: itself, or the first of a pair."""
    return entry[0] if isinstance(entry, tuple) and len(entry) == 2 else entry
