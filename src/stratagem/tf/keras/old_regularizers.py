"""Regularisers of Keras 2 whose defaults are not those of Keras 3."""

from __future__ import annotations

import keras


def l1_l2(l1: float = 0.01, l2: float = 0.01) -> keras.regularizers.L1L2:
    """Return a regulariser of both kinds. Keras 3's function of this name does nothing without arguments.

    Args:
        l1: The factor of the sum of absolute values.
        l2: The factor of the sum of squares.
    """
    return keras.regularizers.L1L2(l1=l1, l2=l2)
