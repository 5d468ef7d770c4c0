"""First values of variables: those that are made in the scope of several workers are the chief's on all of them.

TensorFlow sends the chief's value when a variable is made. Here the variables of a scope are sent together when it
ends, which is one program and one meeting of the workers. What the program has assigned in the scope stays until the
first step, which begins with the chief's values in any case (`mesh.placing`). Weights that will rest in shards are
divided while the scope is open, as soon as there are enough of them (`program.dividing`).

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/distribute/MultiWorkerMirroredStrategy
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Final, cast

import jax
import jax.numpy as jnp
import keras
import numpy as np

from stratagem.core import environment, patches
from stratagem.core.errors import UsageError
from stratagem.fit.resuming import current_session
from stratagem.mesh.divided import is_divided
from stratagem.mesh.placing import placed
from stratagem.program.compat import innermost_scope, stored_value
from stratagem.program.dividing import Division, current_division, dividing
from stratagem.program.tracing import own_array
from stratagem.replica.context import StrategyLike, current_strategy, has_strategy
from stratagem.replica.on_read import OnReadVariable
from stratagem.replica.out_of_memory import note_out_of_memory

_Made = list[tuple[weakref.ref[Any], weakref.ref[Any]]]

_made: Final[ContextVar[_Made | None]] = ContextVar("made", default=None)
"""The variables that were made in the open scope, and their first values."""


def install() -> None:
    """Replace what `core.patches` lists. A second call does nothing."""
    patches.install(__name__, {"Variable.__bases__": _Noted})


class _Noted:
    """A base of Keras's variables, by which an open scope knows which were made in it.

    What it is given of another variable is copied, as in TensorFlow. Keras on JAX gives both one array, which `fit`
    of a model with one of them deletes: it writes new values where the old ones were.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "initializer" in kwargs:
            kwargs["initializer"] = _own(kwargs["initializer"])
        division = _division()
        if division is not None:
            division.make_room()
        super().__init__(*map(_own, args[:1]), *args[1:], **kwargs)
        made, variable = _made.get(), cast(Any, self)
        variable.strategy_id = id(current_strategy()) if has_strategy() else None
        # What the replicas' values make together is sent; without an aggregation each keeps its own.
        has_value = not isinstance(self, OnReadVariable) or variable.aggregation != "none"
        if made is not None and innermost_scope() is None and has_value:
            made.append((weakref.ref(variable), weakref.ref(variable.value)))
        if division is not None:
            division.note_made(variable)

    def assign(self, value: Any) -> Any:
        """Give the variable a value."""
        if isinstance(value, keras.Variable) and value is not self and innermost_scope() is None:
            value = _own(value)
        division = _division()
        if division is None:
            return cast(Any, super()).assign(value)
        division.make_room()
        before = stored_value(self)
        result = cast(Any, super()).assign(value)
        division.note_assigned(self, before)
        return result

    def __array__(self, dtype: Any = None) -> Any:
        """Return the value as an array of NumPy.

        Raises:
            UsageError: Other workers hold parts of it.
        """
        if innermost_scope() is None and is_divided(stored_value(self)):
            raise _cannot_be_read(self)
        return cast(Any, super()).__array__(dtype)


def _division() -> Division | None:
    """Return what divides weights that are made or assigned; None where a step is traced, or `fit` runs."""
    return current_division() if current_session() is None else None


def _cannot_be_read(variable: Any) -> UsageError:
    call = "call jax.experimental.multihost_utils.process_allgather(variable.value, tiled=True) on all workers"
    by_xla = "" if environment.ELASTIC in os.environ else f" To get the whole value, {call}."
    return UsageError(
        f"{variable.path}, of shape {list(variable.shape)}, was read on one worker, but it is kept in shards.",
        "Each worker holds one part of it, and cannot read the parts of the others.",
        "Call model.save or model.save_weights on all workers, or read the model in a callback of fit at the end of "
        "an epoch." + by_xla,
    )


def _own(value: Any) -> Any:
    """Return a copy of an array, or of the value of a variable; anything else as it is."""
    return own_array(value.value if isinstance(value, keras.Variable) else value)


@contextlib.contextmanager
def of_the_chief(strategy: StrategyLike) -> Iterator[None]:
    """Let variables that are made in this context have the chief's first values when it ends.

    Those that will rest in shards have them earlier. All workers must leave it at the same point if they have made
    variables in it. Nothing is sent where it ends with an exception, or is inside another, or where a program is traced
    or recorded.

    Args:
        strategy: Whose scope it is.

    Raises:
        PeerError: A worker did not come, or has made other variables in shards.
    """
    if _made.get() is not None or innermost_scope() is not None:
        yield
        return
    made: _Made = []
    token = _made.set(made)
    try:
        with dividing(strategy, strategy.sharding, "variables made in the scope"):
            yield
        if made and strategy.mesh.multi_process:
            _send(strategy, made)
    except RuntimeError as error:
        note_out_of_memory(error, strategy)
        raise
    finally:
        _made.reset(token)


def _send(strategy: StrategyLike, made: _Made) -> None:
    unchanged = {}
    for number, (of_variable, of_value) in enumerate(made):
        variable, value = of_variable(), of_value()
        if value is not None and variable is not None and variable.value is value and _is_local(value):
            unchanged[f"{number} {variable.path} {value.dtype}{value.shape}"] = variable
    # When Python frees a variable that nothing refers to is each worker's own affair. Models that differ are found
    # where they are trained, with what differs in them.
    on_all = set.intersection(*map(set, strategy.from_all("variables made in the scope", list(unchanged))))
    variables = [variable for key, variable in unchanged.items() if key in on_all]
    values = placed(strategy, [variable.value for variable in variables], variables)
    for variable, value in zip(variables, values, strict=True):
        variable.assign(jnp.asarray(np.asarray(value)))


def _is_local(value: Any) -> bool:
    return isinstance(value, jax.Array) and value.is_fully_addressable
