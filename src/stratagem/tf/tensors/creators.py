"""Functions of a program's own that make its variables: `tf.variable_creator_scope`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Final

_creators: Final[ContextVar[tuple[Callable[..., Any], ...]]] = ContextVar("creators", default=())
"""Those of this thread, the outermost first."""


@contextlib.contextmanager
def variable_creator_scope(variable_creator: Callable[..., Any]) -> Iterator[None]:
    """Return a context in which a function makes the variables (`tf.variable_creator_scope`).

    The function is called in each call of `tf.Variable` in this thread, once for all replicas. If there are several,
    the innermost is called first. Unlike in TensorFlow, it is not called for variables that Keras's layers, metrics
    and optimizers make.
    Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/variable_creator_scope

    Args:
        variable_creator: Function of `next_creator`, which makes the variable, and of the arguments of `tf.Variable` by
            name. The program gets what it returns.

    Example:
        >>> import stratagem.tf as tf
        >>> def frozen(next_creator, **kwargs):
        ...     return next_creator(**{**kwargs, "trainable": False})
        >>> with tf.variable_creator_scope(frozen):
        ...     v = tf.Variable(1.0)
        >>> v.trainable
        False
    """
    token = _creators.set((*_creators.get(), variable_creator))
    try:
        yield
    finally:
        _creators.reset(token)


def created(make: Callable[..., Any], **arguments: Any) -> Any:
    """Return what the functions of all open scopes make of a call.

    Args:
        make: Makes the variable.
        arguments: Its arguments.
    """
    for creator in _creators.get():
        make = functools.partial(creator, make)
    return make(**arguments)
