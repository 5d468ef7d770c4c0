"""The steps of `fit` and `evaluate`, as functions that workers run.

A step reads the variables from the parameter servers and sends back what it did to them (`ps.variables`). It is the
model's `train_step(state, data)` or `test_step(state, data)`, Keras's or the user's: given the values of all variables
it returns new ones, and what differs is sent. A model may also have a `train_step(data)` as in TensorFlow, which reads
and assigns variables itself, with a `GradientTape`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from stratagem.feed.batch import count_rows, with_class_weight
from stratagem.fit import while_tracing
from stratagem.fit.metrics import ResultWatch
from stratagem.fit.own_steps import on_data_alone, on_variables, takes_data_alone
from stratagem.fit.step_kinds import StepKind
from stratagem.loop.function import function
from stratagem.mesh.mesh import Tree
from stratagem.ps.optimizers import weigh
from stratagem.ps.task import current_task


def scheduled_step(model: Any, kind: StepKind) -> Callable[..., tuple[int | None, Tree, bool]]:
    """Return the function of a step.

    Called with a batch, or with None and the worker's iterator over its own dataset (and the weights of classes), it
    returns (None, logs, whether these hold values that are no results of metrics); at the end of that dataset the
    worker's index, and no logs.

    Args:
        model: A built and compiled model.
        kind: TRAIN or TEST.

    Raises:
        UsageError: The model's own method takes neither (state, data) nor (data).
    """
    own = _step_of(model, kind)
    traced = {"returns own values": False}

    @function
    def compiled(batch: Tree) -> Tree:
        while_tracing.install()  # a worker's process may have made no strategy
        if kind.trains:
            weigh(getattr(model.optimizer, "inner_optimizer", model.optimizer), count_rows(batch))
        watch = ResultWatch(model.metrics)
        with watch.watching():
            logs = own(batch)
        traced["returns own values"] = any(watch.entry(leaf) is None for leaf in keras.tree.flatten(logs))
        return logs

    def step(batch: Tree, iterator: Any = None, class_weight: Any = None) -> tuple[int | None, Tree, bool]:
        if iterator is not None:
            batch = next(iterator, None)
            if batch is None:
                return current_task().index, {}, False
            if class_weight is not None:
                batch = with_class_weight(batch, class_weight)
        return None, compiled(batch), traced["returns own values"]

    vars(step)["__wrapped__"] = getattr(model, kind.method)  # what that refers to travels with it
    return step


def _step_of(model: Any, kind: StepKind) -> Callable[[Tree], Tree]:
    if takes_data_alone(model, kind):
        return lambda batch: on_data_alone(model, kind, batch)
    return lambda batch: on_variables(model, kind, getattr(model, kind.method), batch)
