"""Variables of which each replica has a value of its own, combined when they are read (`ON_READ`).

Between steps the replicas' values lie side by side in a second variable, the parts. A step gives each replica its own;
outside steps the variable is what the parts make together. What a program assigns there is divided among the replicas.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/VariableSynchronization
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Final

import jax
import jax.numpy as jnp
import keras

from stratagem.core.eager import EagerArray, EagerCopy
from stratagem.core.errors import InputError
from stratagem.mesh.mesh import ReplicaMesh, Tree
from stratagem.mesh.values import PerReplica
from stratagem.replica.context import current_replica_context, merging_context

_as_one: ContextVar[bool] = ContextVar("as one value", default=False)

_NONE: Final = "none"
_SUM: Final = "sum"


class OnReadVariable(keras.Variable):
    """A variable with a value for each replica.

    Read outside a step it is the sum of the replicas' values (`aggregation="sum"`), the first one's
    ("only_first_replica"), or their mean ("mean"); with "none" it cannot be read there.

    Attributes:
        parts: A variable with the replicas' values, of shape (replicas, *shape).

    Args:
        start: Function of a shape and a dtype that returns the first value of each replica.
        mesh: The replicas.
        aggregation: What the replicas' values make together.
        kwargs: As for `keras.Variable`.
    """

    def __init__(self, start: Callable[..., Any], *, mesh: ReplicaMesh, aggregation: str, **kwargs: Any) -> None:
        self._mesh = mesh

        def together(shape: Any, dtype: Any = None) -> Any:
            first = start(shape, dtype)
            return first * mesh.size if aggregation == _SUM else first

        def apart(shape: Any, dtype: Any = None) -> Any:
            return mesh.keep_apart(jnp.broadcast_to(jnp.asarray(start(tuple(shape)[1:], dtype), dtype), shape))

        shape, dtype, name = kwargs["shape"], kwargs["dtype"], kwargs.get("name")
        super().__init__(together, aggregation=aggregation, synchronization="on_read", **kwargs)
        parts_name = None if name is None else f"{name}_of_replicas"
        self.parts = keras.Variable(
            apart, shape=(mesh.size, *shape), dtype=dtype, trainable=False, autocast=False, name=parts_name
        )

    @property
    def value(self) -> Any:
        """The replica's value in a step, what the replicas' values make together outside.

        Raises:
            InputError: It is read outside a step, and has no aggregation.
        """
        if self.aggregation == _NONE and current_replica_context() is None and merging_context() is None:
            raise InputError(
                "Could not convert from `tf.VariableAggregation` VariableAggregation.NONE: "
                f"{self.path!r} was read outside strategy.run.",
                "Each replica has a value of its own, and the variable does not say how to combine them.",
                "Read the values one by one with strategy.experimental_local_results(v), or make the variable with "
                "aggregation=tf.VariableAggregation.MEAN, SUM or ONLY_FIRST_REPLICA.",
            )
        return self.read_together()

    def read_together(self) -> Any:
        """Return the value, also where a program may not read it."""
        return super().value

    def assign(self, value: Any) -> Any:
        value = self._convert_to_tensor(value, dtype=self.dtype)
        if current_replica_context() is not None:
            return super().assign(value)
        context = merging_context()
        if context is not None:  # of all replicas, in the midst of a step
            return super().assign(self._divided(value)[context.replica_id_in_sync_group])
        self.parts.assign(self._divided(value))
        return super().assign(value)

    def assign_together(self, value: Any) -> Any:
        """Assign what the parts make together, which have their values already."""
        return super().assign(value)

    def assign_add(self, value: Any) -> Any:
        return self._moved("assign_add", jnp.asarray(value, self.dtype))

    def assign_sub(self, value: Any) -> Any:
        return self._moved("assign_sub", -jnp.asarray(value, self.dtype))

    def _moved(self, method: str, change: Any) -> Any:
        if current_replica_context() is not None:
            return super().assign(self.value + change)
        if _as_one.get():
            return super().assign(self.read_together() + change)
        if self.aggregation == _SUM:
            raise InputError(
                f"SyncOnReadVariable does not support `{method}` in cross-replica context when aggregation is set to "
                f"`tf.VariableAggregation.SUM`: it was called on {self.path!r} outside strategy.run.",
                "The variable is the sum of the replicas' values, and the call does not say which of them to change.",
                "Call it in the function given to strategy.run, or assign the whole sum: v.assign(v + change).",
            )
        self.parts.assign(self.parts.value + change)
        return super().assign(self.read_together() + change)

    def _divided(self, value: jax.Array) -> jax.Array:
        """Return the replicas' values that make a value together."""
        size = self._mesh.size
        if self.aggregation != _SUM:
            return jnp.broadcast_to(value, (size, *value.shape))
        if not jnp.issubdtype(value.dtype, jnp.integer):
            return jnp.broadcast_to(value / size, (size, *value.shape))
        replicas = jnp.arange(size, dtype=value.dtype).reshape(size, *[1] * value.ndim)
        return value // size + (replicas < value % size).astype(value.dtype)  # the remainder goes round from the first

    def components(self) -> PerReplica:
        """Return the replicas' values."""
        return PerReplica(self._mesh.keep_apart(self.parts.value), self._mesh)

    def copies(self) -> tuple[Any, ...]:
        """Return the values of this worker's replicas. Outside compiled functions each can be read like a variable."""
        values = self.components().values
        return tuple(
            EagerCopy.of_device(value, value.device) if isinstance(value, EagerArray) else value for value in values
        )


@contextlib.contextmanager
def as_one_value() -> Iterator[None]:
    """Let these variables be like any other in a function that is traced for a file, where there are no replicas."""
    before = _as_one.set(True)
    try:
        yield
    finally:
        _as_one.reset(before)


def apart(value: Tree) -> Tree:
    """Return a structure with the replicas' values in the place of variables that have them."""
    return jax.tree.map(
        lambda leaf: leaf.components() if isinstance(leaf, OnReadVariable) else leaf, value, is_leaf=_is_whole
    )


def _is_whole(leaf: object) -> bool:
    return isinstance(leaf, keras.Variable | PerReplica)


def has_parts(variable: Any, mesh: ReplicaMesh) -> bool:
    """Whether a variable has a value for each replica of a mesh."""
    return isinstance(variable, OnReadVariable) and variable.parts.shape[0] == mesh.size > 1
