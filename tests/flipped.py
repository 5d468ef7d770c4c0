"""A bit that flips in memory."""

from __future__ import annotations

import ctypes

import jax
import numpy as np


def flip_bit(part: jax.Array, bit: int) -> None:
    """Flip a bit of an array in XLA's own memory, which nobody may write.

    Args:
        part: An array on one device of the host.
        bit: The number of the bit in the array.
    """
    jax.block_until_ready(part)
    data = np.asarray(part)
    address = data.__array_interface__["data"][0]
    (ctypes.c_uint8 * data.nbytes).from_address(address)[bit // 8] ^= 1 << bit % 8
