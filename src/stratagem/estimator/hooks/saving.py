"""Hooks that write: checkpoints, summaries, and evaluations while training goes on."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stratagem.checkpoint.summary import WriteScalars, scalar_writer
from stratagem.core.clock import Clock
from stratagem.estimator.checks import check_entries, unusable
from stratagem.estimator.hooks.base import Session, SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues
from stratagem.estimator.hooks.timer import CommonTimer, SecondOrStepTimer
from stratagem.estimator.log import say
from stratagem.estimator.programs.checkpoints import BASENAME, ModelCheckpoints


class CheckpointSaverListener:
    """Base of listeners that are called for every checkpoint (`tf.estimator.CheckpointSaverListener`)."""

    def begin(self) -> None:
        """Called when a session is about to start."""

    def before_save(self, session: Session, global_step_value: int) -> None:
        """Called when a checkpoint is about to be saved.

        Args:
            session: The session.
            global_step_value: The step.
        """

    def after_save(self, session: Session, global_step_value: int) -> bool | None:
        """Called when a checkpoint has been saved.

        Args:
            session: The session.
            global_step_value: The step.

        Returns:
            True to stop training.
        """

    def end(self, session: Session, global_step_value: int) -> None:
        """Called when the session has ended without an exception.

        Args:
            session: The session.
            global_step_value: The step.
        """


class CheckpointSaverHook(SessionRunHook):
    """Save checkpoints at the start, at intervals, and at the end (`tf.estimator.CheckpointSaverHook`).

    Args:
        checkpoint_dir: The folder.
        save_secs: Seconds between two checkpoints.
        save_steps: Steps between two checkpoints.
        saver: Accepted as in TensorFlow.
        checkpoint_basename: Beginning of the names.
        scaffold: Accepted as in TensorFlow.
        listeners: Listeners that are called for every checkpoint.
        save_graph_def: Accepted as in TensorFlow.
        keep: Number of checkpoints to keep; None or 0 keeps all.
        keep_every_n_hours: In addition, keep one checkpoint for each period of this many hours.
        clock: The source of time, for tests.

    Raises:
        InputError: Not exactly one of seconds and steps is given.
    """

    def __init__(
        self,
        checkpoint_dir: str | os.PathLike[str],
        save_secs: float | None = None,
        save_steps: int | None = None,
        saver: Any = None,
        checkpoint_basename: str = BASENAME,
        scaffold: Any = None,
        listeners: Sequence[CheckpointSaverListener] | None = None,
        save_graph_def: bool = True,
        *,
        keep: int | None = 5,
        keep_every_n_hours: float = 10000,
        clock: Clock | None = None,
    ) -> None:
        say("Create CheckpointSaverHook.")
        self.checkpoint_dir = os.fspath(checkpoint_dir)
        self.listeners = list(check_entries("saving_listeners has", listeners, CheckpointSaverListener))
        self._basename = checkpoint_basename
        self._keep = keep
        self._keep_every_n_hours = keep_every_n_hours
        self._timer = CommonTimer(save_secs, save_steps, clock=clock)
        self._checkpoints: ModelCheckpoints | None = None

    def begin(self) -> None:
        for listener in self.listeners:
            listener.begin()

    def after_create_session(self, session: Session, coord: Any) -> None:
        self._checkpoints = ModelCheckpoints(
            session.variables, self.checkpoint_dir, self._keep, self._keep_every_n_hours, self._basename
        )
        self._save(session)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if self._timer.is_due(run_context.session) and self._save(run_context.session):
            run_context.request_stop()

    def end(self, session: Session) -> None:
        if self._timer.last_triggered_step() != session.global_step:
            self._save(session)
        for listener in self.listeners:
            listener.end(session, session.global_step)

    def _save(self, session: Session) -> bool:
        """Save, and return whether a listener asks to stop."""
        assert self._checkpoints is not None, "a session has been created"
        session.settle()  # a checkpoint holds whole steps
        step = session.global_step
        self._timer.update_last_triggered_step(step)
        say(f"Calling checkpoint listeners before saving checkpoint {step}...")
        for listener in self.listeners:
            listener.before_save(session, step)
        say(f"Saving checkpoints for {step} into {os.path.join(self.checkpoint_dir, self._basename)}.")
        self._checkpoints.save()
        say(f"Calling checkpoint listeners after saving checkpoint {step}...")
        answers = [listener.after_save(session, step) for listener in self.listeners]  # all hear of it
        return any(answers)


class SummarySaverHook(SessionRunHook):
    """Write scalars for TensorBoard every so many steps or seconds (`tf.estimator.SummarySaverHook`).

    Args:
        save_steps: Steps between two summaries.
        save_secs: Seconds between two summaries.
        output_dir: Folder for an event file.
        summary_writer: Function of a step and scalars by name, in place of an event file.
        scaffold: Accepted as in TensorFlow.
        summary_op: Tensors by name.
        clock: The source of time, for tests.
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str | None = None,
        summary_writer: WriteScalars | None = None,
        scaffold: Any = None,
        summary_op: Mapping[str, Any] | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        self.summary_op = dict(summary_op or {})
        self._write = summary_writer
        self._output_dir = output_dir
        self._open = contextlib.ExitStack()
        self._timer = SecondOrStepTimer(save_secs, save_steps, clock=clock)
        self._due = False

    def begin(self) -> None:
        if self._write is None:
            self._write = self._open.enter_context(scalar_writer(self._output_dir))

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        self._due = self._timer.should_trigger_for_step(run_context.session.global_step + 1)
        return SessionRunArgs(self.summary_op) if self._due else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if self._due and self._write is not None:
            step = run_context.session.global_step
            self._timer.update_last_triggered_step(step)
            self._write(step, {name: float(value) for name, value in run_values.results.items()})

    def end(self, session: Session) -> None:
        self._open.close()


