"""What a scheduled function refers to is what its names mean when it is scheduled."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import stratagem
from stratagem.coordinator import ClusterCoordinator
from stratagem.core.errors import UsageError


@pytest.fixture
def coordinator() -> Iterator[ClusterCoordinator]:
    strategy = stratagem.ParameterServerStrategy()
    yield ClusterCoordinator(strategy)
    strategy.close()


total: Any = None
rate = 1.0


def add() -> Any:
    total.assign_add(rate)
    return total.value


@pytest.mark.parametrize("compiled", [False, True], ids=["Python", "function"])
def test_another_variable_and_another_number(coordinator: ClusterCoordinator, compiled: bool) -> None:
    global total, rate
    fn = stratagem.function(add) if compiled else add
    made, rate = [], 1.0
    for i in range(3):
        total = keras.Variable(10.0 * i, trainable=False)
        made.append(total)
        assert coordinator.schedule(fn).fetch() == 10 * i + 1
    rate = 5.0
    assert coordinator.schedule(fn).fetch() == 26
    total = made[0]
    assert coordinator.schedule(fn).fetch() == 6
    assert [float(variable.value) for variable in made] == [6.0, 11.0, 26.0]


def test_attributes_of_what_it_refers_to(coordinator: ClusterCoordinator) -> None:
    class Trainer:
        def __init__(self) -> None:
            self.total, self.scale, self.names = keras.Variable(1.0, trainable=False), 2.0, ["a"]

        def step(self, x: Any) -> Any:
            return self.total.value * self.scale * len(self.names) + x

    trainer = Trainer()
    assert coordinator.schedule(trainer.step, args=(1.0,)).fetch() == 3.0
    trainer.scale = 3.0
    assert coordinator.schedule(trainer.step, args=(1.0,)).fetch() == 4.0
    trainer.names.append("b")
    assert coordinator.schedule(trainer.step, args=(1.0,)).fetch() == 7.0
    trainer.total = keras.Variable(10.0, trainable=False)
    assert coordinator.schedule(trainer.step, args=(1.0,)).fetch() == 61.0


def test_a_function_is_sent_once_while_nothing_changes(coordinator: ClusterCoordinator) -> None:
    global total
    total = keras.Variable(0.0, trainable=False)
    coordinator.schedule(add).fetch()
    before = coordinator.metrics()["bytes sent"]
    coordinator.schedule(add).fetch()
    once = coordinator.metrics()["bytes sent"] - before
    total = keras.Variable(0.0, trainable=False)
    before = coordinator.metrics()["bytes sent"]
    coordinator.schedule(add).fetch()
    assert coordinator.metrics()["bytes sent"] - before > once + 200


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """A module of the program that holds the model; a worker that imported it would make a model of its own."""
    (tmp_path / "own_model.py").write_text(
        "import threading\n"
        "import keras\n"
        "lock = threading.Lock()  # cannot be sent, and is not asked for\n"
        "weight = keras.Variable(1.0, trainable=False)\n"
        "scale = 2.0\n"
        "def scaled(x):\n"
        "    weight.assign_add(1.0)\n"
        "    return weight.value * scale * x\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield importlib.import_module("own_model")
    del sys.modules["own_model"]


def test_a_model_of_another_module(coordinator: ClusterCoordinator, module: types.ModuleType) -> None:
    def step(x: Any) -> Any:
        return module.scaled(x) + module.scale

    assert coordinator.schedule(step, args=(1.0,)).fetch() == 6.0
    assert float(module.weight.value) == 2.0
    module.scale = 10.0
    assert coordinator.schedule(step, args=(1.0,)).fetch() == 40.0
    module.weight = keras.Variable(100.0, trainable=False)
    assert coordinator.schedule(step, args=(1.0,)).fetch() == 1020.0
    assert float(module.weight.value) == 101.0


def test_settings_of_an_optimizer(coordinator: ClusterCoordinator) -> None:
    with coordinator.strategy.scope():
        weight, optimizer = keras.Variable(1.0), keras.optimizers.SGD(0.5)
        optimizer.build([weight])

    def step() -> None:
        optimizer.apply_gradients([(np.float32(0.5), weight)])

    coordinator.schedule(step).fetch()
    assert float(weight.value) == 0.75
    optimizer.learning_rate = 1.0
    coordinator.schedule(step).fetch()
    assert float(weight.value) == 0.25
    optimizer.clipnorm = 0.1
    with pytest.raises(UsageError, match=r"(?i)clipnorm of the optimizer 'sgd.*' was None .* and is 0\.1"):
        coordinator.schedule(step)
    optimizer.clipnorm = None


def test_a_line_where_it_is_sent_at_each_call(coordinator: ClusterCoordinator, capfd: pytest.CaptureFixture) -> None:
    global total, rate
    total = keras.Variable(0.0, trainable=False)
    for rate in range(8):  # noqa: B007 - read by the function
        coordinator.schedule(add).fetch()
    assert capfd.readouterr().err.count("has sent add to the workers 5 times in a row") == 1
    assert float(total.value) == sum(range(8))
