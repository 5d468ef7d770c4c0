"""Classes of what `tf.Variable` makes: variables assigned as in TensorFlow, on all replicas at once or on each.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/VariableAggregation
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import keras

from stratagem.core.errors import InputError, UnsupportedError
from stratagem.core.log import announce_once
from stratagem.core.types import ReduceOp
from stratagem.replica.context import ReplicaContext, current_replica_context
from stratagem.replica.on_read import OnReadVariable
from stratagem.tf.tensors.operation import tensor

_NONE: Final = "none"
_SUM: Final = "sum"
_MEAN: Final = "mean"
_FIRST: Final = "only_first_replica"

_COMBINED_CHANGES: Final = ("add", "sub", "mul", "div")
"""Changes of slices for which a sum or mean over replicas is defined: those at one index count one after the other."""

Change = Callable[[Any, Any, Any], Any]
"""Function of a tensor, indices and updates that returns the changed tensor."""


def _assignment(method: str) -> Callable[..., Any]:
    def assign(
        self: Any, value: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        new = getattr(super(_Assignments, self), method)(value)
        return new if read_value else None

    assign.__name__ = method
    assign.__doc__ = f"Do what `tf.Variable.{method}` does; return the new value, or None without `read_value`."
    return assign


class _Assignments:
    """A base of variables, whose assignments take TensorFlow's arguments."""

    assign, assign_add, assign_sub = map(_assignment, ("assign", "assign_add", "assign_sub"))

    @property
    def values(self) -> tuple[Any, ...]:
        """What this worker's replicas hold of it, where a strategy made it (`experimental_local_results`)."""
        strategy: Any = getattr(self, "distribute_strategy", None)
        if strategy is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute 'values'", name="values", obj=self)
        return strategy.experimental_local_results(self)

    _values = values
    """A private name of TensorFlow's, which programs use."""


class SyncOnReadVariable(_Assignments, OnReadVariable):
    """A variable with a value for each replica, combined when it is read."""


class _Combined(keras.Variable):
    """A variable whose assignments on the replicas are combined at once, so that all read the new value.

    Keras combines its variables when a step ends. Until then each replica holds a part of the sum, which is right for
    metrics (`synchronization=ON_READ`).

    Args:
        initializer: As for `keras.Variable`, like all that follows but `aggregation`.
        aggregation: "sum", "mean" or "only_first_replica"; with "none" each replica assigns its own copy.
        kwargs: The others.
    """

    def __init__(self, initializer: Any, *, aggregation: str, **kwargs: Any) -> None:
        self._combines = aggregation
        # To the step a combined variable is one value, equal on all replicas.
        super().__init__(initializer, aggregation=aggregation if aggregation == _NONE else _FIRST, **kwargs)

    @property
    def combines(self) -> str:
        """How the values that replicas assign combine: the aggregation that it was made with."""
        return self._combines

    def assign(self, value: Any) -> Any:
        return super().assign(self._combined(value))

    def assign_add(self, value: Any) -> Any:
        return super().assign(self.value + self._combined(value))

    def assign_sub(self, value: Any) -> Any:
        return super().assign(self.value - self._combined(value))

    def _assign_slices(self, method: str, change: Change, indices: Any, updates: Any) -> Any:
        """Change slices by those of all replicas; see `TensorVariable`.

        Raises:
            UnsupportedError: No sum or mean over replicas is defined for this change.
        """
        context = current_replica_context()
        if context is None or self._combines == _NONE:
            return super().assign(change(self.value, indices, updates))
        if self._combines == _FIRST:
            return super().assign(_of_first_replica(context, change(self.value, indices, updates)))
        if method.rpartition("_")[2] not in _COMBINED_CHANGES:
            raise UnsupportedError(
                f"{method} was called in strategy.run on {self.path!r}, with aggregation {self._combines.upper()}.",
                "It is not defined how the slices of several replicas combine.",
                "Write aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA, or call it outside strategy.run.",
            )
        indices, updates = context.all_gather((tensor(indices), tensor(updates, self.dtype)), axis=0)
        if self._combines == _MEAN:
            self._require_means()
            updates = updates / context.num_replicas_in_sync
        return super().assign(change(self.value, indices, updates))

    def _combined(self, value: Any) -> Any:
        context = current_replica_context()
        own = tensor(value, self.dtype)
        if context is None:
            return own
        if self._combines == _NONE:
            if context.num_replicas_in_sync > 1 and not context.is_alike(own):
                self._tell_what_is_kept()
            return own
        if self._combines == _SUM:
            return context.all_reduce(ReduceOp.SUM, own)
        if context.is_alike(own):
            return own
        if self._combines == _FIRST:
            return _of_first_replica(context, own)
        self._require_means()
        return context.all_reduce(ReduceOp.MEAN, own)

    def _tell_what_is_kept(self) -> None:
        """Say what becomes of values that differ between replicas, of which TensorFlow keeps each."""
        is_mean = not self.trainable and keras.backend.is_float_dtype(self.dtype)
        announce_once(
            f"{self.path!r}, a tf.Variable without aggregation, is assigned values in strategy.run that may differ "
            f"between replicas. It gets {'their mean' if is_mean else 'the value of the first'} when the function "
            "ends, while TensorFlow keeps each value. Give it aggregation=tf.VariableAggregation.MEAN, SUM or "
            "ONLY_FIRST_REPLICA, or synchronization=tf.VariableSynchronization.ON_READ."
        )

    def _require_means(self) -> None:
        if not keras.backend.is_float_dtype(self.dtype):
            raise InputError(
                f"{self.path!r}, of {self.dtype} with aggregation MEAN, was assigned in strategy.run, where the values "
                "of replicas may differ.",
                "The fraction of their mean would be cut off.",
                "Give the variable a floating dtype, or assign it outside strategy.run.",
            )


def _of_first_replica(context: ReplicaContext, value: jax.Array) -> jax.Array:
    """Return the first replica's value on all replicas."""
    is_first = context.replica_id_in_sync_group == context.share.first
    kept = jnp.where(is_first, value, jnp.zeros_like(value))
    if value.dtype == jnp.bool_:
        return context.all_reduce(ReduceOp.MAX, kept)
    return context.all_reduce(ReduceOp.SUM, kept)


class Variable(_Assignments, _Combined):
    """A variable with one value, which `tf.Variable` makes."""
