"""The values of a model's variables, where the strategy keeps them while it trains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

from stratagem.compression.residuals import is_in_parts
from stratagem.fit import compat
from stratagem.fit.step_kinds import State, group_variables
from stratagem.fit.steps import Step
from stratagem.mesh.mesh import AXIS
from stratagem.mesh.packs import sum_over_replicas
from stratagem.mesh.placing import placed
from stratagem.replica.context import StrategyLike


class StateKeeper:
    """Sees to it that a model's state lies where the strategy keeps it, equal on all workers.

    Keras makes variables, and resets metrics, as ordinary arrays on one device. They are put on
    every device (or at the centre) before the first step and where a callback has touched them; their values are the
    chief's. State that a step returned is there already and is passed by identity.

    Args:
        strategy: The strategy of the model.
    """

    def __init__(self, strategy: StrategyLike) -> None:
        self.strategy = strategy
        self.mesh = strategy.mesh
        self._last: State | None = None
        self._accumulators_apart = False

    def remember(self, state: State) -> None:
        """Note the state that a step returned."""
        self._last = state

    def placed(self, step: Step, state: State) -> State:
        """Return the state with every value where it is kept.

        Args:
            step: The step that is about to run.
            state: Values as Keras hands them over.
        """
        if state is self._last:
            return state
        flat = [value for group in state for value in group]
        flat = placed(self.strategy, flat, step.variables)
        _separate(flat)
        state = step.grouped(flat)
        if step.kind.trains and not self._accumulators_apart and self.mesh.size > 1 and not self.mesh.central:
            state = self._with_accumulators_apart(step.model, state)
        return state

    def _with_accumulators_apart(self, model: Any, state: State) -> State:
        """Let the first replica hold what gradients are accumulated so far, the others nothing."""
        if not compat.accumulates(model.optimizer):
            return state
        slots = compat.accumulator_indices(model.optimizer)
        position = TRAIN_OPTIMIZER_GROUP
        values = list(state[position])
        for slot, value in zip(slots, self._on_replicas(_keep_first, [values[slot] for slot in slots]), strict=True):
            values[slot] = value
        self._accumulators_apart = True
        return (*state[:position], values, *state[position + 1 :])

    def consolidate(self, model: Any) -> None:
        """Make accumulated gradients one value again, so that the optimizer can be read and saved.

        What compression left out on all replicas goes to the first one: the sum stays what it was.
        """
        self._last = None
        self._gather_residuals(model)
        if not self._accumulators_apart:
            return
        self._accumulators_apart = False
        variables = group_variables(model, "optimizer_variables")
        chosen = [variables[slot] for slot in compat.accumulator_indices(model.optimizer)]
        for variable, total in zip(chosen, self._on_replicas(_sum, [v.value for v in chosen]), strict=True):
            variable.assign(total)

    def _gather_residuals(self, model: Any) -> None:
        if getattr(model, "optimizer", None) is None:
            return
        residuals = [variable for variable in model.optimizer.variables if is_in_parts(variable)]
        if residuals and all(self.mesh.is_replicated(variable.value) for variable in residuals):  # a step has run
            for variable, value in zip(
                residuals, self._on_replicas(_sum_on_first, [variable.value for variable in residuals]), strict=True
            ):
                variable.assign(value)

    def _on_replicas(self, function: Any, values: Sequence[jax.Array]) -> list[jax.Array]:
        spmd = jax.shard_map(
            function, mesh=self.mesh.mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec(), check_vma=False
        )
        return list(jax.jit(spmd)(list(values)))


TRAIN_OPTIMIZER_GROUP = 2
"""Where the optimizer's variables stand in the state of a training step."""


def _separate(flat: list[jax.Array]) -> None:
    """Copy arrays that two variables share, in place: the step donates both, and one would be gone.

    `optimizer.finalize_variable_values` assigns averaged weights without a copy.
    """
    seen: set[int] = set()
    for i, value in enumerate(flat):
        if id(value) in seen:
            flat[i] = jnp.copy(value)
        seen.add(id(value))


def _keep_first(values: list[jax.Array]) -> list[jax.Array]:
    first = lax.axis_index(AXIS) == 0
    return [jnp.where(first, value, jnp.zeros_like(value)) for value in values]


def _sum_on_first(values: list[jax.Array]) -> list[jax.Array]:
    return _keep_first(_sum(values))


def _sum(values: list[jax.Array]) -> list[jax.Array]:
    return sum_over_replicas(values, None)
