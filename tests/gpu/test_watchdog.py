"""A program that never ends on a device: the watchdog ends its group, and says at which step."""

from __future__ import annotations

import re
import time
from typing import Final

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from tests.gpu.conftest import kind

import stratagem
from stratagem.core import environment, exits
from stratagem.testing import block_point, start_workers

pytestmark = [pytest.mark.gpu, pytest.mark.multiprocess]

HANG_SECONDS: Final = 3.0
END_SECONDS: Final = 10.0
"""Longest time that the end of the group may take, once the limit is over; a driver has a program to stop first."""

DONE: Final = 3
"""Steps that end."""

IN_FLIGHT: Final = 100
"""More steps than a device is handed before the one that runs there has ended: XLA keeps 32 waiting."""


def take_steps(platform: str) -> None:
    """Take three steps that end, then one that does not; hand over the following ones as a training loop does."""
    if platform == "gpu":
        # Not by JAX_PLATFORMS, by which the launcher would refuse two workers on one GPU: they could not sum. These do
        # not, so that one GPU is enough.
        jax.config.update("jax_platforms", "cuda,cpu")
    strategy = stratagem.MultiWorkerMirroredStrategy()
    assert strategy.mesh.devices[0].platform == platform, strategy.mesh.devices

    def step(rate: jax.Array) -> jax.Array:
        # A number that comes from outside: XLA cannot know how often the loop turns.
        return lax.while_loop(lambda x: x < 1, lambda x: x + rate, jnp.zeros(()))

    for _ in range(DONE):
        assert [float(each) for each in strategy.experimental_local_results(strategy.run(step, args=(jnp.ones(()),)))]
    block_point("the step that does not end")
    for _ in range(IN_FLIGHT):
        strategy.run(step, args=(jnp.zeros(()),))
    raise AssertionError(f"{IN_FLIGHT} steps were handed over behind one that does not end")


def test_a_step_that_does_not_end_on_the_device_ends_the_group_and_is_named() -> None:
    env = {environment.HANG_TIMEOUT: str(HANG_SECONDS), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    with start_workers(take_steps, 2, args=[kind()], env=env) as workers:
        for worker in workers:
            worker.wait_for_point("the step that does not end")
        start = time.monotonic()
        for worker in workers:
            worker.release("the step that does not end")
        results = [worker.wait() for worker in workers]
        seconds = time.monotonic() - start
    assert [result.returncode for result in results] == [exits.HUNG] * 2, results[0].output
    assert HANG_SECONDS / 2 < seconds < HANG_SECONDS + END_SECONDS
    for result in results:
        assert f"No progress for {HANG_SECONDS:g} s:\n" in result.output
        named = re.findall(r"worker (\d) \(.+\) has been in a step for \d+ s \(step (\d+), ", result.output)
        assert [worker for worker, _ in named] == ["0", "1"]
        # A GPU is handed some more steps before the program waits; that of the CPU waits for each.
        last = DONE + 1 if kind() == "cpu" else DONE + IN_FLIGHT
        assert all(DONE < int(number) <= last for _, number in named)
        assert "strategy.run(step" in result.output  # the stack of the program that waits
