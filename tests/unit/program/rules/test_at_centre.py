"""Steps that are cut at their updates: what runs where, and what it computes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec

from stratagem.mesh.mesh import AXIS, ReplicaMesh
from stratagem.program.interpret import trace
from stratagem.program.rules.at_centre import CentralProgram, _cut, update_at_centre

WHOLE, SHARED = PartitionSpec(), PartitionSpec(AXIS)


@pytest.fixture
def mesh() -> ReplicaMesh:
    return ReplicaMesh(jax.devices()[:2], centre=jax.devices()[3])


def step_on(mesh: ReplicaMesh) -> Any:
    def step(state: dict[str, Any], rows: Any) -> Any:
        """A step of gradient descent with momentum, for the loss sum(weight * rows)."""
        gradient = lax.psum(rows.sum(), AXIS)

        def update(weight: Any, slot: Any, gradient: Any) -> tuple[Any, Any]:
            slot = 0.5 * slot + gradient
            return weight - slot, slot

        weight, slot = update_at_centre(mesh, update, state["weight"], state["slot"], gradient)
        return {"weight": weight, "slot": slot}, rows * weight

    return step


def kept(mesh: ReplicaMesh, **values: float) -> dict[str, Any]:
    return {name: mesh.keep(np.float32(value)) for name, value in values.items()}


def test_a_step_and_the_next(mesh: ReplicaMesh) -> None:
    program = CentralProgram(mesh, step_on(mesh), (WHOLE, SHARED), (WHOLE, SHARED), donated=True)
    rows = mesh.shard_blocks(np.arange(4, dtype=np.float32))
    state = kept(mesh, weight=1, slot=2)
    for weight, slot in [(-6, 7), (-15.5, 9.5)]:
        before = state
        state, scaled = program(state, rows)
        assert {name: float(value) for name, value in state.items()} == {"weight": weight, "slot": slot}
        assert {device for value in state.values() for device in value.devices()} == {mesh.centre}
        np.testing.assert_array_equal(scaled, np.arange(4) * weight)
        assert scaled.sharding == mesh.sharded
        assert before["slot"].is_deleted()


def test_stages_run_where_they_belong(mesh: ReplicaMesh) -> None:
    shapes = [{"weight": 1.0, "slot": 2.0}, jax.ShapeDtypeStruct((2,), "float32")]
    traced, _ = trace(step_on(mesh), shapes, mesh.axes)
    slot = traced.jaxpr.invars[0]
    stages = _cut(traced.jaxpr)
    assert [stage.is_update for stage in stages] == [False, True, False]
    assert [slot in stage.operands for stage in stages] == [False, True, False]
    names = [[eqn.primitive.name for eqn in stage.traced.jaxpr.eqns] for stage in stages]
    assert "psum" in names[0]
    assert "psum" not in names[1]
    assert names[2] == ["mul"]


def test_what_combines_values_of_replicas_stays_with_them(mesh: ReplicaMesh) -> None:
    def step(value: Any, rows: Any) -> Any:
        return update_at_centre(mesh, lambda v, r: v + lax.psum(r.sum(), AXIS), value, rows)

    traced, _ = trace(step, [1.0, jax.ShapeDtypeStruct((2,), "float32")], mesh.axes)
    assert [stage.is_update for stage in _cut(traced.jaxpr)] == [False]


def test_without_a_centre_nothing_is_cut() -> None:
    traced, _ = trace(lambda x: update_at_centre(ReplicaMesh(jax.devices()[:1]), lambda x: x + 1, x), [1.0])
    assert [eqn.primitive.name for eqn in traced.jaxpr.eqns] == ["add"]


def test_constants_and_results_that_need_no_program(mesh: ReplicaMesh) -> None:
    table = np.arange(3, dtype=np.float32)
    program = CentralProgram(mesh, lambda x: (x, 2.0, x + table), (WHOLE,), WHOLE, donated=False)
    same, two, added = program(mesh.keep(np.float32(5)))
    assert (float(same), float(two), np.asarray(added).tolist()) == (5.0, 2.0, [5.0, 6.0, 7.0])
    assert {device for value in (same, two, added) for device in value.devices()} == {mesh.centre}
