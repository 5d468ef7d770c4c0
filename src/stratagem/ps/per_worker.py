"""Variables of which each worker has one of its own: `tf.Variable(..., per_worker_variable=True)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NoReturn

import keras

from stratagem.core.errors import UsageError
from stratagem.ps.task import current_task

_FOR_ONE_WORKER: Final = frozenset(("value", "numpy", "read_value", "assign", "assign_add", "assign_sub"))


class PerWorkerVariable:
    """A variable of which each worker has one of its own, which nobody else changes.

    A function that a worker runs gets that worker's, and reads and assigns it like any other. All of them lie on the
    parameter servers, so that a worker that comes back goes on with its own.

    Source of the semantics: TensorFlow 2.21, `tensorflow/python/distribute/ps_values.py`

    Args:
        variables: The workers', in their order.

    Attributes:
        variables: The same; a program saves and restores them like others.
        trainable: False: no optimizer trains it.
    """

    trainable: Final = False

    def __init__(self, variables: Sequence[keras.Variable]) -> None:
        self.variables = tuple(variables)

    @property
    def name(self) -> str:
        """Its name, which those of all workers bear."""
        return self.variables[0].name

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of each."""
        return tuple(self.variables[0].shape)

    @property
    def dtype(self) -> Any:
        """The dtype of each."""
        return self.variables[0].dtype

    def read_all(self) -> list[Any]:
        """Return the values of all workers, in their order."""
        return [variable.value for variable in self.variables]

    def __getattr__(self, name: str) -> NoReturn:
        if name in _FOR_ONE_WORKER:
            raise UsageError(
                f"{name} of a variable with per_worker_variable=True was asked for on the chief.",
                "Each worker has a value of its own, and the chief none.",
                "Use it in a function given to coordinator.schedule; read_all() returns the values of all workers.",
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __reduce__(self) -> Any:
        return _own_of_worker, (self.variables,)


def _own_of_worker(variables: Sequence[keras.Variable]) -> keras.Variable:
    return variables[current_task().index]
