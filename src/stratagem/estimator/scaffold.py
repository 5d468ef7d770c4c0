"""What begins a session in a way of its own: `Scaffold`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from stratagem.core.errors import InputError

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
    """How a session begins (`tf.compat.v1.train.Scaffold`): `EstimatorSpec(scaffold=Scaffold(init_fn=...))`.

    Only `init_fn` is left of it: the others are operations of a graph, and of its saver.

    Args:
        init_op: None.
        init_feed_dict: None.
        init_fn: Called as `init_fn(scaffold, session)` before the first step where no checkpoint is restored, when the
            variables have their initial values. It gives others: `session.variables["dense/kernel"].assign(value)`.
        **operations: None: the error for each says what does the same here.

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
                raise InputError(
                    f"Scaffold was given {name}={value!r}.",
                    "There is no graph that it could be an operation of; it would never run.",
                    _REPAIRS.get(name, "Scaffold(init_fn=...) is all that is used."),
                )
        if init_fn is not None and not callable(init_fn):
            raise InputError(
                f"Scaffold was given init_fn={init_fn!r}.",
                "It cannot be called when a session begins.",
                "Write a function init_fn(scaffold, session).",
            )
        self.init_fn = init_fn

    def finalize(self) -> Scaffold:
        """Return the scaffold: there is no graph to finish."""
        return self
