"""Hooks round the steps of training, evaluation and prediction: the interface."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from stratagem.core.errors import InputError


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
    """What a hook wants to see of the step that comes (`tf.estimator.SessionRunArgs`).

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
    """What a hook has asked for (`tf.estimator.SessionRunValues`).

    Args:
        results: The structure of `SessionRunArgs.fetches` with NumPy arrays in it; None without.
        options: None, as JAX has none.
        run_metadata: None, as JAX has none.
    """

    results: Any
    options: Any = None
    run_metadata: Any = None


class SessionRunContext:
    """The step that is run, as a hook sees it (`tf.estimator.SessionRunContext`).

    Args:
        session: The session.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.stop_requested = False

    def request_stop(self) -> None:
        """Ask that this step be the last."""
        self.stop_requested = True


class SessionRunHook:
    """Something that is told of every step (`tf.estimator.SessionRunHook`).

    Source of the semantics: https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/estimator/SessionRunHook
    """

    def begin(self) -> None:
        """Hear that a session is about to begin; `get_global_step()` works here."""

    def after_create_session(self, session: Session, coord: Any) -> None:
        """Hear that the variables have their values.

        Args:
            session: Reads variables: `session.run(variable)`.
            coord: None; TensorFlow's coordinator of threads.
        """

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Say what to fetch in the step that comes.

        Args:
            run_context: The step.
        """

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """See what was fetched; may stop the session.

        Args:
            run_context: The step.
            run_values: What was fetched.
        """

    def end(self, session: Session) -> None:
        """Hear that the session has ended well; it is not called after an exception.

        Args:
            session: Reads variables.
        """


def check_hooks(what: str, hooks: Sequence[SessionRunHook] | None) -> tuple[SessionRunHook, ...]:
    """Return hooks as a tuple.

    Args:
        what: Where they were given, for the error message.
        hooks: The hooks; None for none.

    Raises:
        InputError: One of them is no hook.
    """
    if not isinstance(hooks, list | tuple | None):
        raise InputError(
            f"{what} of type {type(hooks).__name__}.",
            "It could not be gone through at each step.",
            "Write a list of hooks, also for one: [hook].",
        )
    for hook in hooks or ():
        if not isinstance(hook, SessionRunHook):
            raise InputError(
                f"{what} with {hook!r} of type {type(hook).__name__} among them.",
                "It has no methods that could be called at each step.",
                "Give objects of classes derived from stratagem.estimator.SessionRunHook.",
            )
    return tuple(hooks or ())
