"""Run a program up to its first step of training, for devices that are only described."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from stratagem.core.described import describing
from stratagem.core.errors import InputError
from stratagem.core.script import running_script
from stratagem.plan.models import compile_for_random_rows, model_of, random_batch
from stratagem.program.described import DescribedStep, StepReached
from stratagem.strategy.base import prepare_fit
from stratagem.strategy.multi_worker_mirrored import MultiWorkerMirroredStrategy


def step_of(act: Callable[[], Any], devices: Sequence[Any], what: str) -> DescribedStep:
    """Return the first step of training of a function.

    Args:
        act: The function. What it prints goes to standard error.
        devices: The devices that strategies find.
        what: Its name, for messages.

    Raises:
        InputError: The function does not train.
    """
    prepare_fit()  # a program may train without a strategy
    try:
        with describing(devices), contextlib.redirect_stdout(sys.stderr):
            act()
    except StepReached as reached:
        return reached.step
    except SystemExit as end:
        code = f" It ended with {end.code!r}." if end.code else ""
        raise _trains_nothing(what, code) from None
    raise _trains_nothing(what, "")


def _trains_nothing(what: str, more: str) -> InputError:
    return InputError(
        f"{what} did not train: it called neither fit nor a strategy.run that changes trainable variables.{more}",
        "Plan a program that trains in one process. Parameter servers and custom steps in jax.jit are not planned. "
        "If the program needs arguments, write them after --.",
    )


def of_script(path: str, arguments: Sequence[str]) -> Callable[[], Any]:
    """Return a function that runs a script as Python does.

    Args:
        path: The script.
        arguments: The arguments of its command line.

    Raises:
        InputError: There is no such file.
    """
    return running_script(path, arguments, "stratagem plan train.py --on h100:8")


def of_model(place: str, batch: int) -> Callable[[], Any]:
    """Return a function that trains a model on random rows, on all devices.

    Args:
        place: A `.keras` file, or `module:function`.
        batch: Rows of each device.
    """

    def act() -> None:
        strategy = MultiWorkerMirroredStrategy()
        with strategy.scope():
            model = model_of(place)
            compile_for_random_rows(model)
        x, y = random_batch(model, batch * strategy.num_replicas_in_sync)
        model.fit(x, y, batch_size=batch * strategy.num_replicas_in_sync)

    return act
