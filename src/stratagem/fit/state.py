"""The values of a model's variables, where the strategy keeps them while it trains."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from stratagem.compression.residuals import is_in_parts
from stratagem.fit import compat
from stratagem.fit.step_kinds import TRAIN, State, indices_of
from stratagem.fit.steps import Step
from stratagem.mesh.divided import is_in_shards
from stratagem.mesh.lending import resting
from stratagem.mesh.mesh import AXIS
from stratagem.mesh.packs import sum_over_replicas
from stratagem.mesh.placing import placed
from stratagem.mesh.shards import resting_spec
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
        self._beyond: Sequence[jax.Array] = ()
        self._accumulators_apart = False

    def remember(self, state: State, beyond: Sequence[jax.Array] = ()) -> None:
        """Note the state that a step returned, and the values of variables that only the step knows."""
        self._last, self._beyond = state, beyond

    def place(self, step: Step, state: State, values: list[jax.Array]) -> None:
        """Put every value where it is kept.

        Args:
            step: The step that is about to run.
            state: What Keras hands over.
            values: Those of the step's variables, of the state and beyond; the placed ones take their places.
        """
        beyond = values[len(values) - len(step.beyond) :]
        if state is self._last and all(map(operator.is_, beyond, self._beyond)):
            return
        if self.mesh.world is not None and self.mesh.world.loop is not None:
            self._place_metrics(step, values)
        if self.strategy.sharding is not None:
            values[:] = resting(step.variables, values)
        chosen = range(len(values))
        if step.kind is TRAIN and self.mesh.world is not None and self.mesh.world.is_resized:
            # The shards are of other workers. They are divided anew before this step, or `fit` begins again with them.
            chosen = [i for i in chosen if resting_spec(step.variables[i]) == PartitionSpec()]
        new = placed(self.strategy, [values[i] for i in chosen], [step.variables[i] for i in chosen])
        for i, value in zip(chosen, new, strict=True):
            values[i] = value
        _separate(values)
        if step.accumulates_apart and not self._accumulators_apart and self.mesh.size > 1:
            self._keep_accumulators_apart(step, values)

    def _place_metrics(self, step: Step, values: list[jax.Array]) -> None:
        """Put metrics where they are kept that Keras has reset on all workers, in a loop of the program's own.

        A worker that came later made them there, and the loop's state does not hold them.
        """
        for place in step.metric_places:
            if not self.mesh.rests(values[place], PartitionSpec()):
                values[place] = self.mesh.keep_given(np.asarray(values[place]))

    def _keep_accumulators_apart(self, step: Step, values: list[jax.Array]) -> None:
        """Let the first replica hold what gradients are accumulated so far, the others nothing."""
        slots = indices_of(compat.accumulators(step.model.optimizer), step.variables)
        for slot, value in zip(
            slots, self.mesh.on_replicas(_keep_first, [values[slot] for slot in slots]), strict=True
        ):
            values[slot] = value
        self._accumulators_apart = True

    def consolidate(self, model: Any) -> None:
        """Make accumulated gradients one value again, so that the optimizer can be read and saved.

        What compression left out on all replicas goes to the first one: the sum stays what it was. What rests in shards
        stays there; a weight that was assigned the value of such a variable, its average say, lies as weights do again.
        """
        self._last = None
        if self.strategy.sharding is not None:
            for variable in model.trainable_variables:
                value, spec = variable.value, resting_spec(variable)
                if is_in_shards(value) and value.sharding.spec != spec:
                    variable.assign(self.mesh.shard_from_chief(value, spec))
        optimizer = getattr(model, "optimizer", None)
        residuals = [] if optimizer is None else [each for each in optimizer.variables if is_in_parts(each)]
        if residuals and all(self.mesh.is_replicated(variable.value) for variable in residuals):  # a step has run
            self._combine(_sum_on_first, residuals)
        if self._accumulators_apart:
            self._accumulators_apart = False
            self._combine(_sum, compat.accumulators(optimizer))

    def _combine(self, function: Any, variables: Sequence[Any]) -> None:
        values = self.mesh.on_replicas(function, [variable.value for variable in variables])
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)


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
