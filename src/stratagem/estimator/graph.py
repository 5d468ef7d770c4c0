"""Variables by name, their scopes, and collections, for model functions that were written for TensorFlow 1.

A name stands for one variable within one call of the model function: with `reuse` it is found again.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/compat/v1/get_variable
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import keras
import numpy as np

from stratagem.core.errors import UsageError
from stratagem.estimator.compat import name_in_graph
from stratagem.estimator.losses import LOSSES, REGULARIZATION_LOSSES
from stratagem.estimator.running_call import Call, Scope, current_call, running_call
from stratagem.estimator.updates import running_first
from stratagem.estimator.variables import made_so_far

AUTO_REUSE: Final = "auto"
"""As `reuse` of a scope: what is there is used again, what is missing is made."""


class GraphKeys:
    """Names of collections (`tf.compat.v1.GraphKeys`)."""

    GLOBAL_VARIABLES: Final = "variables"
    TRAINABLE_VARIABLES: Final = "trainable_variables"
    MODEL_VARIABLES: Final = "model_variables"
    UPDATE_OPS: Final = "update_ops"
    LOSSES: Final = LOSSES
    REGULARIZATION_LOSSES: Final = REGULARIZATION_LOSSES
    SUMMARIES: Final = "summaries"
    GLOBAL_STEP: Final = "global_step"


@contextlib.contextmanager
def variable_scope(
    name_or_scope: str | Scope | None = None,
    default_name: str | None = None,
    values: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    reuse: bool | str | None = None,
    **options: Any,
) -> Iterator[Scope]:
    """Prefix the names of variables that are created inside (`tf.compat.v1.variable_scope`).

    Args:
        name_or_scope: The name, or a scope to enter again.
        default_name: The name if none is given; it is made unique.
        values: Accepted as in TensorFlow.
        initializer: Initializer of variables inside that have none.
        regularizer: Regularizer of variables inside that have none.
        reuse: Whether to use a variable of that name again; None inherits from the outer scope.
        options: `custom_getter`, `dtype`, `partitioner` and others: accepted without effect.

    Yields:
        The scope, whose `name` is the whole name and which can be entered again.

    Raises:
        UsageError: Called outside a model_fn.
    """
    call = current_call("variable_scope")
    outer = call.scopes[-1]
    if isinstance(name_or_scope, Scope):
        name = name_or_scope.name
    else:
        name = joined(outer.name, name_or_scope or unique_name(outer, default_name or "scope"))
    given = {"reuse": reuse, "initializer": initializer, "regularizer": regularizer}
    own = {key: value for key, value in given.items() if value is not None}
    scope = replace(outer, name=name, counts={}, **own)
    call.scopes.append(scope)
    try:
        yield scope
    finally:
        call.scopes.pop()


def get_variable(
    name: str,
    shape: Sequence[int] | int | None = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Callable[[Any], Any] | None = None,
    trainable: bool | None = None,
    collections: Sequence[str] | None = None,
    **options: Any,
) -> keras.Variable:
    """Create or reuse a variable (`tf.compat.v1.get_variable`).

    Args:
        name: Its name within the open scopes.
        shape: Its shape; an initializer that is an array sets it.
        dtype: Its dtype; None means float32.
        initializer: A Keras initializer, a function of shape and dtype, or an array. None means the scope's, or
            Glorot's uniform initializer.
        regularizer: Function that computes a loss for it; see `stratagem.estimator.losses.get_regularization_losses`.
        trainable: Whether it is trained; None means True.
        collections: Collections to add it to.
        options: `use_resource`, `caching_device` and others: accepted without effect.

    Raises:
        UsageError: Called outside a model_fn, or the name is already used, or missing for reuse.
    """
    call = current_call("get_variable")
    scope = call.scopes[-1]
    path = joined(scope.name, name)
    found = find(call, path, scope.reuse)
    if found is not None:
        return found
    initializer = scope.initializer if initializer is None else initializer
    initializer = "glorot_uniform" if initializer is None else initializer
    if isinstance(initializer, type):
        initializer = initializer()
    if not callable(initializer) and not isinstance(initializer, str):
        initializer, shape = np.asarray(initializer), None
    with opened(path.rpartition("/")[0]):
        variable = keras.Variable(
            initializer,
            shape=(shape,) if isinstance(shape, int) else shape if shape is None else tuple(int(n) for n in shape),
            dtype=dtype if dtype is None else getattr(dtype, "name", dtype),
            trainable=trainable is not False,
            name=path.rpartition("/")[2],
        )
    call.made[path] = variable
    regularizer = scope.regularizer if regularizer is None else regularizer
    if regularizer is not None:
        call.collect(REGULARIZATION_LOSSES, [regularizer(variable)])
    for collection in collections or ():
        call.collect(collection, [variable])
    return variable


def find(call: Call, path: str, reuse: bool | str) -> Any:
    """Return what has this path; None where it is to be made.

    Raises:
        UsageError: It is taken without reuse, or missing with it.
    """
    found = call.made.get(path)
    if found is not None and not reuse:
        raise UsageError(
            f"model_fn made {path!r} twice.",
            "Give it another name, or say reuse=True (or AUTO_REUSE) in the variable_scope or the call.",
        )
    if found is None and reuse is True:
        raise UsageError(
            f"model_fn reuses {path!r}, which it has not made before.",
            "Make it first without reuse, or say reuse=stratagem.estimator.graph.AUTO_REUSE.",
        )
    return found


def unique_name(scope: Scope, kind: str) -> str:
    """Return `dense`, then `dense_1`, and so on, counted in the scope."""
    count = scope.counts.get(kind, 0)
    scope.counts[kind] = count + 1
    return f"{kind}_{count}" if count else kind


@contextlib.contextmanager
def opened(path: str) -> Iterator[None]:
    """Put a path in front of the names of what Keras makes."""
    with contextlib.ExitStack() as stack:
        for name in filter(None, path.split("/")):
            stack.enter_context(keras.name_scope(name))
        yield


@contextlib.contextmanager
def name_scope(name: str | None = None, default_name: str | None = None, values: Any = None) -> Iterator[str]:
    """Do nothing, because operations have no names here (`tf.name_scope`)."""
    yield f"{name or default_name or ''}/"


def control_dependencies(control_inputs: Iterable[Any] | None) -> contextlib.AbstractContextManager[None]:
    """Make a `train_op` that is created inside run other operations first (`tf.control_dependencies`).

    Args:
        control_inputs: Results of `minimize` and `apply_gradients`. Other values are already computed.
    """
    return running_first(control_inputs or ())


def trainable_variables(scope: str | None = None) -> list[Any]:
    """Return the trainable variables that model_fn has made so far (`tf.compat.v1.trainable_variables`).

    Args:
        scope: Pattern that names must begin with.

    Returns:
        Variables, whose `name` is the whole name: `generator/dense/kernel:0`.
    """
    return [variable for variable in global_variables(scope) if variable.trainable]


def global_variables(scope: str | None = None) -> list[Any]:
    """Return all variables that model_fn has made so far (`tf.compat.v1.global_variables`).

    Args:
        scope: Pattern that names must begin with.
    """
    current_call("global_variables")
    variables = made_so_far()
    for variable in variables:
        name_in_graph(variable)
    return [variable for variable in variables if scope is None or re.match(scope, variable.path)]


def get_collection(key: str, scope: str | None = None) -> list[Any]:
    """Return the values in a collection (`tf.compat.v1.get_collection`).

    Args:
        key: One of `GraphKeys`, or another name. `UPDATE_OPS` is empty, because updates happen at once.
        scope: Pattern that the names of variables must begin with.
    """
    if key in (GraphKeys.TRAINABLE_VARIABLES, GraphKeys.MODEL_VARIABLES):
        return trainable_variables(scope)
    if key == GraphKeys.GLOBAL_VARIABLES:
        return global_variables(scope)
    return list(current_call("get_collection").collections.get(key, []))


def add_to_collection(name: str, value: Any) -> None:
    """Add a value to a collection (`tf.compat.v1.add_to_collection`); no effect outside a model_fn.

    Args:
        name: Name of the collection.
        value: The value.
    """
    call = running_call()
    if call is not None:
        call.collect(name, [value])


def joined(path: str, name: str) -> str:
    """Return a name below a path."""
    return f"{path}/{name}" if path else name
