"""`optimizer.minimize(loss)` in a model function: gradients of a loss that has been computed already.

A model function runs under a gradient tape. `minimize` notes what is to be done, as an operation of TensorFlow's graph
did; it is done when the function has returned, if it is the `train_op` of the spec. A learning rate may be a tensor
that the step computes; Keras's optimizers take numbers and schedules only.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import keras
from jax.core import Tracer

from stratagem.core import patches
from stratagem.core.errors import InputError, UsageError
from stratagem.estimator.running_call import current_call, running_call
from stratagem.loop.tape import GradientTape
from stratagem.tf.keras import old_optimizers

Pairs = Iterable[tuple[Any, Any]]
"""Pairs of a gradient and its variable."""


_first: contextvars.ContextVar[tuple[Any, ...]] = contextvars.ContextVar("stratagem_run_first", default=())


class TrainOp:
    """An update of variables, done if it is the `train_op` of an `EstimatorSpec`, and once.

    Args:
        update: Makes the update.
    """

    def __init__(self, update: Callable[[], object]) -> None:
        self._update = update
        self._before = _first.get()
        self._done = False

    def run(self) -> None:
        """Make the update, if it has not been made; before it those that it depends on."""
        if not self._done:
            self._done = True
            run_train_op(self._before)
            self._update()


@contextlib.contextmanager
def running_first(operations: Iterable[Any]) -> Iterator[None]:
    """Let what is made inside run these operations first.

    Args:
        operations: `TrainOp`s; other values are ignored.
    """
    token = _first.set((*_first.get(), *operations))
    try:
        yield
    finally:
        _first.reset(token)


def group(*operations: Any, name: str | None = None) -> TrainOp:
    """Combine several operations into one `train_op` (`tf.group`).

    Args:
        *operations: Results of `minimize` and `apply_gradients`; other values are ignored.
        name: Accepted as in TensorFlow.
    """
    return TrainOp(lambda: run_train_op(operations))


def run_train_op(operation: Any) -> None:
    """Make the updates of a `train_op`.

    Args:
        operation: A `TrainOp` or a list of them; what Keras's `apply_gradients` returned is done already.
    """
    for single in operation if isinstance(operation, list | tuple) else (operation,):
        if isinstance(single, TrainOp):
            single.run()


_rates: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
"""For each optimizer that was made with a tensor as learning rate the tensor."""


def is_rate_of_step(learning_rate: Any) -> bool:
    """Whether a learning rate is computed in each step: a tensor or a variable."""
    return isinstance(learning_rate, Tracer | keras.Variable)


def keep_rate(optimizer: Any, learning_rate: Any) -> None:
    """Let an optimizer use this learning rate of the step whenever it applies gradients."""
    _rates[optimizer] = learning_rate
    optimizer.apply_gradients = functools.partial(_taken_first, optimizer)


def take_rate(optimizer: Any) -> None:
    """Assign the learning rate of this step, before gradients are applied.

    So the update reads no value of the step that it is not given: see `Exchange.call`.
    """
    rate = _rates.get(optimizer)
    if rate is not None:
        optimizer.learning_rate.assign(rate)


def _taken_first(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    take_rate(optimizer)
    return type(optimizer).apply_gradients(optimizer, *args, **kwargs)


def minimize(
    optimizer: Any,
    loss: Any,
    var_list: Any = None,
    grad_loss: Any = None,
    name: str | None = None,
    tape: GradientTape | None = None,
    **options: Any,
) -> Any:
    """Return the operation that makes a loss smaller, the `train_op` of an `EstimatorSpec`.

    Outside a model_fn it makes the step at once, as in Keras 2 (`stratagem.tf.keras.old_optimizers.minimize`).

    Args:
        optimizer: The optimizer, whose method this is.
        loss: A scalar that the model_fn has computed, or a function of no arguments that computes it.
        var_list: The variables to change; None for all trainable ones that have been used.
        grad_loss: What the gradients are multiplied with; 1 when None.
        name: Accepted as in TensorFlow.
        tape: The tape that the loss was computed under, if it was one of the model_fn's own.
        options: `global_step`, since every step is counted, `gate_gradients`, `aggregation_method` and the like:
            accepted in a model_fn, and without effect.
    """
    call = running_call()
    if call is None:
        return old_optimizers.minimize(optimizer, loss, var_list, grad_loss, name, tape, **options)
    global_step = options.get("global_step")
    if isinstance(var_list, keras.Variable):  # TensorFlow's old optimizers took the step in this place
        var_list, global_step = (None, var_list) if var_list is call.global_step else ([var_list], global_step)
    _check_step(global_step)
    if call.tape is None:
        return TrainOp(lambda: None)  # a model_fn that makes its train_op in every mode
    if isinstance(var_list, GradientTape):
        var_list, tape = None, var_list
    loss, source = _computed(loss, tape or call.tape)

    def update() -> None:
        keras_apply = keras.optimizers.Optimizer.apply_gradients
        take_rate(optimizer)
        keras_apply(optimizer, _gradients(source, loss, var_list, grad_loss))

    return TrainOp(update)


def compute_gradients(optimizer: Any, loss: Any, var_list: Sequence[Any] | None = None, **options: Any) -> list[Any]:
    """Return pairs of gradient and variable, to change and to give to `apply_gradients`.

    Args:
        optimizer: The optimizer, whose method this is.
        loss: As for `minimize`.
        var_list: As for `minimize`.
        options: As for `minimize`.

    Raises:
        UsageError: Called outside a model_fn.
    """
    call = current_call("optimizer.compute_gradients")
    if call.tape is None:
        return [(keras.ops.zeros(v.shape, v.dtype), v) for v in var_list or ()]
    loss, source = _computed(loss, call.tape)
    return _gradients(source, loss, var_list, options.get("grad_loss"))


class _Updating:
    """A base of Keras's optimizers, with the methods that model functions call."""

    compute_gradients = compute_gradients
    minimize = minimize


def install() -> None:
    """Give Keras's optimizers the methods that model functions call. A second call does nothing."""
    patches.install(__name__, {"Optimizer.__bases__": _Updating})


def _computed(loss: Any, tape: GradientTape) -> tuple[Any, GradientTape]:
    if not callable(loss) or hasattr(loss, "shape"):
        return loss, tape
    with GradientTape(persistent=True) as own:
        value = loss()
    return value, own


def _gradients(tape: GradientTape, loss: Any, var_list: Sequence[Any] | None, weight: Any) -> list[Any]:
    variables = list(tape.watched_variables() if var_list is None else var_list)
    if not variables:
        raise UsageError(
            "minimize was called for a loss, and no trainable variable has been used to compute it.",
            "Compute the loss in model_fn from the outputs of layers, under the given tape if there is one.",
        )
    weights = None if weight is None else [weight]
    gradients = tape.gradient(loss, variables, output_gradients=weights)
    pairs = list(zip(gradients, variables, strict=True))
    found = [pair for pair in pairs if pair[0] is not None]
    if not found:
        raise UsageError(
            f"minimize: the loss does not depend on any of {len(variables)} variable(s), "
            f"{', '.join(variable.path for variable in variables[:3])} among them.",
            "Compute the loss from what the model returns; keras.ops keeps the connection, NumPy does not.",
        )
    return found if var_list is None else pairs


def _check_step(global_step: Any) -> None:
    if global_step is not None and not isinstance(global_step, keras.Variable):
        raise InputError(
            f"minimize was given global_step={global_step!r}.",
            "Write global_step=stratagem.estimator.get_or_create_global_step(), or leave it out.",
        )
