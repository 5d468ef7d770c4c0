"""The same with an Estimator: the layers in a model_fn. A third argument is the number of hooks that do nothing."""

from __future__ import annotations

import logging
import sys
import tempfile
from typing import Any

import jax
from network import ROWS_PER_WORKER, SEED, network
from turns import Turns

import stratagem
from stratagem import keras
from stratagem.estimator import (
    Estimator,
    EstimatorSpec,
    RunConfig,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    metrics,
)


def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
    logits = network(keras)(features, training=True)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(labels, logits)
    _, mean_loss = metrics.mean(loss)
    accuracy = metrics.accuracy(labels, keras.ops.argmax(logits, axis=-1))
    train_op = keras.optimizers.SGD(0.001).minimize(loss)
    hooks = [EndOfTurn(mean_loss)]
    return EstimatorSpec(
        mode, loss=loss, train_op=train_op, eval_metric_ops={"accuracy": accuracy}, training_hooks=hooks
    )


class DoesNothing(SessionRunHook):
    """A hook as programs have them: it counts, and asks for nothing."""

    def __init__(self) -> None:
        self.steps = 0

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        self.steps += 1
        return None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        pass


class EndOfTurn(SessionRunHook):
    """Ends a turn after its steps.

    Args:
        mean_loss: The mean over all steps so far.
    """

    def __init__(self, mean_loss: Any) -> None:
        self._mean_loss = mean_loss
        self._steps = 0
        self._total = 0.0

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        self._steps += 1
        return None if self._steps % turns.steps else SessionRunArgs(self._mean_loss)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if run_values.results is None:
            return
        before, self._total = self._total, float(run_values.results) * self._steps
        if not turns.finish((self._total - before) / turns.steps):
            run_context.request_stop()


logging.getLogger("stratagem").setLevel(logging.WARNING)
turns = Turns(stratagem=stratagem.__version__, keras=keras.__version__, jax=jax.__version__)
x, y = turns.rows(ROWS_PER_WORKER)
dataset = stratagem.data.Dataset.from_tensor_slices((x, y)).batch(ROWS_PER_WORKER).repeat()
idle_hooks = [DoesNothing() for _ in range(int(sys.argv[3]) if len(sys.argv) > 3 else 0)]
with tempfile.TemporaryDirectory() as folder:
    Estimator(model_fn, folder, RunConfig(tf_random_seed=SEED)).train(lambda: dataset, hooks=idle_hooks)
