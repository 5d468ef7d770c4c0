"""Sessions: what hooks may ask for, and when they stop a run. The program is one that adds."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from stratagem.core.errors import InputError
from stratagem.estimator import SessionRunArgs, SessionRunHook
from stratagem.estimator.programs.model_function import StepResults, tensors_in
from stratagem.estimator.programs.session import Session


class Store:
    def __init__(self) -> None:
        self.global_step = keras.Variable(4, dtype="int32", trainable=False)
        self.weight = keras.Variable(2.0)
        self.was_reset = False

    def saved(self) -> dict[str, Any]:
        return {"w": self.weight}

    def reset_local(self) -> None:
        self.was_reset = True


class Spec:
    scaffold = None
    loss = np.float32(0.0)


class Program:
    spec = Spec()
    is_training = True
    counts_by_itself = False

    def __init__(self) -> None:
        self.store = Store()
        self.stand_in = np.zeros(1)
        self.named = {"sum": self.stand_in}

    def step(self, features: Any, labels: Any) -> StepResults:
        self.store.global_step.assign_add(1)
        return StepResults({"loss": features - labels, "tensors": [features + labels]}, [self.stand_in])

    def settle(self) -> None:
        pass


class Watches(SessionRunHook):
    def __init__(self, fetches: Any, stop_at: int) -> None:
        self.fetches, self.stop_at, self.seen = fetches, stop_at, []

    def before_run(self, run_context: Any) -> Any:
        return None if self.fetches is None else SessionRunArgs(self.fetches)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.seen.append(run_values.results)
        if run_context.session.global_step == self.stop_at:
            run_context.request_stop()


def test_fetches_and_stopping() -> None:
    program = Program()
    hook = Watches({"loss": "loss", "sum": "sum:0", "step": "global_step", "w": ["w", program.store.weight]}, stop_at=6)
    session = Session(program, [hook, Watches(None, 0)])
    session.begin(lambda: None)
    assert (session.global_step, program.store.was_reset) == (4, True)
    session.run_steps((np.float32(n), np.float32(1)) for n in range(10))
    assert hook.seen == [
        {"loss": -1, "sum": 1, "step": 4, "w": [2, 2]},
        {"loss": 0, "sum": 2, "step": 5, "w": [2, 2]},
    ]
    assert session.should_stop()
    assert session.run([program.store.global_step, "loss", program.spec.loss, program.stand_in]) == [6, 0, 0, 2]
    with pytest.raises(InputError, match="A hook asked for 'nothing'"):
        session.run("nothing")


def test_tensors_are_found_in_structures_and_hooks() -> None:
    a, b, c = (keras.ops.convert_to_tensor([float(n)]) for n in range(3))
    hook = Watches({"x": a, "y": [b, a]}, 0)
    assert [id(tensor) for tensor in tensors_in([hook, (c, 5), {"again": b}])] == [id(a), id(b), id(c)]
