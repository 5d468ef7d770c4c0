"""Hooks round the steps of training, evaluation and prediction: the interface."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

LOSS: Final = "loss"
"""The name by which hooks ask for the loss."""


class Session(Protocol):
    """A session, as far as hooks know it."""

    program: Any
    global_step: int
    last: Any

    @property
    def variables(self) -> dict[str, Any]: ...

    def run(self, fetches: Any) -> Any: ...

    def settle(self) -> None: ...


@dataclass(frozen=True)
class SessionRunArgs:
    """The values that a hook requests from the next step (`tf.estimator.SessionRunArgs`).

    Args:
        fetches: A structure of tensors that model_fn made, variables, and the names "loss" and "global_step".
        feed_dict: Not supported; None.
        options: Accepted as in TensorFlow.
    """

    fetches: Any
    feed_dict: Any = None
    options: Any = None


@dataclass(frozen=True)
class SessionRunValues:
    """The values that a hook has requested (`tf.estimator.SessionRunValues`).

    Args:
        results: The structure of `SessionRunArgs.fetches` with NumPy arrays; None if nothing was requested.
        options: None, as JAX has none.
        run_metadata: None, as JAX has none.
    """

    results: Any
    options: Any = None
    run_metadata: Any = None


@dataclass(eq=False)
class SessionRunContext:
    """The current step, as a hook sees it (`tf.estimator.SessionRunContext`).

    Args:
        session: The session.
        stop_requested: Whether a hook has requested to stop after this step.
    """

    session: Session
    stop_requested: bool = False

    def request_stop(self) -> None:
        """Request to stop after this step."""
        self.stop_requested = True


class SessionRunHook:
    """Base of hooks, which are called at every step (`tf.estimator.SessionRunHook`).

    Source of the semantics: https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/estimator/SessionRunHook
    """

    def begin(self) -> None:
        """Called when a session is about to start; `get_global_step()` works here."""

    def after_create_session(self, session: Session, coord: Any) -> None:
        """Called when the variables have their values.

        Args:
            session: Reads variables: `session.run(variable)`.
            coord: None; TensorFlow's coordinator of threads.
        """

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Return the values to fetch in the next step.

        Args:
            run_context: The step.
        """

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Use the fetched values; may stop the session.

        Args:
            run_context: The step.
            run_values: The fetched values.
        """

    def end(self, session: Session) -> None:
        """Called when the session has ended without an exception.

        Args:
            session: Reads variables.
        """
