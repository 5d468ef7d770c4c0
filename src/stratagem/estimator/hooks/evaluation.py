"""Hooks of evaluations: one that shows how far it is, and one that evaluates while training goes on."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from stratagem.core.errors import InputError
from stratagem.estimator.hooks.base import SessionRunContext, SessionRunHook, SessionRunValues
from stratagem.estimator.log import say
from stratagem.estimator.programs.checkpoints import ModelCheckpoints


class EvaluationProgressHook(SessionRunHook):
    """Stop an evaluation after a number of steps, and log about ten times how far it is.

    Args:
        steps: Number of steps; None for all of the data, without progress lines.
    """

    def __init__(self, steps: int | None) -> None:
        self._steps = steps
        self._done = 0

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        self._done += 1
        if self._steps is None:
            return
        every = 1 if self._steps < 20 else self._steps // 10
        if self._done % every == 0 or self._done == self._steps:
            say(f"Evaluation [{self._done}/{self._steps}]")
        if self._done >= self._steps:
            run_context.request_stop()


class InMemoryEvaluatorHook(SessionRunHook):
    """Evaluate the weights that are being trained (`tf.estimator.experimental.InMemoryEvaluatorHook`).

    TensorFlow keeps them in memory; here they go through one small checkpoint below the folder of the evaluation.

    Args:
        estimator: The Estimator that is trained.
        input_fn: Returns the data of the evaluation.
        steps: Batches of each evaluation; None for all of the data.
        hooks: Told of every step of the evaluations.
        name: Of the evaluation: its event files go to `eval_<name>`.
        every_n_iter: Steps between two evaluations.

    Raises:
        InputError: It is not an Estimator, or the number of steps is not positive.
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
            raise InputError(
                f"InMemoryEvaluatorHook was given estimator={estimator!r} and every_n_iter={every_n_iter!r}.",
                "Give the Estimator that is trained, and a positive number of steps.",
            )
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
