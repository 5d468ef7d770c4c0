"""State of a step of `fit` as other workers take it: where a worker has died, or is a step behind."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from stratagem.core.errors import PeerError
from stratagem.fit.named_variables import named_variables
from stratagem.fit.resuming import current_session
from stratagem.fit.step_kinds import TRAIN
from stratagem.fit.steps import Step
from stratagem.mesh.given import Given
from stratagem.mesh.kept_shards import Shard, shards_among
from stratagem.mesh.mesh import Tree


class StateOfTraining:
    """The values of a step's variables, and what the step before returned.

    Args:
        step: The step.
        values: Those of its variables, where the strategy keeps them; replaced in place by those of another worker.
        last: What the step before returned; None before the first.
        steps: How many steps of training it is.
    """

    def __init__(self, step: Step, values: list[jax.Array], last: Tree, steps: int) -> None:
        self._step = step
        self._values = values
        self._last = last
        self._steps = steps
        self._before = list(values)
        self._has_taken = False

    def shards(self) -> list[Shard]:
        """Return what this worker has of values in shards."""
        return shards_among(self._values)

    def put_back(self) -> None:
        """Take back what the step has done."""
        self._values[:] = self._before

    def give(self) -> Given:
        """Return the state: variables by name, the place in `fit`, and the last logs."""
        session = current_session()
        beside = None if session is None else session.beside_variables
        if self._step.kind is not TRAIN or beside is None:
            raise PeerError(
                f"A worker was lost while the others ran {self._step.kind.method}.",
                "Another can take its place only in a training step of `fit`, or in the loop of an ElasticState.",
                "Start the run again; stratagem run --max-restarts does.",
            ).of_peer()
        names = [name for name, _ in named_variables(self._step.model)]
        said, arrays = beside()
        logs = jax.tree.leaves(self._last)
        said = {**said, "names": [*names, *said["names"]]}
        own = [np.asarray(value.addressable_data(0)) for value in self._values]
        return Given(said, [*own, *arrays, *(np.asarray(leaf.addressable_data(0)) for leaf in logs)])

    def take(self, given: Given) -> Tree:
        """Take the values of a worker that has completed this step, and return its logs."""
        self._has_taken = True
        known = len(self._values)
        mesh = self._step.mesh
        self._values[:] = [mesh.keep_given(array) for array in given.arrays[:known]]
        self._before = list(self._values)
        return jax.tree.unflatten(jax.tree.structure(self._last), self._logs(given.arrays))

    def meet_new(self) -> None:
        """Let the next validation begin with an iterator of its own, which workers make together; tell callbacks."""
        if (session := current_session()) is not None:
            session.renew_validation()
            session.is_read_anywhere = None
            if session.meet_new is not None:
                session.meet_new()
            for watcher in session.watchers:
                watcher.meet_new(session.steps + self._steps * self._has_taken)

    def _logs(self, arrays: Sequence[np.ndarray]) -> list[jax.Array]:
        count = len(jax.tree.leaves(self._last))
        return [self._step.mesh.keep(array) for array in arrays[len(arrays) - count :]]
