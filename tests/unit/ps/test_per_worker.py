"""`tf.Variable(..., per_worker_variable=True)` on a cluster in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stratagem.tf as tf
from stratagem.core.errors import UsageError


@pytest.fixture
def coordinator() -> Iterator[Any]:
    strategy = tf.distribute.experimental.ParameterServerStrategy()
    yield tf.distribute.coordinator.ClusterCoordinator(strategy)
    strategy.close()


def test_each_worker_reads_and_changes_its_own(coordinator: Any) -> None:
    with coordinator.strategy.scope():
        own = tf.Variable([0.0], shape=[1], dtype=tf.float32, name="own", per_worker_variable=True)

    @tf.function
    def count() -> Any:
        own.assign_add(tf.constant([1.0]))
        return own

    for number in range(6):
        coordinator.schedule(count)
        coordinator.join()
        assert sum(own.read_all()).numpy() == number + 1
    for _ in range(10):
        coordinator.schedule(count)
    coordinator.join()
    assert sum(own.read_all()).numpy() == 16
    assert (own.name, own.shape, own.dtype, own.trainable) == ("own", (1,), "float32", False)

    def mark() -> int:
        index = tf.distribute.coordinator.experimental_get_current_worker_index()
        own.assign([100.0 * (index + 1)])
        return index

    before = [value.numpy() for value in own.read_all()]
    seen = coordinator.schedule(mark).fetch()
    after = [value.numpy() for value in own.read_all()]
    assert (after[seen], after[1 - seen]) == (100.0 * (seen + 1), before[1 - seen])


def test_a_first_value_that_is_computed_is_computed_for_each(coordinator: Any) -> None:
    drawn = iter(range(10))
    with coordinator.strategy.scope():
        own = tf.Variable(lambda: float(next(drawn)), per_worker_variable=True)
    assert [value.numpy() for value in own.read_all()] == [0.0, 1.0]
    own.variables[1].assign(7.0)
    np.testing.assert_array_equal(own.read_all(), [0.0, 7.0])


def test_a_checkpoint_takes_its_variables(coordinator: Any, tmp_path: Path) -> None:
    with coordinator.strategy.scope():
        own = tf.Variable(0.0, per_worker_variable=True)
    for variable, value in zip(own.variables, (3.0, 4.0), strict=True):
        variable.assign(value)
    checkpoint = tf.train.Checkpoint(own=list(own.variables))
    path = checkpoint.save(tmp_path / "ckpt")
    for variable in own.variables:
        variable.assign(0.0)
    checkpoint.restore(path)
    np.testing.assert_array_equal(own.read_all(), [3.0, 4.0])


def test_a_function_that_uses_it_is_sent_once(coordinator: Any) -> None:
    with coordinator.strategy.scope():
        own = tf.Variable(0.0, per_worker_variable=True)

    @tf.function
    def count() -> Any:
        own.assign_add(1.0)

    coordinator.schedule(count).fetch()
    known = coordinator._shared_function(count)
    coordinator.schedule(count).fetch()
    assert coordinator._shared_function(count) is known


def test_the_chief_has_none(coordinator: Any) -> None:
    with coordinator.strategy.scope():
        own = tf.Variable(0.0, per_worker_variable=True)
    with pytest.raises(UsageError, match=r"assign_add of a variable with per_worker_variable=True .* on the chief"):
        own.assign_add(1.0)
    assert not hasattr(own, "handle")


def test_other_strategies_have_none() -> None:
    with pytest.raises(UsageError, match=r"per_worker_variable=True outside the scope of a strategy"):
        tf.Variable(0.0, per_worker_variable=True)
    with (
        tf.distribute.OneDeviceStrategy("cpu:0").scope(),
        pytest.raises(UsageError, match=r"per_worker_variable=True in the scope of OneDeviceStrategy"),
    ):
        tf.Variable(0.0, per_worker_variable=True)