class InMemoryEvaluatorHook(SessionRunHook):
    """Evaluate the weights during training (`tf.estimator.experimental.InMemoryEvaluatorHook`).

    TensorFlow keeps them in memory. Here they pass through one small checkpoint below the folder of the evaluation.

    Args:
        estimator: The Estimator that is trained.
        input_fn: Returns the data of the evaluation.
        steps: Batches of each evaluation; None for all of the data.
        hooks: Hooks for every step of the evaluations.
        name: Name of the evaluation; its event files go to `eval_<name>`.
        every_n_iter: Steps between two evaluations.

    Raises:
        InputError: `estimator` is not an Estimator, or the number of steps is not positive.
    """

    def __init__(
        self,
        estimator: Any,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Sequence[SessionRunHook] | None = None,
        name: str | None = None,
        every_n_iter: int = 100,
    ) -> None:
        if every_n_iter is None or every_n_iter <= 0 or not hasattr(estimator, "evaluate"):
            remedy = "Give the Estimator that is trained, and a positive number of steps."
            raise unusable("InMemoryEvaluatorHook", remedy, estimator=estimator, every_n_iter=every_n_iter)
        self._estimator = estimator
        self._arguments = {"input_fn": input_fn, "steps": steps, "hooks": hooks, "name": name}
        self._every = every_n_iter
        self._checkpoints: ModelCheckpoints | None = None
        self._evaluated = -1

    def after_create_session(self, session: Any, coord: Any) -> None:
        folder = os.path.join(self._estimator.eval_dir(self._arguments["name"]), "in_training")
        self._checkpoints = ModelCheckpoints(session.variables, folder, keep=1)
        self._evaluate(session)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if run_context.session.global_step - self._evaluated >= self._every:
            self._evaluate(run_context.session)

    def end(self, session: Any) -> None:
        if self._evaluated != session.global_step:
            self._evaluate(session)

    def _evaluate(self, session: Any) -> None:
        assert self._checkpoints is not None, "a session has been created"
        session.settle()
        self._evaluated = session.global_step
        self._estimator.evaluate(**self._arguments, checkpoint_path=self._checkpoints.save())
