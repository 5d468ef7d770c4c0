"""Options that XLA compiles a step with, and packs of gradients."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stratagem.core.environment import XLA_AS_IS
from stratagem.mesh.described import DescribedMesh
from stratagem.mesh.mesh import ReplicaMesh
from stratagem.program import options
from stratagem.program.options import CompiledWith, jitted, options_for, pack_bytes

THRESHOLDS = {
    "xla_gpu_all_reduce_combine_threshold_bytes": 6_000_000,
    "xla_gpu_reduce_scatter_combine_threshold_bytes": 0,
}

ONE_CORE = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}


def mesh(platform: str, size: int, **facts: Any) -> Any:
    device = SimpleNamespace(platform=platform)
    known = {"devices": [device] * size, "size": size, "model_parallel": 1, "central": False, "memory": None}
    return SimpleNamespace(**known | facts)


@pytest.mark.parametrize(
    ("where", "chosen", "expected"),
    [
        (mesh("gpu", 8, multi_process=False), 0, 6_000_000),
        (mesh("gpu", 8, multi_process=True), 0, 6_000_000),
        (mesh("gpu", 8, multi_process=True), 50, 50),
        (mesh("gpu", 2, multi_process=False, central=True), 0, None),
        (mesh("gpu", 1, multi_process=False), 0, None),
        (mesh("tpu", 8, multi_process=True), 0, None),
        (mesh("cpu", 2, multi_process=False), 0, None),
        (mesh("cpu", 2, multi_process=True), 0, 0),
        (mesh("cpu", 2, multi_process=True, memory="shared"), 0, None),
        (mesh("gpu", 8, multi_process=True, model_parallel=2), 50, None),
    ],
)
def test_size_of_packs(where: Any, chosen: int, expected: int | None) -> None:
    assert pack_bytes(where, chosen) == expected


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let the process have so many cores."""
    return lambda number: monkeypatch.setattr(options, "available_cores", lambda: number)


def test_xla_joins_no_packs_of_gpus_unless_the_user_has_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(options, "_takes", lambda device, option, value: asked.append(option) or True)
    assert options_for(mesh("gpu", 2)) == THRESHOLDS
    assert asked == list(THRESHOLDS)
    assert options_for(mesh("gpu", 1)) == {}
    assert options_for(mesh("tpu", 2)) == {}
    first, last = THRESHOLDS
    monkeypatch.setenv("XLA_FLAGS", f"--{first}=1")
    assert options_for(mesh("gpu", 2)) == {last: 0}


def test_one_core_runs_loops_in_another_order_unless_the_user_has_chosen(
    monkeypatch: pytest.MonkeyPatch, cores: Callable[[int], None]
) -> None:
    monkeypatch.delenv("XLA_FLAGS", raising=False)  # tests ask for virtual devices with it
    cores(2)
    assert options_for(None) == {}
    cores(1)
    assert options_for(None) == (ONE_CORE if jax.__version_info__ >= (0, 9) else {})
    assert options_for(ReplicaMesh(jax.devices()[:2])) == options_for(None)
    assert options_for(mesh("cpu", 2, multi_process=True)) == {}  # gradients are to be there early
    assert options_for(DescribedMesh(jax.devices()[:2])) == {}
    monkeypatch.setenv(XLA_AS_IS, "1")
    assert options_for(None) == {}
    monkeypatch.delenv(XLA_AS_IS)
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_scheduler_type=CPU_SCHEDULER_TYPE_CONCURRENCY_OPTIMIZED")
    assert options_for(None) == {}


@pytest.mark.skipif(jax.__version_info__ < (0, 9), reason="XLA has one order only")
def test_the_order_of_one_core_is_another_one_and_computes_the_same() -> None:
    def layers(x: jax.Array, kernels: list[jax.Array]) -> tuple[jax.Array, list[jax.Array]]:
        sums = []
        for kernel in kernels:
            x = jnp.sin(x @ kernel)
            sums.append(jnp.tanh(x).sum(0))
        return x, sums

    x, kernels = jnp.linspace(0, 1, 256 * 64).reshape(256, 64), [jnp.eye(64)] * 6
    as_it_is, in_order = (jax.jit(layers, compiler_options=each).lower(x, kernels).compile() for each in ({}, ONE_CORE))
    assert in_order.as_text() != as_it_is.as_text()
    for one, other in zip(jax.tree.leaves(in_order(x, kernels)), jax.tree.leaves(as_it_is(x, kernels)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_option_that_xla_does_not_know_is_left_out_and_told_where_gradients_depend_on_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not options._takes(jax.devices()[0], "xla_no_such_option", 1)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(options, "_OF_GPUS", {"xla_no_such_option": 0})
    assert not options._takes(jax.devices()[0], "xla_no_such_option", 0)
    assert "XLA does not know xla_no_such_option, so it puts gradients together as it likes" in capsys.readouterr().err


def test_a_program_with_options_may_be_a_part_of_another() -> None:
    program = jitted(lambda x, y: (x + y, y * 2), {"xla_cpu_enable_fast_math": False}, donated=True)
    assert isinstance(program, CompiledWith)
    first = jnp.ones(3)
    np.testing.assert_array_equal(program(first, jnp.ones(3))[0], 2.0)
    assert first.is_deleted()
    whole = jax.jit(lambda x: program(x, x)[0].sum())
    assert float(whole(jnp.ones(3))) == 6.0
    known = np.ones(3, np.float32)
    assert float(jax.jit(lambda x: program(known, known)[0].sum() + x)(1.0)) == 7.0
    assert program.lower(jnp.ones(3), jnp.ones(3)).compile()(jnp.ones(3), jnp.ones(3))[1].tolist() == [2.0] * 3


def test_without_options_it_is_what_jax_makes() -> None:
    assert not isinstance(jitted(lambda x: x, {}), CompiledWith)
