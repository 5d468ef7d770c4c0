"""Values that replicas should hold alike: any bit that differs is found, and named."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import NamedSharding
from tests.meeting import members, on_all

from stratagem.cluster.agreement import Peers
from stratagem.core.errors import PeerError
from stratagem.mesh.mesh import ReplicaMesh, spec_of
from stratagem.mesh.same_values import _BEFORE, PastValues, _checksum, _shown, check_same_values, checksum_on_device

KINDS = ("float32", "bfloat16", "float16", "int32", "int8", "uint8", "bool", "float8_e4m3fn", "int4", "complex64")


def on_replicas(values: list[np.ndarray]) -> jax.Array:
    """Return an array that says it is the same on all replicas, and is not."""
    mesh = ReplicaMesh(jax.devices()[: len(values)])
    parts = [jax.device_put(value, device) for value, device in zip(values, mesh.devices, strict=True)]
    return jax.make_array_from_single_device_arrays(values[0].shape, mesh.replicated, parts)


def flipped(value: np.ndarray, bit: int) -> np.ndarray:
    data = bytearray(value.tobytes())
    data[bit // 8] ^= 1 << bit % 8
    return np.frombuffer(bytes(data), value.dtype).reshape(value.shape)


@pytest.mark.parametrize("checksum", [_checksum, checksum_on_device])
@pytest.mark.parametrize("bit", [0, 7, 22, 31, 32, 190, 191])
def test_every_bit_counts_of_nan_as_well(checksum: Any, bit: int) -> None:
    value = np.array([[np.nan, 1.5, -0.0], [np.inf, 0.0, 3e-45]], np.float32)
    # Not through an operation: XLA:CPU may make another NaN of one.
    assert int(checksum(jax.device_put(flipped(value, bit)))) != int(checksum(jax.device_put(value)))
    assert int(checksum(jax.device_put(value.copy()))) == int(checksum(jax.device_put(value)))


@pytest.mark.parametrize("checksum", [_checksum, checksum_on_device])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_number_has_a_checksum(checksum: Any, kind: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, kind, kind))
    one, other = (np.array(values).astype(dtype) for values in ([0, 1, 1, 0], [0, 1, 0, 1]))
    assert int(checksum(jax.device_put(one))) != int(checksum(jax.device_put(other)))


def test_scalars_and_keys_have_checksums() -> None:
    assert _checksum(jax.device_put(np.float32(1))) != _checksum(jax.device_put(np.float32(2)))
    assert _checksum(jax.random.key(1)) != _checksum(jax.random.key(2))
    assert int(checksum_on_device(jnp.float32(1))) == 0x3F800000


def test_replicas_of_one_process_are_compared() -> None:
    kernel = np.ones((2, 3), np.float32)
    check_same_values("now", {"kernel": on_replicas([kernel, kernel]), "bias": jnp.ones(3)}, None)
    with pytest.raises(PeerError, match=r"different values now:\n    kernel has checksum [0-9a-f]{8} and [0-9a-f]{8}"):
        check_same_values("now", {"kernel": on_replicas([kernel, flipped(kernel, 40)])}, None)


def test_a_message_calls_values_what_it_is_told() -> None:
    shown = {"block/kernel": "block_2/kernel", "kernel": "dense_1/kernel"}
    assert _shown("kernel", shown) == "dense_1/kernel"
    assert _shown("kernel [0:4, :]", shown) == "dense_1/kernel [0:4, :]"
    assert _shown(f"block/kernel{_BEFORE}", shown) == f"block_2/kernel{_BEFORE}"
    assert _shown("kernels", shown) == "kernels"
    kernel = np.ones((2, 3), np.float32)
    values = {"kernel": on_replicas([kernel, flipped(kernel, 40)])}
    with pytest.raises(PeerError, match=r"different values now:\n    dense_1/kernel has checksum"):
        check_same_values("now", values, None, lambda: shown)


@pytest.mark.parametrize("divided", [True, False])
def test_replicas_of_several_devices_are_compared_part_by_part(divided: bool) -> None:
    mesh = ReplicaMesh(jax.devices()[:4], model_parallel=2)
    sharding = NamedSharding(mesh.mesh, spec_of(None, 1 if divided else None))
    kernel = np.arange(8, dtype=np.float32).reshape(2, 4)

    def on_devices(others: np.ndarray) -> jax.Array:
        places = sharding.addressable_devices_indices_map(kernel.shape)
        wholes = [kernel, kernel, others, others]
        parts = [jax.device_put(whole[places[d]], d) for whole, d in zip(wholes, jax.devices()[:4], strict=True)]
        return jax.make_array_from_single_device_arrays(kernel.shape, sharding, parts)

    check_same_values("now", {"kernel": on_devices(kernel)}, None)
    with pytest.raises(PeerError, match="different values now") as caught:
        check_same_values("now", {"kernel": on_devices(flipped(kernel, 32 * 3 + 4))}, None)
    assert str(caught.value).count("has checksum") == 1
    assert ("kernel [:, 2:4] has checksum" if divided else "kernel has checksum") in str(caught.value)


def test_workers_are_told_which_values_differ() -> None:
    kernel, bias = np.ones((2, 3), np.float32), np.zeros(3, np.float32)

    def check(index: int, own: Peers) -> None:
        other = flipped(kernel, 5) if index == 1 else kernel
        values = {"kernel": on_replicas([other, other]), "bias": on_replicas([bias, bias])}
        check_same_values("at the end of epoch 3", values, own)

    for error in on_all(members(3)[1], check):
        assert isinstance(error, PeerError)
        assert "at the end of epoch 3:\n    kernel has checksum" in str(error)
        assert "on worker 2 (host node2, pid 102)" in str(error)
        assert "bias" not in str(error)


def test_a_replica_that_differs_inside_each_worker_is_found() -> None:
    kernel = np.ones((2, 3), np.float32)
    apart = on_replicas([kernel, flipped(kernel, 5)])
    for error in on_all(members(2)[1], lambda index, own: check_same_values("now", {"kernel": apart}, own)):
        assert isinstance(error, PeerError)


def test_what_lies_on_one_worker_only_is_not_compared() -> None:
    kernel = np.ones((2, 3), np.float32)

    def check(index: int, own: Peers) -> None:
        values: dict[str, Any] = {"kernel": on_replicas([kernel, kernel])}
        check_same_values("now", {**values, "own": values["kernel"] if index else jnp.ones(3)}, own)

    assert on_all(members(2)[1], check) == [None, None]


@pytest.mark.parametrize("on_host", [True, False])
def test_a_value_that_differed_for_one_step_is_remembered(on_host: bool) -> None:
    kernel, bias = np.ones((2, 3), np.float32), np.arange(5, dtype=np.int8)
    mesh = ReplicaMesh(jax.devices()[:2])
    alike = {"kernel": on_replicas([kernel, kernel]), "bias": on_replicas([bias, bias])}
    past = PastValues(mesh, list(alike))
    if not on_host:
        past._is_on_host = False
        past._begin()
    other = on_replicas([bias, flipped(bias, 37)])
    for step in range(9):
        past.add([alike["kernel"], other if step == 3 else alike["bias"]])
    numbers = past.numbers()
    assert numbers["kernel"][0] == numbers["kernel"][1] != 0
    assert numbers["bias"][0] != numbers["bias"][1]
    past.add(list(alike.values()))
    assert all(one == two for one, two in past.numbers().values())
