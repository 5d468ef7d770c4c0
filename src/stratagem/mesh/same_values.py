"""Comparison of values that all replicas should hold alike, by the bits of each: weights, and what optimizers keep.

Replicas compute the same update of the same weights, so nothing tells them when one has others: a bit that flipped in
the memory of a machine, an assignment on one worker alone. So each value becomes a checksum, which any single bit
changes, and workers compare one digest of all checksums; only where it differs do they look for the values.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding

from stratagem.cluster.agreement import Peers
from stratagem.core.errors import PeerError, name_some
from stratagem.mesh.mesh import AXIS

_SHOWN: Final = 8
"""Values that an error names."""

_CONSEQUENCE: Final = "The replicas train different models from there on, and each reports a loss of its own mixture."
_REMEDY: Final = (
    "Look for a callback or another piece of the program that assigns on one worker only. If there is none, the memory "
    "of a machine may be faulty. Go on from the last backup or checkpoint, made when they were still alike."
)


def check_same_values(when: str, values: Mapping[str, Any], peers: Peers | None) -> None:
    """Make sure that all replicas hold the same bits. All workers call it at the same point.

    Args:
        when: The point, for messages.
        values: Arrays by name. What lies on one device, or is divided among the replicas, is not compared; what is
            divided among the devices of each replica is compared part by part.
        peers: The workers; None to compare the replicas of this one alone.

    Raises:
        PeerError: They do not; the message names the values, and who holds which.
    """
    checksums = _checksums({name: value for name, value in values.items() if _is_held_by_each(value)})
    apart = any(len(set(each)) > 1 for each in checksums.values())
    if peers is None:
        found = {name: [each] for name, each in checksums.items()}
    else:
        digest = hashlib.sha256(repr(sorted(checksums.items())).encode()).hexdigest()
        if set(map(tuple, peers.from_all("digest of weights", [digest, apart]))) == {(digest, False)}:
            return
        found = _by_worker(peers.from_all("checksums of weights", checksums))
    differing = [_line(name, each, peers) for name, each in found.items() if _differ(each)]
    if differing:
        raise PeerError(
            f"The replicas hold different values {when}:{name_some(differing, _SHOWN, '')}", _CONSEQUENCE, _REMEDY
        )


def _is_held_by_each(value: Any) -> bool:
    """Return whether each replica holds a value, on one device or divided among its own."""
    if not isinstance(value, jax.Array) or len(value.sharding.device_set) == 1:
        return False
    if isinstance(value.sharding, NamedSharding):
        return AXIS not in jax.tree.leaves(tuple(value.sharding.spec))
    return value.is_fully_replicated


def _checksums(values: Mapping[str, jax.Array]) -> dict[str, list[int]]:
    """Return, for each value or part of one, a number for each of this worker's replicas."""
    checksums: dict[str, list[Any]] = {}
    for name, value in values.items():
        for shard in value.addressable_shards:
            place = "" if value.is_fully_replicated else f" {_written(shard.index, value.shape)}"
            checksums.setdefault(name + place, []).append(_checksum(shard.data))
    return jax.tree.map(int, jax.device_get(checksums))


def _written(index: tuple[slice, ...], shape: Sequence[int]) -> str:
    """Return which part of a value it is, as `[0:4, :]`."""
    bounds = [each.indices(size) for each, size in zip(index, shape, strict=True)]
    sides = [
        ":" if (start, stop) == (0, size) else f"{start}:{stop}"
        for (start, stop, _), size in zip(bounds, shape, strict=True)
    ]
    return f"[{', '.join(sides)}]"


def _checksum(value: jax.Array) -> int | jax.Array:
    """Return a number that any change of a single bit changes, of NaN's as well."""
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    if next(iter(value.devices())).platform == "cpu":  # nothing is copied, and no program compiled for each shape
        return zlib.crc32(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    return checksum_on_device(value)


@jax.jit
def checksum_on_device(value: jax.Array) -> jax.Array:
    """Return a number that any change of a single bit changes, of NaN's as well, without a copy to the host.

    Args:
        value: An array on one device.
    """
    words = _words(value).ravel()
    # Places have odd factors, which keep each bit of a word: the sum shows exchanged words too.
    factors = 2 * lax.iota(jnp.uint32, words.size) + 1
    return jnp.sum(words * factors, dtype=jnp.uint32)


def _words(value: jax.Array) -> jax.Array:
    """Return the bits of an array as uint32."""
    if jnp.issubdtype(value.dtype, jnp.complexfloating):
        value = jnp.stack([value.real, value.imag])
    if value.dtype == jnp.bool_:
        return value.astype(jnp.uint32)
    bits = (jnp.finfo if jnp.issubdtype(value.dtype, jnp.floating) else jnp.iinfo)(value.dtype).bits
    if bits < 8:  # an exact float has other bits for other values
        value, bits = value.astype(jnp.float32), 32
    return lax.bitcast_convert_type(value, {8: jnp.uint8, 16: jnp.uint16}.get(bits, jnp.uint32)).astype(jnp.uint32)


def _by_worker(told: Sequence[Mapping[str, list[int]]]) -> dict[str, list[list[int]]]:
    """Return the checksums on each worker by value, of those values that all workers compare."""
    common = [name for name in told[0] if all(name in checksums for checksums in told)]
    return {name: [checksums[name] for checksums in told] for name in common}


def _differ(checksums: Sequence[Sequence[int]]) -> bool:
    return len({number for each in checksums for number in each}) > 1


def _line(name: str, checksums: Sequence[Sequence[int]], peers: Peers | None) -> str:
    holders = ["this process"] if peers is None else [str(peer) for peer in peers.peers]
    shown = [" and ".join(f"{number:08x}" for number in dict.fromkeys(each)) for each in checksums]
    said = "; ".join(f"{each} on {holder}" for each, holder in zip(shown, holders, strict=True))
    return f"\n    {name} has checksum {said}"
