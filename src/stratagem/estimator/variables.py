"""Variables that a model function makes: made once, however often the function is called.

A `model_fn` makes its layers, metrics and optimizer each time it is called, and it is called again for each tracing:
to learn its variables, to compile, to differentiate, for a batch of another size. So while it runs, the k-th variable
that Keras makes is the k-th of the first call. Names are counted from the start in each call, so that the same layer
has the same name in training, evaluation and prediction: that is how they find each other in a checkpoint.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.core import Tracer

from stratagem.checkpoint.compat import give
from stratagem.core import patches
from stratagem.core.errors import InputError, UsageError
from stratagem.core.patches import Extent
from stratagem.estimator import updates
from stratagem.estimator.compat import fresh_names, let_go
from stratagem.program.compat import stored_dtype
from stratagem.program.remote_values import lives_elsewhere

GLOBAL_STEP = "global_step"
"""Name of the variable that counts steps, in checkpoints and for hooks."""

_COMPUTED: Final = Tracer | keras.Variable | keras.KerasTensor
"""Values that a step computes."""

_filling: contextvars.ContextVar[VariableStore | None] = contextvars.ContextVar("stratagem_variables", default=None)


class VariableStore:
    """The variables of one mode of a model function, in the order in which they were made.

    Args:
        seed: Of Python's and NumPy's random numbers in the function, from which Keras draws the seeds of initial
            values and of dropout. None draws one.
    """

    def __init__(self, seed: int | None = None) -> None:
        install()
        self.seed = random.randrange(2**32) if seed is None else seed
        self._variables: list[Any] = []
        self._known: set[int] = set()
        self._position = 0
        self._optimizers: list[Any] = []
        self._optimizer_position = 0
        self._senders: list[Any] | None = None
        self._complete = False
        self._initial: dict[int, np.ndarray] = {}
        self.global_step = keras.Variable(
            0, dtype="int32", trainable=False, aggregation="only_first_replica", name=GLOBAL_STEP
        )

    @contextlib.contextmanager
    def filling(self) -> Iterator[None]:
        """Give a call of the function its variables. Each call does the same, its random numbers included."""
        self._position = self._optimizer_position = 0
        token = _filling.set(self)
        try:
            with fresh_names(), _seeded(self.seed), patches.during(Extent.MODEL_FUNCTION):
                yield
        finally:
            _filling.reset(token)

    def complete(self) -> None:
        """Note that the first call is over: all variables are made, and have their initial values."""
        self._complete = True
        self._initial = {id(variable): np.asarray(variable.value) for variable in self._variables if is_local(variable)}

    def made(self) -> tuple[list[Any], Any, list[Any]]:
        """Return what a worker's store takes: optimizers, the count of steps, variables."""
        # Optimizers come first: so their slots move to the servers beside the variables, not as other variables do.
        return self._optimizers, self.global_step, self._variables

    def take(self, optimizers: Sequence[Any], global_step: Any, variables: Sequence[Any]) -> None:
        """Let calls of the function find, on a worker, what it made on the chief.

        Args:
            optimizers: Those that send gradients in place of the ones that it makes, in order.
            global_step: The variable that counts steps.
            variables: Those that it makes, in order.
        """
        self._senders, self.global_step, self._variables = list(optimizers), global_step, list(variables)
        self._known = {id(variable) for variable in variables}
        self._complete = True

    def all(self) -> list[Any]:
        """Return all variables, the count of steps among them."""
        return [self.global_step, *self._variables]

    def saved(self) -> dict[str, Any]:
        """Return the variables that a checkpoint holds, by name; a path that occurs again gets a number."""
        named = {GLOBAL_STEP: self.global_step}
        for variable in self._variables:
            if is_local(variable) or is_of_program(variable):
                continue
            name, count = variable.path, 0
            while name in named:
                count += 1
                name = f"{variable.path}_{count}"
            named[name] = variable
        return named

    def so_far(self) -> list[Any]:
        """Return the variables that this call of the function has made, without those of metrics."""
        return [self.global_step, *(each for each in self._variables[: self._position] if not is_local(each))]

    def reset_local(self) -> None:
        """Give the variables that no checkpoint holds their initial values."""
        for variable in self._variables:
            if id(variable) in self._initial:
                variable.assign(self._initial[id(variable)])

    def release(self) -> None:
        """Free the values; the checkpoint has those that are to be kept."""
        for variable in self.all():
            if not lives_elsewhere(variable):
                let_go(variable, _released)

    def next_known(self) -> Any:
        """Return the variable that is made next, if an earlier call made it."""
        if self._position == len(self._variables):
            return None
        self._position += 1
        return self._variables[self._position - 1]

    def knows(self, variable: Any) -> bool:
        """Whether the variable is one of the function's."""
        return id(variable) in self._known

    def begin_with(self, variable: Any, value: Any) -> None:
        """Take a value that the function assigns as the initial one, in the first call; later calls repeat it."""
        if not self._complete:
            give(variable, _fitting(variable, value))

    def add(self, variable: Any) -> None:
        """Keep a variable that the first call made."""
        if self._complete:
            raise _unlike_before(f"made a variable {variable.path!r} that it did not make the first time")
        self._variables.append(variable)
        self._known.add(id(variable))
        self._position += 1

    def note(self, optimizer: Any) -> None:
        """Keep an optimizer that the function makes; on a worker, let another one apply its gradients."""
        position = self._optimizer_position
        self._optimizer_position += 1
        if self._senders is not None:
            optimizer.apply = functools.partial(_apply_by, self._senders[position], optimizer)
        elif position == len(self._optimizers):
            self._optimizers.append(optimizer)


