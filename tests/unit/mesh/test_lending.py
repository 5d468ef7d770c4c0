"""What is lent of variables in shards, in one process, where nothing need be: tests/multiprocess/test_shards.py."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.sharding import NamedSharding

from stratagem.mesh.divided import is_divided, is_in_shards
from stratagem.mesh.lending import divided_value, lend, put_together_by_xla, readable, resting
from stratagem.mesh.mesh import ReplicaMesh, spec_of

MESH = ReplicaMesh(jax.devices()[:2])


def divided_variable() -> keras.Variable:
    variable = keras.Variable(np.arange(8.0, dtype="float32"))
    variable.assign(jax.device_put(np.arange(8, dtype="float32"), NamedSharding(MESH.mesh, spec_of(0))))
    variable.shard_axis = 0
    return variable


def test_a_value_in_shards_of_one_process_is_read_as_it_is() -> None:
    variable = divided_variable()
    shard = variable.value
    assert is_in_shards(shard)
    assert not is_divided(shard)
    assert not is_in_shards(jnp.ones(3))
    assert not is_in_shards(3)
    assert divided_value(variable) is None
    assert lend([variable], reads=True) == []
    with readable([variable], reads=True):
        np.testing.assert_array_equal(np.asarray(variable.value), np.arange(8))
    assert variable.value is shard
    assert resting([variable], [shard])[0] is shard


def test_values_are_put_together() -> None:
    found: dict[int, np.ndarray] = {}
    put_together_by_xla([divided_variable().value], found.__setitem__)
    np.testing.assert_array_equal(found[0], np.arange(8))
