"""Sums over replicas in few, large packs.

One collective for each tensor is slow where latency counts: 54 ms a step against 37 ms in one
pack on Gloo with two workers. Values of one dtype are raveled into buffers and summed together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
from jax import lax

from stratagem.mesh.exchange import Share
from stratagem.mesh.mesh import AXIS


def sum_over_replicas(
    values: Sequence[jax.Array], pack_bytes: int | None = 0, share: Share | None = None
) -> list[jax.Array]:
    """Sum each value over all replicas. Only inside a step on the mesh.

    Args:
        values: Arrays of any shapes and dtypes, the same on every replica.
        pack_bytes: Largest size of a pack in bytes; 0 means one pack for each dtype, None no packs.
        share: The replica's part of the batch, which says what counts; None where all does.

    Returns:
        The sums, in the order and shapes of `values`.
    """
    sums: list[jax.Array] = [jnp.asarray(value) for value in values]
    if share is not None:
        sums = [share.masked(value) for value in sums]
    if pack_bytes is None:
        totals = lax.psum([_summable(value) for value in sums], AXIS)
        return [total.astype(value.dtype) for total, value in zip(totals, sums, strict=True)]
    for members in packs(sums, pack_bytes):
        # Booleans have no sum: they travel as integers and return as "any".
        total = lax.psum(joined([_summable(sums[i]) for i in members]), AXIS)
        for i, piece in zip(members, parted(total, [sums[i] for i in members]), strict=True):
            sums[i] = piece
    return sums


def joined(values: Sequence[jax.Array]) -> jax.Array:
    """Return the elements of values of one dtype, one after the other."""
    return jnp.concatenate([jnp.ravel(value) for value in values])


def parted(pack: jax.Array, like: Sequence[jax.Array | jax.ShapeDtypeStruct]) -> list[jax.Array]:
    """Return values that were joined in their shapes and dtypes.

    Args:
        pack: Elements, one after the other.
        like: Arrays of these shapes and dtypes.
    """
    parts, start = [], 0
    for value in like:
        part = lax.slice(pack, (start,), (start + value.size,))
        parts.append(part.reshape(value.shape).astype(value.dtype))
        start += value.size
    return parts


def _summable(value: jax.Array) -> jax.Array:
    return value.astype(jnp.int32) if value.dtype == jnp.bool_ else value


def packs(values: Sequence[jax.Array], pack_bytes: int | None) -> Iterator[list[int]]:
    """Yield indices of the values that travel together: one dtype, at most `pack_bytes`; with None each alone.

    The last values come first: gradients of the last layers are ready before those of the first.
    """
    for dtype in dict.fromkeys(value.dtype for value in values):
        pack: list[int] = []
        size = 0
        for i in reversed([i for i, value in enumerate(values) if value.dtype == dtype]):
            if pack and (pack_bytes is None or (pack_bytes and size + values[i].nbytes > pack_bytes)):
                yield pack
                pack, size = [], 0
            pack.append(i)
            size += values[i].nbytes
        if pack:
            yield pack
