"""Products of matrices that sum over several axes, as sums over one.

The gradient of the kernel of a dense layer on sequences sums over rows and places. XLA:CPU makes of it a product of two
transposed copies: for (16, 64, 128) and 10,000 units it took 101 ms on one core. With rows and places as one axis it
copies nothing, and takes 11 ms.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax import lax


def quick_product(
    params: Mapping[str, Any], operands: Sequence[jax.ShapeDtypeStruct], result: jax.ShapeDtypeStruct
) -> Callable[[jax.Array, jax.Array], jax.Array] | None:
    """Return a function for a product that sums over neighbouring axes, or None for other products.

    Args:
        params: Of the equation `dot_general`.
        operands: The two factors.
        result: The product.
    """
    (of_left, of_right), of_batch = params["dimension_numbers"]
    if any(of_batch) or len(of_left) < 2 or not (are_neighbours(of_left) and are_neighbours(of_right)):
        return None
    return functools.partial(over_one_axis, of_left=of_left, of_right=of_right, params=params)


def are_neighbours(axes: Sequence[int]) -> bool:
    """Return whether axes follow one another, so that they can be made one without moving a number."""
    return tuple(axes) == tuple(range(axes[0], axes[0] + len(axes)))


def over_one_axis(
    left: jax.Array, right: jax.Array, of_left: Sequence[int], of_right: Sequence[int], params: Mapping[str, Any]
) -> jax.Array:
    """Multiply two factors, with the axes that are summed over made one.

    Args:
        left: The one factor.
        right: The other.
        of_left: Neighbouring axes of the one, which are summed over.
        of_right: Those of the other, in the same order.
        params: Of the equation, which has a precision and a type of the result.
    """
    return lax.dot_general(
        _merged(left, of_left),
        _merged(right, of_right),
        (((of_left[0],), (of_right[0],)), ((), ())),
        precision=params["precision"],
        preferred_element_type=params["preferred_element_type"],
    )


def _merged(factor: jax.Array, axes: Sequence[int]) -> jax.Array:
    """Return a factor with neighbouring axes made one."""
    first, shape = axes[0], factor.shape
    size = math.prod(shape[axis] for axis in axes)
    return factor.reshape(*shape[:first], size, *shape[first + len(axes) :])
