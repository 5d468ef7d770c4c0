"""Convolutions in the layout that XLA:CPU computes quickly, wherever they are.

XLA:CPU's fast code takes rows first and channels last. XLA moves the axes of other convolutions by itself, but not
within loops and branches: there its slow loops compute them. JAX asks for the gradients of kernels in another layout.
So two steps in one loop (`steps_per_execution`) took 920 ms each for the CNN of MNIST on one core, and 20 one by one.
With the axes moved here, they take 20 in the loop too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from stratagem.program.rules.windows import convolution, with_channels_last


def quick_convolution(
    params: Mapping[str, Any], operands: Sequence[jax.ShapeDtypeStruct], result: jax.ShapeDtypeStruct
) -> Callable[[jax.Array, jax.Array], jax.Array] | None:
    """Return a function for a convolution in another layout, or None for one that has this layout.

    Args:
        params: Of the equation `conv_general_dilated`.
        operands: The images and the kernel.
        result: The images that it makes.
    """
    if tuple(params["dimension_numbers"]) == tuple(with_channels_last(len(result.shape))):
        return None
    return functools.partial(convolution, params=params)
