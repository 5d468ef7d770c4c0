"""First values of variables: those that are made in the scope of several workers are the chief's on all of them.

TensorFlow sends the chief's value when a variable is made. Here the variables of a scope are sent together when it
ends, which is one program and one meeting of the workers. What the program has assigned in the scope stays until the
first step, which begins with the chief's values in any case (`mesh.placing`).
Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/distribute/MultiWorkerMirroredStrategy
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Final, cast

import jax
import jax.numpy as jnp
import numpy as np

from stratagem.core import patches
from stratagem.mesh.placing import placed
from stratagem.program.compat import innermost_scope
from stratagem.replica.context import StrategyLike, current_strategy, has_strategy

_Made = list[tuple[weakref.ref[Any], weakref.ref[Any]]]

_made: Final[ContextVar[_Made | None]] = ContextVar("made", default=None)
"""The variables that were made in the open scope, and their first values."""


def install() -> None:
    """Replace what `core.patches` lists. A second call does nothing."""
    patches.install(__name__, {"Variable.__bases__": _Noted})


class _Noted:
    """A base of Keras's variables, by which an open scope knows which were made in it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        made, variable = _made.get(), cast(Any, self)
        variable.strategy_id = id(current_strategy()) if has_strategy() else None
        if made is not None and innermost_scope() is None:
            made.append((weakref.ref(variable), weakref.ref(variable.value)))


@contextlib.contextmanager
def of_the_chief(strategy: StrategyLike) -> Iterator[None]:
    """Let variables that are made in this context have the chief's first values when it ends.

    All workers must leave it at the same point if they have made variables in it. Nothing is sent where it ends with
    an exception, or is inside another, or where a program is traced or recorded.

    Args:
        strategy: Whose scope it is.

    Raises:
        PeerError: A worker did not come.
    """
    if not strategy.mesh.multi_process or _made.get() is not None or innermost_scope() is not None:
        yield
        return
    made: _Made = []
    token = _made.set(made)
    try:
        yield
    finally:
        _made.reset(token)
    if made:
        _send(strategy, made)


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
