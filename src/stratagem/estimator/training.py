"""Training and evaluation in turn, or side by side: `train_and_evaluate`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from stratagem.checkpoint.checkpoints_iterator import checkpoints_of_training
from stratagem.cluster.chief_alive import ChiefWatch
from stratagem.cluster.detect import detect
from stratagem.core.clock import Clock, Deadline
from stratagem.estimator.checks import check_callable, check_entries, check_kind, check_named, unusable
from stratagem.estimator.estimator import Estimator
from stratagem.estimator.exporters import Exporter
from stratagem.estimator.hooks.base import Session, SessionRunHook
from stratagem.estimator.hooks.saving import CheckpointSaverListener
from stratagem.estimator.hooks.timer import SecondOrStepTimer
from stratagem.estimator.inputs import InputFn
from stratagem.estimator.log import say
from stratagem.estimator.programs.checkpoints import values_in
from stratagem.estimator.variables import GLOBAL_STEP

_LOOK_SECONDS = 2.0
"""Seconds between two looks whether training goes on, while an evaluator waits for its first evaluation."""


@dataclass(frozen=True)
class TrainSpec:
    """The training of `train_and_evaluate`: its data and hooks (`tf.estimator.TrainSpec`).

    Args:
        input_fn: Returns the data.
        max_steps: The global step to stop at; None means the end of the data.
        hooks: Hooks for every step.
        saving_listeners: Listeners that are called for every checkpoint.

    Raises:
        InputError: An argument cannot be used.

    Example:
        >>> TrainSpec(input_fn=lambda: None, max_steps=1000).max_steps
        1000
    """

    input_fn: InputFn
    max_steps: int | None = None
    hooks: Sequence[SessionRunHook] | None = None
    saving_listeners: Sequence[CheckpointSaverListener] | None = None

    def __post_init__(self) -> None:
        _check_spec(self, max_steps=1)
        listeners = check_entries("TrainSpec: saving_listeners has", self.saving_listeners, CheckpointSaverListener)
        object.__setattr__(self, "saving_listeners", listeners)


@dataclass(frozen=True)
class EvalSpec:
    """An evaluation of `train_and_evaluate`: its data, and how often it happens (`tf.estimator.EvalSpec`).

    Args:
        input_fn: Returns the data.
        steps: Number of batches of each evaluation; None means all of the data.
        name: Name of the evaluation; required if there are several.
        hooks: Hooks for every step.
        exporters: Exporters that are called after each evaluation.
        start_delay_secs: Time that an evaluator waits before its first evaluation, in seconds.
        throttle_secs: Shortest time between the starts of two evaluations, in seconds.

    Raises:
        InputError: An argument cannot be used.

    Example:
        >>> EvalSpec(input_fn=lambda: None).steps
        100
    """

    input_fn: InputFn
    steps: int | None = 100
    name: str | None = None
    hooks: Sequence[SessionRunHook] | None = None
    exporters: Exporter | Sequence[Exporter] | None = None
    start_delay_secs: float = 120
    throttle_secs: float = 600

    def __post_init__(self) -> None:
        _check_spec(self, steps=1, start_delay_secs=0, throttle_secs=0)
        remedy = "Give objects of classes derived from stratagem.estimator.Exporter, with different names."
        exporters = check_named("EvalSpec was given exporters", self.exporters, Exporter, remedy)
        object.__setattr__(self, "exporters", exporters)


def train_and_evaluate(
    estimator: Estimator,
    train_spec: TrainSpec,
    eval_spec: EvalSpec | Sequence[EvalSpec],
    *,
    clock: Clock | None = None,
) -> tuple[Any, Any]:
    """Train, and evaluate checkpoints (`tf.estimator.train_and_evaluate`).

    In one process, a checkpoint is evaluated when it has been saved, at most every `throttle_secs`. The last one is
    always evaluated. In a cluster of several workers, every task calls this function: chief and workers train, and an
    `evaluator` follows their checkpoints until it has evaluated the last one. With parameter servers, the chief hands
    steps to the workers.

    Source of the semantics: https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/estimator/train_and_evaluate

    Args:
        estimator: The Estimator.
        train_spec: The training.
        eval_spec: The evaluation. Several specs, each with its own name, are evaluated one after another.
        clock: The source of time, for tests.

    Returns:
        (metrics of the last evaluation, results of its exporters). A task that evaluates nothing returns None and an
        empty list. For several specs, two dictionaries by name.

    Raises:
        InputError: An argument cannot be used.
    """
    clock = clock or Clock()
    for name, value, kind in (("estimator", estimator, Estimator), ("train_spec", train_spec, TrainSpec)):
        check_kind(f"train_and_evaluate was given {name}", value, kind, f"Give a stratagem.estimator.{kind.__name__}.")
    specs = check_named(
        "train_and_evaluate was given eval_spec",
        eval_spec,
        EvalSpec,
        "Each evaluation needs data, and a name for its results.",
        'Write EvalSpec(input_fn=...); or a list, EvalSpec(..., name="test"), EvalSpec(..., name="train").',
        least=1,
    )
    evaluation = _Evaluation(estimator, specs, train_spec.max_steps, clock)
    config = estimator.config
    listeners: list[CheckpointSaverListener] = [*(train_spec.saving_listeners or ())]
    if config.task_type == "evaluator":
        _follow(estimator, evaluation, clock)
    else:
        if config.num_worker_replicas > 1 or getattr(config.train_distribute, "worker_count", 1) > 1:
            say(f"This task trains; a task of type evaluator evaluates what is saved into {estimator.model_dir}.")
        else:
            say("Running training and evaluation locally (non-distributed).")
            say(
                "Start train and evaluate loop. The evaluate will happen after every checkpoint. Checkpoint frequency "
                f"is determined based on RunConfig arguments: save_checkpoints_steps {config.save_checkpoints_steps} "
                f"or save_checkpoints_secs {config.save_checkpoints_secs}."
            )
            listeners.insert(0, evaluation)
        estimator.train(train_spec.input_fn, train_spec.hooks, None, train_spec.max_steps, listeners)
    if not isinstance(eval_spec, EvalSpec):
        return evaluation.metrics, evaluation.exports
    return evaluation.metrics.get(eval_spec.name), evaluation.exports.get(eval_spec.name, [])


class _Evaluation(CheckpointSaverListener):
    """Evaluates checkpoints by one or several specs; as a listener, while training waits.

    Args:
        estimator: The Estimator.
        specs: How to evaluate.
        max_steps: The step that training stops at.
        clock: The source of time, for tests.
    """

    def __init__(self, estimator: Estimator, specs: Sequence[EvalSpec], max_steps: int | None, clock: Clock) -> None:
        self.throttle_secs = min(spec.throttle_secs for spec in specs)
        self.start_delay_secs = min(spec.start_delay_secs for spec in specs)
        self.metrics: dict[str | None, Any] = {}
        """The metrics of the last evaluation, by the name of the spec."""
        self.exports: dict[str | None, list[Any]] = {}
        """The results of its exporters, likewise."""
        self._estimator = estimator
        self._specs = specs
        self._max_steps = max_steps
        self._last_step = 0
        self._timer = SecondOrStepTimer(every_secs=self.throttle_secs, clock=clock)
        self._saved_before = False

    def evaluate(self, path: str | None, *, is_last: bool) -> None:
        """Evaluate a checkpoint, the newest where no path is given."""
        for spec in self._specs:
            metrics = self._estimator.evaluate(spec.input_fn, spec.steps, spec.hooks, path, spec.name)
            self._last_step = int(metrics[GLOBAL_STEP])
            self.metrics[spec.name] = metrics
            final = is_last or self.is_over
            self.exports[spec.name] = [
                exporter.export(
                    self._estimator,
                    os.path.join(self._estimator.model_dir, "export", exporter.name),
                    path or self._estimator.latest_checkpoint(),
                    metrics,
                    final,
                )
                for exporter in cast("tuple[Exporter, ...]", spec.exporters)
            ]

    @property
    def is_over(self) -> bool:
        """Whether the last step of training has been evaluated."""
        return self._max_steps is not None and self._last_step >= self._max_steps

    def after_save(self, session: Session, global_step_value: int) -> None:
        if not self._saved_before:  # before the first step
            self._saved_before = True
        elif self._timer.should_trigger_for_step(global_step_value):
            self._timer.update_last_triggered_step(global_step_value)
            self.evaluate(None, is_last=False)
        else:
            say(f"Skip the current checkpoint eval due to throttle secs ({self.throttle_secs:g} secs).")

    def end(self, session: Session, global_step_value: int) -> None:
        if global_step_value != self._timer.last_triggered_step():
            self._timer.update_last_triggered_step(global_step_value)
            self.evaluate(None, is_last=True)


def _follow(estimator: Estimator, evaluation: _Evaluation, clock: Clock) -> None:
    """Evaluate checkpoints that other tasks save, until training has ended."""
    watch = ChiefWatch(detect().cluster_spec(), clock)
    delay = Deadline(evaluation.start_delay_secs, clock)
    if not delay.expired:
        say(f"Waiting {evaluation.start_delay_secs:g} secs before starting eval.")
    while not delay.expired and not watch.has_left():
        clock.wait(min(_LOOK_SECONDS, delay.remaining))
    for path in checkpoints_of_training(estimator.model_dir, watch, evaluation.throttle_secs, clock):
        if int(values_in(path)[GLOBAL_STEP]) == 0:
            continue  # nothing has been trained
        evaluation.evaluate(path, is_last=False)
        if evaluation.is_over:
            break


def _check_spec(spec: TrainSpec | EvalSpec, **least: int) -> None:
    """Check the fields of a spec, the numbers by the least that each may be."""
    owner = type(spec).__name__
    check_callable(f"{owner} was given input_fn", spec.input_fn, f"Write {owner}(input_fn=lambda: dataset).")
    for name, minimum in least.items():
        value = getattr(spec, name)
        if value is not None and value < minimum:
            remedy = f"Write a number of {minimum} or more" + (", or None." if minimum else ".")
            raise unusable(owner, remedy, **{name: value})
    object.__setattr__(spec, "hooks", check_entries(f"{owner} was given hooks with", spec.hooks, SessionRunHook))
