"""Optimizers on a worker: what is sent with gradients, which steps count, and the scale of losses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import keras
import numpy as np
import pytest
from tests.unit.ps.servers import running_servers
from tests.unit.ps.test_pickling import brought, task_of

from stratagem.ps.client import Servers
from stratagem.ps.optimizers import weigh
from stratagem.ps.placement import Placement
from stratagem.ps.synchronous.contributions import Contribution


@pytest.fixture
def servers() -> Iterator[Servers]:
    with running_servers() as servers:
        yield servers


def on_worker(servers: Servers, optimizer: Any) -> tuple[keras.Variable, Any, Any]:
    """Return a variable, the optimizer as a worker has it, and the worker's task."""
    placement, task = Placement(servers), task_of(servers)
    weight = keras.Variable([1.0, 2.0])
    optimizer.build([weight])
    return weight, brought(optimizer, placement, task), task


def test_clipping_and_scaling_see_the_whole_gradient(servers: Servers) -> None:
    weight, optimizer, _ = on_worker(servers, keras.optimizers.SGD(1.0, clipnorm=5.0, loss_scale_factor=2.0))
    optimizer.apply([jnp.array([12.0, 16.0])])  # 6 and 8 unscaled, 3 and 4 clipped
    np.testing.assert_allclose(weight.numpy(), [-2.0, -2.0], rtol=1e-6)


def test_a_contribution_has_gradients_count_and_weight(servers: Servers) -> None:
    weight, optimizer, task = on_worker(servers, keras.optimizers.SGD(0.5))
    task.residence.contribution = Contribution(round=1)
    optimizer.apply([jnp.array([1.0, 1.0])])
    given = task.residence.contribution
    assert [(change.op, change.more.get("together")) for change in given.changes] == [("add", "first"), ("apply", None)]
    assert given.changes[1].more == {"optimizer": optimizer.remote_name, "iterations": 0, "rate": 0.5}
    assert given.weight == 1.0
    assert weight.numpy().tolist() == [1.0, 2.0]  # nothing happens before the round is applied


def test_a_step_that_is_not_finite_halves_the_scale(servers: Servers) -> None:
    inner = keras.optimizers.SGD(1.0)
    scaled = keras.optimizers.LossScaleOptimizer(inner, initial_scale=8.0, dynamic_growth_steps=2)
    weight, optimizer, _ = on_worker(servers, scaled)
    optimizer.apply([jnp.array([np.inf, 8.0])])
    assert weight.numpy().tolist() == [1.0, 2.0]
    assert (float(scaled.dynamic_scale), int(inner.iterations)) == (4.0, 0)
    for _ in range(2):
        optimizer.apply([jnp.array([4.0, 8.0])])
    assert weight.numpy().tolist() == [-1.0, -2.0]
    assert (float(scaled.dynamic_scale), int(inner.iterations)) == (8.0, 2)


def test_weighing_has_no_effect_elsewhere() -> None:
    weigh(keras.optimizers.SGD(), 3)
