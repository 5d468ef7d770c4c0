"""The hook that records what the devices do in a step."""

from __future__ import annotations

import os

import jax

from stratagem.core.clock import Clock
from stratagem.core.errors import UsageError
from stratagem.estimator.hooks.base import SessionRunContext, SessionRunHook, SessionRunValues
from stratagem.estimator.hooks.timer import SecondOrStepTimer
from stratagem.estimator.log import say


class ProfilerHook(SessionRunHook):
    """Record one step every so many steps or seconds (`tf.estimator.ProfilerHook`).

    Where TensorFlow wrote `timeline-<step>.json`, this writes a trace of JAX, `plugins/profile/<time>`, for TensorBoard
    (`pip install xprof`). The first step, which is compiled, is not recorded. Under parameter servers the trace is of
    the chief.

    Args:
        save_steps: Steps between two records.
        save_secs: Seconds between two records.
        output_dir: Folder for the traces, such as `model_dir`.
        show_dataflow: Accepted as in TensorFlow.
        show_memory: Accepted as in TensorFlow.
        clock: Where time comes from.

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

    def before_run(self, run_context: SessionRunContext) -> None:
        step = run_context.session.global_step + 1
        is_first = self._timer.last_triggered_step() is None
        self._records = not is_first and self._timer.should_trigger_for_step(step)
        if self._records:
            self._start()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
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
