"""Steps of training compiled for devices that are not here: every strategy, model and place.

Arithmetic says what must cross: each gradient once, each moving statistic once. What stands here for the compilers of
GPUs and TPUs runs where they are installed: libtpu by `make test-tpu-compile`, CUDA's by `make test-gpu-compile`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import pytest
from tests.conformance.described import LARGE, MODELS, STRATEGIES, adversarial, calling, dense, fit, wide

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
from stratagem.program.options import PACK_BYTES
from stratagem.program.rules.gathers import GROUP_BYTES

FEW = 4096
"""Bytes of metrics, losses and seeds that cross beside gradients and statistics, at most."""

KINDS = ("all-gather", "reduce-scatter", "all-reduce")

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


@pytest.mark.sampled(5)
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


@pytest.mark.parametrize("model", LARGE)
@pytest.mark.parametrize("place", PLACES[2:], indirect=True)
def test_gradients_cross_while_the_device_computes(place: Place, model: str) -> None:
    """Most cross beside the backward pass, the others beside the update of weights whose gradients are there."""
    step = compiled(place, lambda: fit(LARGE[model], MirroredStrategy()))
    assert step.schedule is not None
    collectives = step.schedule.collectives
    assert step.schedule.crossing >= step.gradient_bytes
    assert step.schedule.beside_backward >= {"resnet": 0.9, "transformer": 0.75}[model]
    assert sum(each.nbytes for each in collectives if each.beside) >= 0.9 * step.schedule.crossing
    assert step.bytes is not None
    assert step.bytes.reused >= 0.98 * step.bytes.state


IN_SHARDS = [
    "cpu:4",
    pytest.param("tpu:v5e:8x8", marks=pytest.mark.thorough),
    pytest.param("h100:8", marks=pytest.mark.thorough),
    pytest.param("2x4xh100", marks=pytest.mark.thorough),
]


def keeps_what_it_gathers(place: Place) -> bool:
    """Say whether the compiler merges the gathers of the backward pass with those of the forward pass."""
    return place.hardware.platform == "cpu" and jax.__version_info__ < (0, 11, 1)


@pytest.mark.parametrize(
    "stage", [*(pytest.param(each, marks=pytest.mark.thorough) for each in ("optimizer", "gradients")), "parameters"]
)
@pytest.mark.parametrize("place", IN_SHARDS, indirect=True)
def test_what_rests_in_shards_takes_its_share_of_a_device(place: Place, stage: str) -> None:
    """Weights of 50 MB, 1% of which are too small to be divided among 64 chips; gradients, and slots of twice that."""
    step = compiled(place, lambda: fit(wide, MirroredStrategy(shard=stage, shard_min_size=1024)))
    weights, share = step.gradient_bytes, step.gradient_bytes / place.devices
    assert step.bytes is not None
    kept = share if stage == "parameters" else weights
    assert step.bytes.state == pytest.approx(kept + 2 * share, rel=0.01)
    assert step.bytes.reused >= 0.99 * step.bytes.state
    assert step.bytes.results <= FEW

    assert step.schedule is not None
    collectives = step.schedule.collectives
    if place.hardware.platform == "tpu":  # which gathers by sums of zeros, and sums in shards by sums that it cuts
        assert {each.kind for each in collectives} == {"all-reduce"}
    else:
        crossing = {kind: sum(e.nbytes * e.times for e in collectives if e.kind == kind) for kind in KINDS}
        assert crossing["reduce-scatter"] == pytest.approx(share, rel=0.01)
        # The forward pass gathers all groups, the backward pass two again.
        again = 2 / 3 if stage == "parameters" and not keeps_what_it_gathers(place) else 0
        assert crossing["all-gather"] == pytest.approx((1 + again) * weights, rel=0.01)
        assert crossing["all-reduce"] <= FEW
    if stage == "parameters" and not keeps_what_it_gathers(place):
        # Of gradients their share and the pack that is summed, of weights one group; and what the layers hand on.
        assert step.bytes.temporary <= share + PACK_BYTES + GROUP_BYTES + (1 << 20)


@pytest.mark.parametrize("place", [PLACES[1]], indirect=True)
def test_tpu_strategy_finds_described_chips(place: Place) -> None:
    step = compiled(place, lambda: fit(dense, TPUStrategy()))
    assert step.devices == 4
    check(step)


def test_nothing_is_left_of_it() -> None:
    with describing(jax.devices("cpu")[:2]):
        assert MirroredStrategy().num_replicas_in_sync == 2
    assert MirroredStrategy().num_replicas_in_sync == len(jax.devices("cpu"))
