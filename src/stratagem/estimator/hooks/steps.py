"""Hooks that watch the steps: log, count, record, stop."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from stratagem.core.clock import Clock
from stratagem.core.errors import StratagemError, UsageError
from stratagem.core.log import logger
from stratagem.estimator.checks import unusable
from stratagem.estimator.hooks import base
from stratagem.estimator.hooks.timer import SecondOrStepTimer
from stratagem.estimator.log import say


class NanLossDuringTrainingError(StratagemError, RuntimeError):
    """The loss has become NaN. Remedy: a smaller learning rate, or data without errors."""


class LoggingTensorHook(base.SessionRunHook):
    """Log tensors at intervals of steps or seconds (`tf.estimator.LoggingTensorHook`).

    Args:
        tensors: Tensors by name; or a list of tensors and names.
        every_n_iter: Steps between two lines.
        every_n_secs: Seconds between two lines.
        at_end: Whether to log at the end too. Without an interval, it logs only then.
        formatter: Function from a dictionary of values to the line.
        clock: The source of time, for tests.

    Raises:
        InputError: Steps and seconds are both given, or neither of them and not `at_end`.
    """

    def __init__(
        self,
        tensors: Mapping[str, Any] | Sequence[Any],
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable[[dict[str, Any]], str] | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        self.tensors = dict(tensors) if isinstance(tensors, Mapping) else {_name(tensor): tensor for tensor in tensors}
        only_at_end = at_end and every_n_iter is None and every_n_secs is None
        self._timer = None if only_at_end else SecondOrStepTimer(every_n_secs, every_n_iter, clock=clock)
        self._at_end = at_end
        self._formatter = formatter
        self._steps = 0
        self._due = False

    def begin(self) -> None:
        self._steps = 0
        if self._timer is not None:
            self._timer.reset()

    def before_run(self, run_context: base.SessionRunContext) -> base.SessionRunArgs | None:
        self._due = self._timer is not None and self._timer.should_trigger_for_step(self._steps)
        return base.SessionRunArgs(self.tensors) if self._due else None

    def after_run(self, run_context: base.SessionRunContext, run_values: base.SessionRunValues) -> None:
        if self._due:
            self._log(run_values.results)
        self._steps += 1

    def end(self, session: Any) -> None:
        if self._at_end:
            self._log(session.run(self.tensors))

    def _log(self, values: dict[str, Any]) -> None:
        seconds = None if self._timer is None else self._timer.update_last_triggered_step(self._steps)[0]
        if self._formatter is not None:
            say(self._formatter(values))
            return
        line = ", ".join(f"{name} = {value!s}" for name, value in values.items())
        say(line if seconds is None else f"{line} ({seconds:.3f} sec)")


class StepCounterHook(base.SessionRunHook):
    """Log the number of steps per second (`tf.estimator.StepCounterHook`).

    Args:
        every_n_steps: Steps between two lines; 100 if seconds are not given either.
        every_n_secs: Seconds between two lines.
        output_dir: Accepted as in TensorFlow; the summaries contain the number too.
        summary_writer: Function of the step and {"global_step/sec": number}, called for each line.
        clock: The source of time, for tests.
    """

    def __init__(
        self,
        every_n_steps: int | None = 100,
        every_n_secs: float | None = None,
        output_dir: str | None = None,
        summary_writer: Callable[[int, Mapping[str, float]], None] | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        if every_n_secs is not None and every_n_steps == 100:
            every_n_steps = None
        self._timer = SecondOrStepTimer(every_n_secs, every_n_steps, clock=clock)
        self._write = summary_writer

    def after_run(self, run_context: base.SessionRunContext, run_values: base.SessionRunValues) -> None:
        step = run_context.session.global_step
        if self._timer.should_trigger_for_step(step):
            seconds, steps = self._timer.update_last_triggered_step(step)
            if seconds and steps:
                say(f"global_step/sec: {steps / seconds:g}")
                if self._write is not None:
                    self._write(step, {"global_step/sec": steps / seconds})


class StopAtStepHook(base.SessionRunHook):
    """Stop after a number of steps, or at a step (`tf.estimator.StopAtStepHook`).

    Args:
        num_steps: Number of steps from now.
        last_step: The step to stop at.

    Raises:
        InputError: Not exactly one of the two is given.
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        if (num_steps is None) == (last_step is None):
            raise unusable("StopAtStepHook", "Give one of them.", num_steps=num_steps, last_step=last_step)
        self._num_steps = num_steps
        self._last_step = last_step

    def after_create_session(self, session: Any, coord: Any) -> None:
        if self._num_steps is not None:
            self._last_step = session.global_step + self._num_steps

    def after_run(self, run_context: base.SessionRunContext, run_values: base.SessionRunValues) -> None:
        if self._last_step is not None and run_context.session.global_step >= self._last_step:
            run_context.request_stop()


class EvaluationProgressHook(base.SessionRunHook):
    """Stop an evaluation after a number of steps, and log about ten times how far it is.

    Args:
        steps: Number of steps; None for all of the data, without progress lines.
    """

    def __init__(self, steps: int | None) -> None:
        self._steps = steps
        self._done = 0

    def after_run(self, run_context: base.SessionRunContext, run_values: base.SessionRunValues) -> None:
        self._done += 1
        if self._steps is None:
            return
        every = 1 if self._steps < 20 else self._steps // 10
        if self._done % every == 0 or self._done == self._steps:
            say(f"Evaluation [{self._done}/{self._steps}]")
        if self._done >= self._steps:
            run_context.request_stop()


