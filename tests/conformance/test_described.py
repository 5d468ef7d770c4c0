"""Steps of training compiled for devices that are not here: every strategy, model and place.

Arithmetic says what must cross: each gradient once, each moving statistic once. What stands here for the compilers of
GPUs and TPUs runs where they are installed: libtpu by `make test-tpu-compile`, CUDA's by `make test-gpu-compile`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import pytest
from tests.conformance.described import MODELS, STRATEGIES, adversarial, calling, dense, fit

from stratagem import MirroredStrategy, TPUStrategy
from stratagem.core.described import describing
from stratagem.core.errors import UsageError
from stratagem.plan import compat
from stratagem.plan.compiled_step import CompiledStep, compile_step
from stratagem.plan.first_step import step_of
from stratagem.plan.outcome import advised
from stratagem.plan.place import Place, place_of
from stratagem.plan.settings import SETTINGS
from stratagem.plan.topology import devices_of

FEW = 4096
"""Bytes of metrics, losses and seeds that cross beside gradients and statistics, at most."""

PLACES = [
    "cpu:4",
    pytest.param("tpu:v5e:2x2", marks=pytest.mark.thorough),
    pytest.param("h100:8", marks=pytest.mark.thorough),
    pytest.param("2x4xh100", marks=pytest.mark.thorough),
]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    place = place_of(request.param)
    if place.hardware.platform != "cpu" and not compat.has_compiler(place.hardware.platform):
        pytest.skip(f"the compiler for {place.hardware.title} is not installed")
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("XLA_FLAGS", raising=False)  # those of CPUs, at which libtpu aborts
    return place


def compiled(place: Place, act: Callable[[], Any]) -> CompiledStep:
    return compile_step(step_of(act, devices_of(place), "the test"), place)


def check(step: CompiledStep, *, statistics: int = 0, sums: int = 1) -> None:
    """Compare what a step exchanges with arithmetic.

    Args:
        step: The step.
        statistics: Bytes of moving statistics, which are averaged over replicas.
        sums: Most collectives that there may be.
    """
    assert step.schedule is not None
    kinds = {each.kind for each in step.schedule.collectives}
    assert kinds == {"all-reduce"}  # nothing is gathered
    wanted = step.gradient_bytes + statistics
    assert wanted <= step.schedule.crossing <= wanted + FEW
    assert sum(each.times for each in step.schedule.collectives) <= sums
    assert step.schedule.host_calls == 0
    assert step.fits


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("model", MODELS)
def test_fit_sums_each_gradient_once_and_keeps_variables_in_their_places(
    place: Place, model: str, strategy: str
) -> None:
    step = compiled(place, lambda: fit(MODELS[model], STRATEGIES[strategy]()))
    assert step.devices == place.devices
    # Mean and variance of 32 channels cross too. What is accumulated crosses in a branch, metrics beside it.
    check(step, statistics=256 if model == "convolutions" else 0, sums=2 if model == "accumulated" else 1)
    assert step.bytes is not None
    assert step.bytes.reused >= 0.98 * step.bytes.state
    assert step.bytes.results <= FEW


def test_an_uneven_batch_does_not_double_what_is_temporary(place: Place) -> None:
    even = compiled(place, lambda: fit(dense, MirroredStrategy()))
    uneven = compiled(place, lambda: fit(dense, MirroredStrategy(), uneven=True))
    check(uneven)
    assert even.bytes is not None
    assert uneven.bytes is not None
    assert uneven.bytes.temporary < 2 * even.bytes.temporary + FEW
    assert uneven.bytes.reused == even.bytes.reused


def test_steps_of_one_execution_exchange_in_each(place: Place) -> None:
    step = compiled(place, lambda: fit(dense, MirroredStrategy(), steps=3))
    assert step.schedule is not None
    crossing = step.schedule.crossing
    assert 3 * step.gradient_bytes <= crossing <= 3 * (step.gradient_bytes + FEW)
    assert step.bytes is not None
    assert step.bytes.reused >= 0.98 * step.bytes.state


def test_a_loop_of_ones_own_with_two_networks(place: Place) -> None:
    step = compiled(place, lambda: adversarial(MirroredStrategy()))
    check(step, sums=2)


def test_calls_of_python_in_a_step_are_found(place: Place) -> None:
    def act() -> None:
        fit(calling, MirroredStrategy())

    if place.hardware.platform == "gpu":  # JAX lowers them only where a GPU is
        with pytest.raises(UsageError, match=r"calls Python on the host: .*\n.*each call makes the device wait"):
            compiled(place, act)
        return
    step = compiled(place, act)
    assert step.schedule is not None
    assert step.schedule.host_calls == 1
    assert any(line.startswith("A step calls Python on the host (1 times)") for line in advised(step))


@pytest.mark.parametrize("place", [PLACES[1]], indirect=True)
def test_tpu_strategy_finds_described_chips(place: Place) -> None:
    step = compiled(place, lambda: fit(dense, TPUStrategy()))
    assert step.devices == 4
    check(step)


def test_nothing_is_left_of_it() -> None:
    with describing(jax.devices("cpu")[:2]):
        assert MirroredStrategy().num_replicas_in_sync == 2
    assert MirroredStrategy().num_replicas_in_sync == len(jax.devices("cpu"))
