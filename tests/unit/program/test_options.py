"""Options that XLA compiles a step with, and packs of gradients."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stratagem.mesh.mesh import ReplicaMesh
from stratagem.program import options
from stratagem.program.options import CompiledWith, jitted, options_for, pack_bytes

THRESHOLDS = {
    "xla_gpu_all_reduce_combine_threshold_bytes": 6_000_000,
    "xla_gpu_reduce_scatter_combine_threshold_bytes": 0,
}


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


def test_xla_joins_no_packs_of_gpus_unless_the_user_has_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(options, "_takes", lambda device, option: asked.append(option) or True)
    assert options_for(mesh("gpu", 2)) == THRESHOLDS
    assert asked == list(THRESHOLDS)
    assert options_for(mesh("gpu", 1)) == {}
    assert options_for(ReplicaMesh(jax.devices()[:2])) == {}
    first, last = THRESHOLDS
    monkeypatch.setenv("XLA_FLAGS", f"--{first}=1")
    assert options_for(mesh("gpu", 2)) == {last: 0}


def test_an_option_that_xla_does_not_know_is_told_and_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert not options._takes(jax.devices()[0], "xla_no_such_option")
    assert "XLA does not know xla_no_such_option, so it puts gradients together as it likes" in capsys.readouterr().err


def test_a_program_with_options_may_be_a_part_of_another() -> None:
    program = jitted(lambda x, y: (x + y, y * 2), {"xla_cpu_enable_fast_math": False}, donated=True)
    assert isinstance(program, CompiledWith)
    first = jnp.ones(3)
    np.testing.assert_array_equal(program(first, jnp.ones(3))[0], 2.0)
    assert first.is_deleted()
    whole = jax.jit(lambda x: program(x, x)[0].sum())
    assert float(whole(jnp.ones(3))) == 6.0
    assert program.lower(jnp.ones(3), jnp.ones(3)).compile()(jnp.ones(3), jnp.ones(3))[1].tolist() == [2.0] * 3


def test_without_options_it_is_what_jax_makes() -> None:
    assert not isinstance(jitted(lambda x: x, {}), CompiledWith)
