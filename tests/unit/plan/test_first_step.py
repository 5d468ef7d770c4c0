"""The first step of training of a program, for devices that are only described."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest

import stratagem
from stratagem import CentralStorageStrategy, GradientTape, MirroredStrategy, ParameterServerStrategy
from stratagem.core.described import described_devices
from stratagem.core.errors import InputError, UsageError
from stratagem.plan.first_step import of_model, of_script, step_of
from stratagem.program.described import DescribedStep
from stratagem.testing import virtual_devices


def reached(act: Callable[[], Any], replicas: int = 3) -> DescribedStep:
    return step_of(act, jax.devices("cpu")[:replicas], "the program")


def model() -> keras.Model:
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, kernel_initializer="ones")])
    made.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mean_squared_error")
    return made


def rows(number: int) -> tuple[np.ndarray, np.ndarray]:
    return np.ones((number, 4), np.float32), np.ones((number, 2), np.float32)


def test_the_step_of_fit_and_its_bytes() -> None:
    made: list[keras.Model] = []

    def act() -> None:
        with MirroredStrategy().scope():
            made.append(model())
        made[0].fit(*rows(12), batch_size=12)

    step = reached(act)
    assert step.name == "train_step of Sequential"
    assert step.mesh.size == 3
    assert step.gradient_bytes == (4 * 2 + 2) * 4
    assert step.batch_bytes == 4 * (4 + 2) * 4  # of one replica
    # Weights, as many momenta, the learning rate, the count of steps, and sum and count of the loss.
    assert step.state_bytes == 2 * (4 * 2 + 2) * 4 + 4 * 4
    np.testing.assert_array_equal(made[0].trainable_variables[0], 1.0)  # nothing was trained


def test_what_comes_before_the_first_step_goes_on() -> None:
    seen: list[Any] = []

    def act() -> None:
        strategy = MirroredStrategy()
        with strategy.scope():
            made = model()
        seen.append(made.predict(rows(6)[0]).shape)
        seen.append(sorted(made.evaluate(*rows(6), return_dict=True)))
        seen.append(strategy.reduce("SUM", strategy.run(lambda: keras.ops.ones((2,))), axis=None).shape)
        made.fit(*rows(6), batch_size=6)

    reached(act)
    assert seen == [(6, 2), ["loss"], (2,)]


def test_a_step_in_strategy_run_and_in_a_function() -> None:
    def act(decorated: bool) -> None:
        strategy = MirroredStrategy()
        with strategy.scope():
            made, optimizer = model(), keras.optimizers.SGD(0.1)

        def step(x: Any) -> Any:
            with GradientTape() as tape:
                loss = keras.ops.mean(made(x) ** 2)
            optimizer.apply_gradients(
                zip(tape.gradient(loss, made.trainable_variables), made.trainable_variables, strict=True)
            )
            return loss

        def whole(x: Any) -> Any:
            return strategy.reduce("MEAN", strategy.run(step, args=(x,)), axis=None)

        x = strategy.experimental_distribute_values_from_function(lambda context: np.ones((2, 4), np.float32))
        (stratagem.function(whole) if decorated else whole)(x)

    for decorated, name in ((False, "step"), (True, "whole")):
        found = reached(lambda decorated=decorated: act(decorated))
        assert found.name.rpartition(".")[2] == name
        assert found.gradient_bytes == 40
        assert found.batch_bytes == 2 * 4 * 4


def test_a_program_without_a_strategy_trains_on_the_first_device() -> None:
    assert reached(lambda: model().fit(*rows(4))).mesh.size == 1


def test_accumulated_gradients_and_several_steps_of_one_call() -> None:
    def act() -> None:
        with MirroredStrategy().scope():
            made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
            optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
            made.compile(optimizer, "mean_squared_error", steps_per_execution=2)
        made.fit(*rows(12), batch_size=6)

    step = reached(act)
    assert step.batch_bytes == 2 * 2 * (4 + 2) * 4
    assert step.gradient_bytes == 40


def test_devices_are_named_and_chosen_as_if_they_were_here() -> None:
    seen: list[Any] = []

    def act() -> None:
        virtual_devices(8)  # a program that makes devices for itself has those that it is planned for
        seen.append(MirroredStrategy(["CPU:0", "CPU:2"]).num_replicas_in_sync)
        seen.append(MirroredStrategy().num_replicas_in_sync)
        model().fit(*rows(4))

    reached(act)
    assert seen == [2, 3]
    assert described_devices() is None


@pytest.mark.parametrize(
    ("strategy", "remedy"),
    [(CentralStorageStrategy, "MirroredStrategy"), (ParameterServerStrategy, "OneDeviceStrategy")],
)
def test_strategies_without_one_step_of_all_devices_are_refused(strategy: Callable[[], Any], remedy: str) -> None:
    with pytest.raises(UsageError, match=f"Plan the program with {remedy}"):
        reached(strategy)


@pytest.mark.parametrize(
    ("act", "found"),
    [
        (lambda: None, "the program did not train: it called neither fit nor a strategy.run"),
        (lambda: model().evaluate(*rows(4)), "the program did not train: it called neither fit nor"),
        (lambda: exit_with("usage: train.py DATA"), "It ended with 'usage: train.py DATA'."),
    ],
)
def test_a_program_that_trains_nothing(act: Callable[[], Any], found: str) -> None:
    with pytest.raises(InputError, match="Plan a program that trains in one process") as refused:
        reached(act)
    assert found in str(refused.value)


def exit_with(code: str) -> None:
    raise SystemExit(code)


def test_an_error_of_the_program_is_its_own() -> None:
    with pytest.raises(ZeroDivisionError):
        reached(lambda: 1 / 0)


def test_no_except_of_the_program_keeps_it_going(capsys: pytest.CaptureFixture[str]) -> None:
    def act() -> None:
        try:
            model().fit(*rows(4), verbose=0)
        except Exception:
            print("went on")

    reached(act)
    assert "went on" not in capsys.readouterr().err


def test_a_script_has_its_arguments_and_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["plan"])
    monkeypatch.setattr("sys.path", ["elsewhere"])
    (tmp_path / "beside.py").write_text("ROWS = 4\n")
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, keras, numpy as np\nfrom beside import ROWS\n"
        "if __name__ == '__main__':\n"
        "    units = int(sys.argv[1])\n"
        "    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(units)])\n"
        "    model.compile('sgd', 'mse')\n"
        "    model.fit(np.ones((ROWS, 3)), np.ones((ROWS, units)))\n"
    )
    assert reached(of_script(str(script), ["5"])).gradient_bytes == (3 * 5 + 5) * 4


def test_a_script_that_is_not_there() -> None:
    with pytest.raises(InputError, match=r"There is no file missing\.py"):
        of_script("missing.py", [])


def test_a_function_that_makes_a_model() -> None:
    step = reached(of_model(f"{__name__}:model", 5))
    assert step.batch_bytes == 5 * (4 + 2) * 4
    assert step.mesh.size == 3
