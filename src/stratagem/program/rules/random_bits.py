"""Random bits of JAX's default generator, Threefry, that XLA:CPU compiles and computes quickly.

JAX had XLA:CPU do the rounds in loops until "threefry2x32: use unrolled loops in CPU lowering" (jax-ml/jax#37872). On
one core XLA compiles a dropout of (32, 64, 128) with its gradient in 1,110 ms and computes it in 2.3; with the rounds
one after another it takes 353 and 1.0.

Source of the function: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import lax

_ROTATIONS: Final = ((13, 15, 26, 6), (17, 29, 16, 24))
_GROUPS_OF_ROUNDS: Final = 5
_PARITY: Final = 0x1BD11BDA

_MOST: Final = 2**31
"""Places in a flat array have to fit into 32 bits."""


def quick_bits(
    params: Mapping[str, Any], operands: Sequence[jax.ShapeDtypeStruct], result: jax.ShapeDtypeStruct
) -> Callable[[jax.Array], jax.Array] | None:
    """Return a function for random bits with JAX's numbers, or None for those of other generators.

    Args:
        params: Of the equation `random_bits`.
        operands: The key.
        result: The bits, as whole numbers without sign.
    """
    (key,) = operands
    is_threefry = key.dtype.name == "key<fry>" and are_of_places()
    if not is_threefry or key.shape or not 0 < math.prod(result.shape) < _MOST:
        return None
    return functools.partial(_bits, shape=result.shape, width=params["bit_width"])


def are_of_places() -> bool:
    """Whether JAX's generator gives each place of an array the same bits whatever the array's shape is."""
    return jax.config.jax_threefry_partitionable  # pyright: ignore[reportAttributeAccessIssue]


def _bits(key: jax.Array, shape: Sequence[int], width: int) -> jax.Array:
    """Return bits, made in two turns of a loop: XLA cannot join it with what reads them.

    Otherwise it makes numbers anew for each row that they are broadcast to: a step of SpatialDropout2D on images of
    (32, 32, 32, 64) takes 23 ms, with loops 10.
    """
    size = math.prod(shape)
    half = -(-size // 2)
    first, second = jax.random.key_data(key)

    def with_half(turn: jax.Array, bits: jax.Array) -> jax.Array:
        start = turn.astype(jnp.uint32) * jnp.uint32(size - half)
        places = start + lax.iota(jnp.uint32, half)
        made = bits_at(first, second, jnp.zeros_like(places), places, width)
        return lax.dynamic_update_slice(bits, made, (start,))

    return lax.fori_loop(0, 2, with_half, jnp.zeros(size, f"uint{width}")).reshape(shape)


def bits_at(key: jax.Array, other_key: jax.Array, high: jax.Array, low: jax.Array, width: int) -> jax.Array:
    """Return the bits that a key has at given places.

    Args:
        key: First half of the key, uint32, a scalar.
        other_key: Second half.
        high: Of each place in a flat array the upper 32 bits, uint32.
        low: The lower 32 bits.
        width: Bits of each number: 8, 16, 32 or 64.
    """
    first, second = _threefry(key, other_key, high, low)
    if width == 64:
        return lax.shift_left(first.astype(jnp.uint64), jnp.uint64(32)) | second.astype(jnp.uint64)
    return (first ^ second).astype(f"uint{width}")


def _threefry(key: jax.Array, other_key: jax.Array, first: jax.Array, second: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the two words that Threefry makes of each pair of words."""
    keys = key, other_key, key ^ other_key ^ jnp.uint32(_PARITY)
    first, second = first + keys[0], second + keys[1]
    for group in range(_GROUPS_OF_ROUNDS):
        for by in _ROTATIONS[group % 2]:
            first = first + second
            second = first ^ (lax.shift_left(second, jnp.uint32(by)) | _down(second, 32 - by))
        first = first + keys[(group + 1) % 3]
        second = second + keys[(group + 2) % 3] + jnp.uint32(group + 1)
    return first, second


def _down(words: jax.Array, by: int) -> jax.Array:
    return lax.shift_right_logical(words, jnp.uint32(by))