def made_so_far() -> list[Any]:
    """Return the variables that the running function has made in this call, without those of metrics."""
    store = _filling.get()
    assert store is not None, "a model function runs"
    return store.so_far()


def is_local(variable: Any) -> bool:
    """Whether a variable belongs to one evaluation, as those of metrics do: no checkpoint holds it."""
    return variable.synchronization == "on_read"


def is_of_program(variable: Any) -> bool:
    """Whether a variable has its value from the program, not the checkpoint: a changed learning rate takes effect."""
    return not variable.trainable and variable.name == "learning_rate"


def install() -> None:
    """Let Keras ask the store that is being filled before it makes a variable. A second call does nothing."""
    patches.install(
        __name__,
        {
            "Variable.__bases__": _FoundAgain,
            "Variable.__init__": _made_once,
            "Variable.assign": _begun_with,
            "Optimizer.__init__": _noted,
        },
    )


class _FoundAgain:
    """A base of Keras's variables: the one that a running model function makes next is there already."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        store = _filling.get()
        known = store.next_known() if store is not None and (args or kwargs) else None
        return super().__new__(cls) if known is None else known


def _made_once(original: Callable[..., None]) -> Callable[..., None]:
    def init(variable: Any, initializer: Any, shape: Any = None, *args: Any, **kwargs: Any) -> None:
        store = _filling.get()
        if store is None:
            original(variable, initializer, shape, *args, **kwargs)
        elif store.knows(variable):
            _check_alike(variable, initializer, shape, kwargs.get("name"))
        else:
            initializer, shape = _initializer_of(initializer, shape)
            if isinstance(initializer, _Value) and not args and kwargs.get("dtype") is None:
                kwargs["dtype"] = jax.dtypes.canonicalize_dtype(initializer.value.dtype).name  # as Keras takes it
            original(variable, initializer, shape, *args, **kwargs)
            store.add(variable)

    return init


def _begun_with(original: Callable[..., Any]) -> Callable[..., Any]:
    """Take a value that is known while the function is traced, as of `load_weights`, as the initial value.

    Assigned in each step, it would undo the training; in TensorFlow it was lost.
    """

    def assign(variable: Any, value: Any) -> Any:
        store = _filling.get()
        if store is None or not store.knows(variable) or isinstance(value, _COMPUTED):
            return original(variable, value)
        store.begin_with(variable, value)
        return value

    return assign


def _fitting(variable: Any, value: Any) -> np.ndarray:
    value = np.asarray(value)
    if value.shape != tuple(variable.shape):
        raise InputError(
            f"model_fn gave {variable.path!r}, of shape {tuple(variable.shape)}, a value of shape {value.shape}.",
            "Load the weights of a model with the same layers.",
        )
    return value.astype(stored_dtype(variable))


def _noted(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init(optimizer: Any, learning_rate: Any, *args: Any, **kwargs: Any) -> None:
        of_step = updates.is_rate_of_step(learning_rate)
        original(optimizer, 0.0 if of_step else learning_rate, *args, **kwargs)
        if of_step:
            updates.keep_rate(optimizer, learning_rate)
        store = _filling.get()
        if store is not None:
            store.note(optimizer)

    return init


def _apply_by(sender: Any, optimizer: Any, grads: Sequence[Any], trainable_variables: Any = None) -> None:
    if not optimizer.built:
        optimizer.build(list(trainable_variables))  # it finds its slots, so that what is made next finds its own
    sender.apply(grads, trainable_variables)


def _released(shape: Any, dtype: Any = None) -> Any:
    raise UsageError(
        f"A variable of model_fn, of shape {tuple(shape)}, was read after train, evaluate or predict had ended.",
        "Its value has been freed.",
        "Read it from the checkpoint, estimator.get_variable_value(name); or in a hook, not later than in `end`.",
    )


@dataclass(frozen=True, eq=False)
class _Value:
    """A value as an initializer: Keras makes variables of no other kind while a function is traced."""

    value: np.ndarray

    def __call__(self, shape: Any, dtype: Any = None) -> jax.Array:
        return jnp.asarray(self.value, dtype)


def _initializer_of(initializer: Any, shape: Any) -> tuple[Any, Any]:
    if callable(initializer) or isinstance(initializer, str):
        return initializer, shape
    if isinstance(initializer, Tracer):
        raise UsageError(
            f"model_fn made a variable of a value that it computes, a tensor of shape {initializer.shape}.",
            "The tensor has no value yet when the variable gets its first value.",
            'Give the variable an initializer and a shape: keras.Variable("zeros", shape=(3,)); or a NumPy array.',
        )
    value = np.asarray(initializer)
    return _Value(value), value.shape


def _check_alike(variable: Any, initializer: Any, shape: Any, name: str | None) -> None:
    if not (callable(initializer) or isinstance(initializer, str)):
        shape = np.shape(initializer)
    wanted = tuple(shape) if isinstance(shape, list | tuple) else (shape,)
    if wanted != tuple(variable.shape) or name not in (None, variable.path.rpartition("/")[2]):
        raise _unlike_before(
            f"made {name or 'a variable'} of shape {wanted} where it made {variable.path!r} of shape "
            f"{tuple(variable.shape)} the first time"
        )


def _unlike_before(what: str) -> UsageError:
    return UsageError(
        f"model_fn {what}.",
        "It is called again to compile, to differentiate and for batches of another size; its layers would get the "
        "variables of other layers.",
        "Let it do the same at each call: no counters or files that decide which layers it makes.",
    )


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
