"""The only file of this folder that touches private parts of Keras. Checked on Keras 3.13.0 and 3.15.1."""

from __future__ import annotations

from typing import Any

import numpy as np


def give(variable: Any, value: np.ndarray) -> None:
    """Set a Keras variable, also one that a symbolic call has just made.

    Keras finds out the shapes of a model by calling it under a trace. Variables made there have no value until the
    trace ends, and an assignment would be dropped with it; so the value becomes the initializer.

    Args:
        variable: A `keras.Variable`.
        value: An array of its shape and dtype.
    """
    if vars(variable).get("_value", value) is None:  # of one that lives elsewhere, nothing is fetched to see that
        variable._initializer = lambda shape, dtype=None: value
    else:
        variable.assign(value)
