"""Convolutions in the layout that XLA:CPU computes quickly, wherever they are.

XLA:CPU's fast code takes rows first and channels last. XLA moves the axes of other convolutions by itself, but not
within loops and branches: there its slow loops compute them. JAX asks for the gradients of kernels in another layout.
So a step of the CNN of MNIST took 923 ms on one core in a loop of four (`steps_per_execution`), and 20 by itself. With
the axes moved here, and gradients in parts (`kernel_gradients`), it takes 16 either way.
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
