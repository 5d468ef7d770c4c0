"""Hooks that stop training by what evaluations have found (`tf.estimator.experimental`)."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stratagem.checkpoint.summary import read_scalars
from stratagem.core.errors import InputError
from stratagem.estimator.checks import check_callable
from stratagem.estimator.hooks.base import SessionRunContext, SessionRunHook, SessionRunValues
from stratagem.estimator.hooks.timer import CommonTimer
from stratagem.estimator.log import say


def read_eval_metrics(eval_dir: str) -> dict[int, dict[str, float]]:
    """Return the metrics of each evaluated step (`tf.estimator.experimental.read_eval_metrics`).

    Args:
        eval_dir: The result of `Estimator.eval_dir()`.
    """
    return read_scalars(eval_dir)


@dataclass(eq=False)
class EarlyStoppingHook(SessionRunHook):
    """Stop training when a function says so. With several workers the chief asks it, and all stop after the same step.

    Args:
        should_stop: Takes nothing, returns whether to stop.
        timer: When it is asked.
    """

    should_stop: Callable[[], bool]
    timer: CommonTimer

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        session = run_context.session
        if not self.timer.is_due(session):
            return
        self.timer.update_last_triggered_step(session.global_step)
        strategy = session.program.strategy
        if strategy.from_chief("early stopping", strategy.is_chief and bool(self.should_stop())):
            say(f"Requesting early stopping at global step {session.global_step}")
            run_context.request_stop()


def make_early_stopping_hook(
    estimator: Any,
    should_stop_fn: Callable[[], bool],
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> EarlyStoppingHook:
    """Return a hook that stops training if a function returns True (`tf.estimator.experimental`).

    Args:
        estimator: Accepted as in TensorFlow.
        should_stop_fn: Function without arguments that returns whether to stop.
        run_every_secs: Seconds between two calls.
        run_every_steps: Steps between two calls, in place of seconds.

    Raises:
        InputError: The function is not callable, or seconds and steps are both given.
    """
    remedy = "Give a function without arguments that returns True or False."
    check_callable("make_early_stopping_hook was given should_stop_fn", should_stop_fn, remedy)
    if run_every_steps is not None and run_every_secs == 60:
        run_every_secs = None
    return EarlyStoppingHook(should_stop_fn, CommonTimer(run_every_secs, run_every_steps))


def stop_if_higher_hook(
    estimator: Any, metric_name: str, threshold: float, *args: Any, **options: Any
) -> SessionRunHook:
    """Return a hook that stops training when a metric of an evaluation is higher than a threshold.

    Args:
        estimator: The Estimator that is trained.
        metric_name: One of the metrics that `evaluate` returns.
        threshold: The number.
        args: As `options`, in this order.
        options: `eval_dir` (that of the Estimator), `min_steps` (evaluations of earlier steps do not count, 0),
            `run_every_secs` (60), `run_every_steps`.
    """
    return _metric_hook(_passes(operator.gt, threshold), estimator, metric_name, *args, **options)


def stop_if_lower_hook(
    estimator: Any, metric_name: str, threshold: float, *args: Any, **options: Any
) -> SessionRunHook:
    """Return a hook that stops training when a metric of an evaluation is lower than a threshold.

    Args:
        estimator: As for `stop_if_higher_hook`.
        metric_name: One of the metrics that `evaluate` returns.
        threshold: The number.
        args: As for `stop_if_higher_hook`.
        options: As for `stop_if_higher_hook`.
    """
    return _metric_hook(_passes(operator.lt, threshold), estimator, metric_name, *args, **options)


def stop_if_no_increase_hook(
    estimator: Any, metric_name: str, max_steps_without_increase: int, *args: Any, **options: Any
) -> SessionRunHook:
    """Return a hook that stops training when a metric has not risen for a number of steps.

    Args:
        estimator: As for `stop_if_higher_hook`.
        metric_name: One of the metrics that `evaluate` returns.
        max_steps_without_increase: The number of steps.
        args: As for `stop_if_higher_hook`.
        options: As for `stop_if_higher_hook`.
    """
    return _metric_hook(_stalls(operator.gt, max_steps_without_increase), estimator, metric_name, *args, **options)


def stop_if_no_decrease_hook(
    estimator: Any, metric_name: str, max_steps_without_decrease: int, *args: Any, **options: Any
) -> SessionRunHook:
    """Return a hook that stops training when a metric has not fallen for a number of steps.

    Args:
        estimator: As for `stop_if_higher_hook`.
        metric_name: One of the metrics that `evaluate` returns.
        max_steps_without_decrease: The number of steps.
        args: As for `stop_if_higher_hook`.
        options: As for `stop_if_higher_hook`.
    """
    return _metric_hook(_stalls(operator.lt, max_steps_without_decrease), estimator, metric_name, *args, **options)


Better = Callable[[float, float], bool]
"""Whether the first of two values counts as an improvement on, or as beyond, the second."""

Rule = Callable[[list[tuple[int, float]]], bool]
"""Whether to stop, by the step and the value of each evaluation."""


def _passes(beyond: Better, threshold: float) -> Rule:
    return lambda evaluated: any(beyond(value, threshold) for _, value in evaluated)


def _stalls(better: Better, max_steps: int) -> Rule:
    def stops(evaluated: list[tuple[int, float]]) -> bool:
        best: tuple[int, float] | None = None
        for step, value in evaluated:
            if best is None or better(value, best[1]):
                best = step, value
            if step - best[0] >= max_steps:
                return True
        return False

    return stops


def _metric_hook(
    rule: Rule,
    estimator: Any,
    metric_name: str,
    eval_dir: str | None = None,
    min_steps: int = 0,
    *args: Any,
    **options: Any,
) -> SessionRunHook:
    def should_stop() -> bool:
        evaluations = read_eval_metrics(eval_dir or estimator.eval_dir())
        for step, metrics in evaluations.items():
            if metric_name not in metrics:
                raise InputError(
                    f"Training is to stop by the metric {metric_name!r}, but the evaluation of step {step} does not "
                    "have it.",
                    f"Write one of {', '.join(sorted(metrics))}.",
                )
        return rule([(step, metrics[metric_name]) for step, metrics in evaluations.items() if step >= min_steps])

    return make_early_stopping_hook(estimator, should_stop, *args, **options)
