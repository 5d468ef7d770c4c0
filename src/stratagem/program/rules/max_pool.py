"""Gradients of max-pooling that XLA:CPU computes quickly.

JAX asks XLA for them with `select_and_scatter_add`. XLA:CPU has no code for it: it makes four arrays of positions, as
large as the operand, reduces all five together, and scatters number by number. That takes half of the step of a small
convolutional network, or more. Comparisons of shifted arrays, which XLA compiles to one loop, give the same bits.
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
    places = list(itertools.product(*map(range, window)))
    ends = [(n - 1) * stride + 1 for n, stride in zip(source.shape, strides, strict=True)]

    def at(place: Sequence[int]) -> jax.Array:
        return lax.slice(padded, place, [p + end for p, end in zip(place, ends, strict=True)], strides)

    best, chosen = at(places[0]), jnp.zeros(source.shape, jnp.int32)
    for i, place in enumerate(places[1:], 1):
        here = at(place)
        stays = best >= here
        best, chosen = jnp.where(stays, best, here), jnp.where(stays, chosen, i)
    zero = jnp.zeros((), source.dtype)
    source = jnp.where(source == 0, zero, source)  # XLA's sums begin with 0, and 0 + -0 is 0
    total = jnp.zeros(padded.shape, source.dtype)
    for i, place in reversed(list(enumerate(places))):  # the last place of a window is met first, in the first of them
        rest = [n - p - end for n, p, end in zip(padded.shape, place, ends, strict=True)]
        spread = [(p, r, stride - 1) for p, r, stride in zip(place, rest, strides, strict=True)]
        total += lax.pad(jnp.where(chosen == i, source, zero), zero, spread)
    low = [before for before, _ in padding]
    return lax.slice(total, low, [before + n for before, n in zip(low, operand.shape, strict=True)])