class NanTensorHook(base.SessionRunHook):
    """Stop training when the loss is NaN (`tf.estimator.NanTensorHook`).

    The loss of a step is checked when the next step has begun, so that no device waits for it. All losses are checked
    before anything is saved, and at the end.

    Args:
        loss_tensor: The loss; or another tensor of the model function, which is checked in its own step.
        fail_on_nan_loss: Whether NaN raises an error; otherwise training stops.
    """

    def __init__(self, loss_tensor: Any = base.LOSS, fail_on_nan_loss: bool = True) -> None:
        self.loss_tensor = loss_tensor
        self._fail = fail_on_nan_loss
        self._is_loss = isinstance(loss_tensor, str) and loss_tensor == base.LOSS
        self._last: tuple[Any, int] = (None, 0)

    def begin(self) -> None:
        self._last = (None, 0)

    def before_run(self, run_context: base.SessionRunContext) -> base.SessionRunArgs | None:
        return None if self._is_loss else base.SessionRunArgs(self.loss_tensor)

    def after_run(self, run_context: base.SessionRunContext, run_values: base.SessionRunValues) -> None:
        session = run_context.session
        if not self._is_loss:
            stops = self._is_nan(run_values.results, session.global_step)
        else:
            stops = self._is_nan_loss(self._last)
            self._last = (session.last, session.global_step)
        if stops:
            run_context.request_stop()

    def look(self, session: base.Session) -> bool:
        """Check all losses, including that of the last step, and return whether to stop training.

        Args:
            session: The session.

        Raises:
            NanLossDuringTrainingError: A loss is NaN, and `fail_on_nan_loss` is True.
        """
        return self._is_loss and any(map(self._is_nan_loss, (self._last, (session.last, session.global_step))))

    def _is_nan_loss(self, step: tuple[Any, int]) -> bool:
        results, number = step
        return results is not None and self._is_nan(results.loss, number)

    def _is_nan(self, values: Any, step: int) -> bool:
        if not np.isnan(values).any():
            return False
        if not self._fail:
            logger.warning("The loss is NaN. Training stops.")
            return True
        raise NanLossDuringTrainingError(
            f"The loss is NaN at step {step}.",
            "Weights cannot be trained any more. The last checkpoint is from before this step.",
            "Look for NaN in the data and, with classes, for labels that are not from 0 to n_classes - 1; use a "
            "smaller learning rate, clip gradients.",
        )


class FinalOpsHook(base.SessionRunHook):
    """Read tensors and variables when the session ends (`tf.estimator.FinalOpsHook`).

    Args:
        final_ops: A structure of tensors and variables.
        final_ops_feed_dict: Accepted as in TensorFlow.
    """

    def __init__(self, final_ops: Any, final_ops_feed_dict: Any = None) -> None:
        self.final_ops = final_ops
        self.final_ops_values: Any = None

    def end(self, session: Any) -> None:
        self.final_ops_values = session.run(self.final_ops)


class ProfilerHook(base.SessionRunHook):
    """Profile one step at intervals of steps or seconds (`tf.estimator.ProfilerHook`).

    It writes a JAX trace for TensorBoard, `plugins/profile/<time>` (`pip install xprof`), where TensorFlow writes
    `timeline-<step>.json`. The first step, which is compiled, is not recorded. With parameter servers it records the
    chief.

    Args:
        save_steps: Steps between two records.
        save_secs: Seconds between two records.
        output_dir: Folder for the traces, such as `model_dir`.
        show_dataflow: Accepted as in TensorFlow.
        show_memory: Accepted as in TensorFlow.
        clock: The source of time, for tests.

    Raises:
        InputError: Not exactly one of steps and seconds is given.
        UsageError: A trace is being recorded already.
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str | os.PathLike[str] = "",
        show_dataflow: bool = True,
        show_memory: bool = False,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._folder = os.fspath(output_dir) or "."
        self._timer = SecondOrStepTimer(save_secs, save_steps, clock=clock)
        self._records = False

    def begin(self) -> None:
        self._timer.reset()

    def before_run(self, run_context: base.SessionRunContext) -> None:
        step = run_context.session.global_step + 1
        is_first = self._timer.last_triggered_step() is None
        self._records = not is_first and self._timer.should_trigger_for_step(step)
        if self._records:
            self._start()

    def after_run(self, run_context: base.SessionRunContext, run_values: base.SessionRunValues) -> None:
        session = run_context.session
        if self._records:
            if session.last is not None:
                session.last.wait()
            jax.profiler.stop_trace()
            say(f"Saved the profile of step {session.global_step} into {self._folder}.")
        if self._records or self._timer.last_triggered_step() is None:
            self._timer.update_last_triggered_step(session.global_step)

    def _start(self) -> None:
        try:
            jax.profiler.start_trace(self._folder)
        except RuntimeError as error:
            raise UsageError(
                f"ProfilerHook could not record a step: {error}",
                "JAX records one trace at a time.",
                "Use one ProfilerHook, and end a trace that the program has started before train().",
            ) from error


def _name(tensor: Any) -> str:
    return tensor if isinstance(tensor, str) else getattr(tensor, "name", None) or f"tensor of shape {tensor.shape}"
