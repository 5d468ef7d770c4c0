"""`fit` and `evaluate` on workers: each step is a function that some worker runs.

Keras's own loop goes on, on the chief: epochs, callbacks, progress, validation. A step schedules a function and
returns; what it reports are the metrics as an earlier function saw them, over all workers. At the end of an epoch the
loop waits for all of them and reads the metrics where they live.

The chief reads the data, each batch once, and sends it to the worker that computes; so any input of `fit` will do, and
`evaluate` visits each example once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import jax
import keras
import numpy as np

from stratagem.core.errors import UsageError, explain
from stratagem.fit import compat
from stratagem.fit.adapter import ShareIterator
from stratagem.fit.batch import as_numpy
from stratagem.fit.seam import StepOfStrategy
from stratagem.fit.steps import TRAIN, StepKind
from stratagem.loop.function import function
from stratagem.loop.tape import GradientTape
from stratagem.ps.coordinator import ClusterCoordinator, RemoteValue
from stratagem.replica.mesh import Tree

_AHEAD: Final = 4
"""How many batches for each worker may be under way; more would only fill the chief's memory."""


class RemoteStep(StepOfStrategy):
    """What Keras calls for each step of `fit` or `evaluate`.

    Args:
        coordinator: Hands out the steps.
        model: A built and compiled model.
        kind: TRAIN or TEST.

    Raises:
        UsageError: The model overrides `train_step` or `test_step`.
    """

    def __init__(self, coordinator: ClusterCoordinator, model: Any, kind: StepKind) -> None:
        if compat.has_own_step(model, kind.method):
            raise UsageError(
                explain(
                    f"{type(model).__name__} overrides {kind.method}, and its steps run on workers.",
                    "The method is written for one process: it returns new values instead of assigning them.",
                    "Write the step as a function with a stratagem.GradientTape, and schedule it with a "
                    "stratagem.coordinator.ClusterCoordinator.",
                )
            )
        self._coordinator = coordinator
        self._steps_per_execution = model.steps_per_execution
        self._step = _training_step(model) if kind is TRAIN else _evaluating_step(model)
        coordinator.prepare(self._step)  # while the variables have values: Keras's loops take these away
        self._under_way: deque[RemoteValue] = deque()
        self._most = _AHEAD * max(1, coordinator.worker_count)

    def __call__(self, state: Any, iterator: Iterator[Tree]) -> tuple[Tree, Any]:
        """Begin up to `steps_per_execution` steps.

        Args:
            state: What Keras keeps; it is handed back.
            iterator: Batches.

        Returns:
            (the latest metrics, state).

        Raises:
            StopIteration: There is no batch left.
        """
        for batch in self._batches(iterator):
            self._under_way.append(self._coordinator.schedule(self._step, args=(batch,)))
        while len(self._under_way) > self._most:
            self._under_way.popleft().fetch()
        return self._under_way[0].fetch(), state

    def _batches(self, iterator: Iterator[Tree]) -> list[Tree]:
        if isinstance(iterator, ShareIterator):
            return [jax.tree.map(np.asarray, batch.data) for batch in iterator.take(self._steps_per_execution)]
        return [as_numpy(next(iterator))]


def _training_step(model: Any) -> Callable[[Tree], Tree]:
    def train_step(batch: Tree) -> Tree:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        with GradientTape() as tape:
            predicted = compat.called(model, x, training=True)
            loss = model.compute_loss(x=x, y=y, y_pred=predicted, sample_weight=sample_weight, training=True)
        weights = model.trainable_variables
        model.optimizer.apply(tape.gradient(loss, weights), weights)
        return _metrics(model, x, y, predicted, sample_weight, loss)

    return function(train_step)


def _evaluating_step(model: Any) -> Callable[[Tree], Tree]:
    def test_step(batch: Tree) -> Tree:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        predicted = compat.called(model, x, training=False)
        loss = model.compute_loss(x=x, y=y, y_pred=predicted, sample_weight=sample_weight, training=False)
        return _metrics(model, x, y, predicted, sample_weight, loss)

    return function(test_step)


def _metrics(model: Any, x: Tree, y: Tree, predicted: Tree, sample_weight: Tree, loss: Any) -> Tree:
    rows = jax.tree.leaves(x)[0].shape[0]
    for metric in model.metrics:
        if metric.name == "loss":
            metric.update_state(loss, sample_weight=rows)
    model.compute_metrics(x, y, predicted, sample_weight)
    return dict(model.get_metrics_result())
