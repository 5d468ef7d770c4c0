"""What replicas see of variables, and what their values make together."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from jax import lax

from stratagem.mesh.exchange import Share
from stratagem.mesh.mesh import AXIS
from stratagem.mesh.variable_policies import Change, Policy, enter, merge, policy_of

WEIGHTS = jnp.array([0.5, 0.25, 0.25])


def on_replicas(function: Any) -> Any:
    """Run a function on three replicas; return what each has."""
    return jax.vmap(function, axis_name=AXIS, axis_size=3)(WEIGHTS)


@pytest.mark.parametrize(
    ("variable", "metric", "policy"),
    [
        ({"initializer": 1.0}, False, Policy.SAME),
        ({"initializer": 1.0, "trainable": False}, False, Policy.MEAN),
        ({"initializer": 1.0, "trainable": False}, True, Policy.SUM),
        ({"initializer": 1, "trainable": False, "dtype": "int32"}, False, Policy.FIRST),
        ({"initializer": 1.0, "trainable": False, "aggregation": "sum"}, False, Policy.SUM),
        ({"initializer": 1, "trainable": False, "dtype": "int32", "aggregation": "mean"}, True, Policy.MEAN),
        ({"initializer": 1.0, "trainable": False, "aggregation": "only_first_replica"}, True, Policy.FIRST),
    ],
)
def test_policy_of_a_variable(variable: dict[str, Any], metric: bool, policy: Policy) -> None:
    assert policy_of(keras.Variable(**variable), metric=metric) is policy


def test_policy_of_a_seed() -> None:
    assert policy_of(keras.random.SeedGenerator(1).state) is Policy.SEED


def test_views() -> None:
    seed = jnp.array([7, 3], jnp.uint32)
    policies = [Policy.SUM, Policy.SEED, Policy.MEAN]
    total, stream, mean = on_replicas(lambda _: enter(policies, [jnp.float32(5), seed, jnp.float32(2)]))
    assert total.tolist() == [5, 0, 0]
    assert mean.tolist() == [2, 2, 2]
    assert stream[0].tolist() == [7, 3]
    assert len({tuple(each) for each in stream.tolist()}) == 3


def changed(policy: Policy, value: Any, dtype: str = "float32", **share: Any) -> Any:
    """Return what replicas make of a variable to which each adds its number."""
    value = jnp.asarray(value, dtype)

    def replica(weight: Any) -> Any:
        [view] = enter([policy], [value])
        own = Share(rows=1, global_rows=4, weight=weight, **share)
        added = (lax.axis_index(AXIS) + 1).astype(dtype)
        others = [jnp.float32(10)]
        (new,), (ten,) = merge([Change(policy, own, value, view, view + added)], 0, others)
        return new, ten

    new, ten = on_replicas(replica)
    assert ten.tolist() == [30, 30, 30]
    assert new.dtype == value.dtype
    return new


@pytest.mark.parametrize(
    ("policy", "expected"), [(Policy.SUM, 10 + 1 + 2 + 3), (Policy.MEAN, 10 + 0.5 + 0.5 + 0.75), (Policy.FIRST, 11)]
)
def test_merged_values(policy: Policy, expected: float) -> None:
    assert changed(policy, 10).tolist() == [expected] * 3


def test_a_mean_of_integers_is_no_mean_of_integer_weights() -> None:
    assert changed(Policy.MEAN, 10, "int32").tolist() == [11, 11, 11]


def test_the_first_replica_with_rows_counts() -> None:
    assert changed(Policy.FIRST, 10, first=2).tolist() == [13, 13, 13]


def test_what_is_the_same_needs_no_other_replica() -> None:
    assert changed(Policy.SAME, 10).tolist() == [11, 12, 13]


def test_a_seed_moves_on_by_what_was_drawn() -> None:
    seed = jnp.array([7, 3], jnp.uint32)

    def replica(weight: Any) -> Any:
        [view] = enter([Policy.SEED], [seed])
        own = Share(rows=1, global_rows=4, weight=weight)
        return merge([Change(Policy.SEED, own, seed, view, view + jnp.array([0, 2], jnp.uint32))], 0)[0][0]

    np.testing.assert_array_equal(on_replicas(replica), [[7, 5]] * 3)


def test_a_replica_without_rows_leaves_variables_as_it_saw_them() -> None:
    value = jnp.float32(10)

    def replica(weight: Any) -> Any:
        own = Share(rows=1, global_rows=4, weight=weight, present=lax.axis_index(AXIS) < 2)
        [view] = enter([Policy.SUM], [value])
        return merge([Change(Policy.SUM, own, value, view, jnp.float32(jnp.nan) * 0 + view + 1)], None)[0][0]

    def without_nan(weight: Any) -> Any:
        own = Share(rows=1, global_rows=4, weight=weight, present=lax.axis_index(AXIS) < 2)
        [view] = enter([Policy.SUM], [value])
        return merge([Change(Policy.SUM, own, value, view, view + 1)], None)[0][0]

    assert on_replicas(without_nan).tolist() == [12, 12, 12]
    assert np.isnan(on_replicas(replica)).all()
