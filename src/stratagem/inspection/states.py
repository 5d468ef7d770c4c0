"""Values of a step's variables: copies of them, and which of them are NaN or infinite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from stratagem.compression.residuals import is_in_parts
from stratagem.fit import compat
from stratagem.fit.named_variables import METRICS, named_variables
from stratagem.fit.steps import Step
from stratagem.replica.context import StrategyLike

_INFINITE: Final = 1
_NAN: Final = 2

State = list[jax.Array]
"""Values of a step's variables, in their order."""


def copied(values: Sequence[jax.Array]) -> State:
    """Return copies that lie on the same devices as the values. A step reuses the memory of its arguments.

    Args:
        values: The values.
    """
    return list(_copies(list(values)))


@jax.jit
def _copies(values: State) -> State:
    return [jnp.copy(value) for value in values]


def _faults(values: State) -> list[int]:
    """Return a number for each value: 0 where what this process has of it is finite, or `_INFINITE`, or `_NAN`."""
    if values and next(iter(values[0].devices())).platform == "cpu":
        return [max(map(_fault_on_host, _parts(value))) for value in values]
    return np.asarray(_faults_on_devices(values)).tolist() if values else []


def _parts(value: jax.Array) -> list[np.ndarray]:
    """Return what this process has of a value, in its memory; once where its devices have it whole."""
    count = 1 if value.is_fully_replicated else len(value.sharding.addressable_devices)
    return [np.asarray(value.addressable_data(i)) for i in range(count)]


def _fault_on_host(value: np.ndarray) -> int:
    if np.isfinite(value).all():
        return 0
    return _NAN if np.isnan(value).any() else _INFINITE


@jax.jit
def _faults_on_devices(values: State) -> jax.Array:
    nan = [jnp.any(jnp.isnan(value)) for value in values]
    infinite = [jnp.any(jnp.isinf(value)) for value in values]
    return jnp.where(jnp.stack(nan), _NAN, jnp.where(jnp.stack(infinite), _INFINITE, 0))


class Watched:
    """The variables of a step that have to be finite, and those that are the same on all replicas: all but metrics.

    Args:
        step: The step.
        values: Their first values. Infinity in these is intended.

    Attributes:
        names: The names of the step's variables.
    """

    def __init__(self, step: Step, values: Sequence[jax.Array]) -> None:
        self.step = step
        self.strategy: StrategyLike = step.strategy
        self.names = [name for name, _ in named_variables(step.model)]
        self._paths = [variable.path for variable in step.variables]
        counted = [i for i, name in enumerate(self.names) if METRICS not in name]
        self._floating = [i for i in counted if jnp.issubdtype(values[i].dtype, jnp.inexact)]
        apart = set(map(id, compat.accumulators(step.model.optimizer))) if step.accumulates_apart else set()
        self.alike = [i for i in counted if not is_in_parts(step.variables[i]) and id(step.variables[i]) not in apart]
        self._infinite_from_the_first = [number == _INFINITE for number in self._numbers(values)]

    def is_faulty_here(self, values: Sequence[jax.Array]) -> bool:
        """Whether a variable holds NaN or infinity, as far as this worker sees.

        Args:
            values: The values of the step's variables.
        """
        return bool(self._own(values, _INFINITE))

    def faulty(self, values: Sequence[jax.Array], *, only_nan: bool = False) -> list[str]:
        """Return the paths of the variables that hold NaN or infinity, on any worker. All workers call it together.

        Args:
            values: The values of the step's variables.
            only_nan: Whether infinity does not count.
        """
        own = self._own(values, _NAN if only_nan else _INFINITE)
        found = sorted({i for each in self.strategy.from_all("values that are not finite", own) for i in each})
        return [self._paths[i] for i in found]

    def named(self, values: Sequence[jax.Array]) -> dict[str, Any]:
        """Return the values, by name, that should be the same on all replicas."""
        return {self.names[i]: values[i] for i in self.alike}

    def _own(self, values: Sequence[jax.Array], least: int) -> list[int]:
        """Return the places of the variables of which this worker sees so much of a fault."""
        return [
            self._floating[place]
            for place, number in enumerate(self._numbers(values))
            if number >= least and not (number == _INFINITE and self._infinite_from_the_first[place])
        ]

    def _numbers(self, values: Sequence[jax.Array]) -> list[int]:
        return _faults([values[i] for i in self._floating])


def loss_of(logs: Any) -> jax.Array | None:
    """Return the loss among the logs of a step, or None if they have none."""
    return logs.get("loss") if hasattr(logs, "get") else None


def number_of(value: jax.Array) -> float:
    """Return a scalar that all replicas hold, as this process sees it. It waits for the step."""
    return float(np.asarray(value.addressable_data(0)))
