"""Gradients of max-pooling that XLA:CPU computes quickly.

JAX asks XLA for them with `select_and_scatter_add`. XLA:CPU has no code for it: it makes four arrays of positions, as
large as the operand, reduces all five together, and scatters number by number. That takes half of the step of a small
convolutional network, or more. Comparisons of shifted arrays, which XLA compiles to a loop or two, give the same bits.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

_MOST_PLACES: Final = 64
"""Each place of a window is an equation of its own; a window with more stays with XLA."""


def quick_gradient(
    params: Mapping[str, Any], operands: Sequence[jax.ShapeDtypeStruct], result: jax.ShapeDtypeStruct
) -> Callable[[jax.Array, jax.Array], jax.Array] | None:
    """Return a function for a gradient of max-pooling with XLA's bits, or None for other gradients of pooling.

    Args:
        params: Of the equation `select_and_scatter_add`.
        operands: What comes from the pooled array, and what was pooled.
        result: The gradient.
    """
    window, strides = params["window_dimensions"], params["window_strides"]
    # Where windows overlap, numbers are added up, and XLA rounds the sum of short floats where it likes.
    exact = all(size <= stride for size, stride in zip(window, strides, strict=True))
    if not exact and result.dtype.name not in ("float32", "float64"):
        return None
    if params["select_prim"] is not lax.ge_p or math.prod(window) > _MOST_PLACES:
        return None
    return functools.partial(max_pool_gradient, window=window, strides=strides, padding=params["padding"])


def max_pool_gradient(
    source: jax.Array,
    operand: jax.Array,
    window: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
) -> jax.Array:
    """Add each number of `source` where its window of `operand` has its maximum, the first where it has several.

    Bit by bit what XLA makes of `select_and_scatter_add` with "greater or equal": a number that is no number (NaN) wins
    over those before it and loses to those behind it, padding is minus infinity, and what meets at one place is added
    in the order of the windows.

    Args:
        source: What comes from the pooled array, of its shape.
        operand: What was pooled, floating, with as many dimensions.
        window: Its size in each dimension.
        strides: How far apart windows are.
        padding: What was put before and behind the operand in each dimension.

    Returns:
        The gradient, of the operand's shape.

    Example:
        >>> import jax.numpy as jnp
        >>> x = jnp.array([1.0, 3.0, 2.0, 2.0])
        >>> max_pool_gradient(jnp.array([10.0, 20.0]), x, (2,), (2,), ((0, 0),))
        Array([ 0., 10., 20.,  0.], dtype=float32)
    """
    lowest = lax.full_like(operand, -np.inf, shape=())
    padded = lax.pad(operand, lowest, [(low, high, 0) for low, high in padding])
    if window[0] == strides[0] == 1 and any(size > stride for size, stride in zip(window, strides, strict=True)):
        # Windows that overlap need the choice several times. XLA would make it anew each time, but not in a loop.
        chosen = lax.map(functools.partial(_choice, window=window[1:], strides=strides[1:]), padded)
    else:
        chosen = _choice(padded, window, strides)
    zero = jnp.zeros((), source.dtype)
    source = jnp.where(source == 0, zero, source)  # XLA's sums begin with 0, and 0 + -0 is 0
    total = _handed_back(source, chosen, padded.shape, window, strides)
    low = [before for before, _ in padding]
    return lax.slice(total, low, [before + n for before, n in zip(low, operand.shape, strict=True)])


def _choice(padded: jax.Array, window: Sequence[int], strides: Sequence[int]) -> jax.Array:
    """Return the number of the place in each window that has its maximum."""
    size = [(n - length) // stride + 1 for n, length, stride in zip(padded.shape, window, strides, strict=True)]
    ends = [(n - 1) * stride + 1 for n, stride in zip(size, strides, strict=True)]

    def at(place: Sequence[int]) -> jax.Array:
        return lax.slice(padded, place, [p + end for p, end in zip(place, ends, strict=True)], strides)

    first, *places = itertools.product(*map(range, window))
    best, chosen = at(first), jnp.zeros(size, jnp.int8)
    for i, place in enumerate(places, 1):
        here = at(place)
        stays = best >= here
        best, chosen = jnp.where(stays, best, here), jnp.where(stays, chosen, jnp.int8(i))
    return chosen


def _handed_back(
    source: jax.Array, chosen: jax.Array, shape: Sequence[int], window: Sequence[int], strides: Sequence[int]
) -> jax.Array:
    """Return the gradient: what comes from each window, at the place that has its maximum.

    The gradient is seen as blocks as large as the strides. A block gets numbers from the window that begins with it,
    and from those before that reach into it. So no array has gaps between its numbers, for which XLA would ask at each
    number. On one core (AMD EPYC, JAX 0.10.2) windows of 3x3 with strides of 2 on (16, 32, 32, 64) took 14 ms with
    gaps, and take 1.3 so; without strides on (16, 33, 33, 64) 59 and 9; windows of 2x2 on (64, 26, 26, 32) 1.1 and 0.6.

    Args:
        source: What comes from the pooled array.
        chosen: The number of the place that has the maximum in each window.
        shape: That of the gradient.
        window: Its size in each dimension.
        strides: How far apart windows are.
    """
    blocks = [-(-n // stride) for n, stride in zip(shape, strides, strict=True)]
    pairs = [n for pair in zip(blocks, strides, strict=True) for n in pair]
    zero = jnp.zeros((), source.dtype)
    total = jnp.zeros(pairs, source.dtype)
    reach = [range(-(-size // stride)) for size, stride in zip(window, strides, strict=True)]
    for back in reversed(list(itertools.product(*reach))):  # of windows that meet at a place the first comes first
        moved = [(b, n - size - b, 0) for b, n, size in zip(back, blocks, source.shape, strict=True)]
        here = _spread(lax.pad(chosen, jnp.int8(-1), moved), pairs) == _numbers(pairs, back, window, strides)
        total += jnp.where(here, _spread(lax.pad(source, zero, moved), pairs), zero)
    total = total.reshape([n * stride for n, stride in zip(blocks, strides, strict=True)])
    return lax.slice(total, [0] * total.ndim, shape)


def _spread(array: jax.Array, pairs: Sequence[int]) -> jax.Array:
    """Return blocks that have one number at all their places."""
    return lax.broadcast_in_dim(array, pairs, range(0, len(pairs), 2))


def _numbers(pairs: Sequence[int], back: Sequence[int], window: Sequence[int], strides: Sequence[int]) -> jax.Array:
    """Return the number that each place of a block has in the window that began some blocks before; -2 if none."""
    number, is_inside = jnp.zeros(pairs, jnp.int8), jnp.ones(pairs, bool)
    for axis, (b, size, stride) in enumerate(zip(back, window, strides, strict=True)):
        place = lax.broadcasted_iota(jnp.int8, pairs, 2 * axis + 1) + jnp.int8(b * stride)
        number = number * jnp.int8(size) + place
        is_inside &= place < size
    return jnp.where(is_inside, number, jnp.int8(-2))
