"""Which variables a function touches."""

from __future__ import annotations

from typing import Any

import jax
import keras
from jax import lax

from stratagem.mesh.mesh import AXIS, ReplicaMesh
from stratagem.mesh.variable_policies import Policy
from stratagem.program.discover import discover, policies_of
from stratagem.program.tracing import Replayable, current_tracing, note_updated_alike


def discovered(body: Any, *args: Any, mesh: ReplicaMesh | None = None) -> Replayable:
    def run(*given: Any) -> Replayable:
        tracing = Replayable(lambda: body(*given), discovering=True)
        tracing.run()
        return tracing

    return discover(run, args, mesh)


def test_variables_in_the_order_of_their_reads() -> None:
    first, second, third = (keras.Variable(float(i)) for i in range(3))

    def body(x: Any) -> None:
        second.assign(first * x)
        third.assign(1.0)

    tracing = discovered(body, 2.0)
    assert [id(v) for v in tracing.scope.touched] == [id(first), id(second), id(third)]
    assert list(tracing.scope.assigned) == [id(second), id(third)]
    assert [float(v.value) for v in (first, second, third)] == [0.0, 1.0, 2.0]


def test_what_it_makes_has_values_afterwards() -> None:
    made: list[keras.layers.Dense] = []

    def body(x: Any) -> Any:
        if not made:
            made.append(keras.layers.Dense(2))
        return made[0](x)

    tracing = discovered(body, jax.ShapeDtypeStruct((4, 3), "float32"))
    assert [tuple(v.shape) for v in tracing.scope.touched] == [(3, 2), (2,)]
    assert made[0].kernel.numpy().shape == (3, 2)


def test_the_function_of_a_replica_may_use_the_axis() -> None:
    sizes: list[int] = []
    mesh = ReplicaMesh(jax.devices()[:3])
    discovered(lambda x: sizes.append(lax.psum(1, AXIS)), 1.0, mesh=mesh)
    assert sizes == [3]


def test_variables_are_made_at_the_centre() -> None:
    made: list[keras.Variable] = []
    mesh = ReplicaMesh(jax.devices()[:2], centre=jax.devices()[3])
    discovered(lambda: made.append(keras.Variable("ones", shape=(1,))), mesh=mesh)
    assert made[0].value.devices() == {jax.devices()[3]}


def test_policies_of_what_replicas_update_alike() -> None:
    moving, merged = keras.Variable(0.0, trainable=False), keras.Variable(0.0, trainable=False)

    def body() -> None:
        for variable in (moving, merged):
            variable.assign_add(1.0)
        note_updated_alike([merged])

    tracing = discovered(body)
    assert policies_of(tracing, [moving, merged]) == [Policy.MEAN, Policy.SAME]
    assert current_tracing() is None
