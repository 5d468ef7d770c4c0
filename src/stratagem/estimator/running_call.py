"""The call of a model function that is running, for what is called inside it."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from stratagem.core.errors import UsageError
from stratagem.loop.tape import GradientTape


@dataclass
class Scope:
    """A variable scope that is open: what is made in it has its name in front.

    Args:
        name: Its full name, with those of the outer scopes: `generator/block`; empty outside all scopes.
        reuse: Whether to use again what has that name: True, False, or "auto" to make what is missing.
        counts: Number of layers of each kind that were made in it without a name.
        initializer: Of variables made in it that have none.
        regularizer: Of variables made in it that have none.
    """

    name: str = ""
    reuse: bool | str = False
    counts: dict[str, int] = field(default_factory=dict)
    initializer: Any = None
    regularizer: Any = None

    def reuse_variables(self) -> None:
        """Use what has a name again from here on."""
        self.reuse = True


@dataclass
class Call:
    """One call of a model function.

    Args:
        mode: What it is called for.
        global_step: The variable that counts steps.
        tape: Records the computation, in training.
        summaries: Scalars for TensorBoard, by name.
        named: Tensors that were given a name, for hooks that ask by name.
        scopes: The variable scopes that are open, the innermost last.
        made: Layers and variables made by `stratagem.estimator.layers` and `get_variable`, by path.
        collections: What was added to collections, by the name of the collection.
    """

    mode: str
    global_step: Any
    tape: GradientTape | None = None
    summaries: dict[str, Any] = field(default_factory=dict)
    named: dict[str, Any] = field(default_factory=dict)
    scopes: list[Scope] = field(default_factory=lambda: [Scope()])
    made: dict[str, Any] = field(default_factory=dict)
    collections: dict[str, list[Any]] = field(default_factory=dict)

    def collect(self, collection: str, values: Iterable[Any]) -> None:
        """Add values to a collection."""
        self.collections.setdefault(collection, []).extend(values)


_call: contextvars.ContextVar[Call | None] = contextvars.ContextVar("stratagem_model_fn", default=None)
_global_step: contextvars.ContextVar[Any] = contextvars.ContextVar("stratagem_global_step", default=None)


@contextlib.contextmanager
def calling(call: Call) -> Iterator[None]:
    """Let this be the call that is running."""
    token = _call.set(call)
    try:
        with counting_in(call.global_step):
            yield
    finally:
        _call.reset(token)


@contextlib.contextmanager
def counting_in(global_step: Any) -> Iterator[None]:
    """Let `get_global_step` return this variable."""
    token = _global_step.set(global_step)
    try:
        yield
    finally:
        _global_step.reset(token)


def running_call() -> Call | None:
    """Return the call that is running, None outside a model function."""
    return _call.get()


def current_call(what: str) -> Call:
    """Return the call that is running.

    Args:
        what: What needs it, for the error message.

    Raises:
        UsageError: No model function is running.
    """
    call = _call.get()
    if call is None:
        raise UsageError(
            f"{what} was called outside a model_fn.",
            "Call it in the function that is given to stratagem.estimator.Estimator(model_fn=...).",
        )
    return call


def identity(tensor: Any, name: str | None = None) -> Any:
    """Give a tensor a name that hooks can use (`tf.identity`).

    Args:
        tensor: A tensor that a model function has computed.
        name: Its name, for `LoggingTensorHook(["loss_of_words"], every_n_iter=10)`.

    Returns:
        The tensor. Outside a model_fn the call has no effect.
    """
    call = running_call()
    if call is not None and name is not None:
        call.named[name] = tensor
    return tensor


def get_global_step() -> Any:
    """Return the variable that counts the steps of an Estimator (`tf.compat.v1.train.get_global_step`).

    Returns:
        An int32 variable in a model_fn and in the methods of hooks; None elsewhere.
    """
    return _global_step.get()


def get_or_create_global_step() -> Any:
    """Return the variable that counts steps (`tf.compat.v1.train.get_or_create_global_step`).

    The Estimator adds one for each step, whether or not `minimize` gets the variable. A model_fn that assigns to it
    counts for itself.

    Raises:
        UsageError: Called outside a model_fn and the methods of hooks.
    """
    step = get_global_step()
    if step is None:
        current_call("get_or_create_global_step()")
    return step
