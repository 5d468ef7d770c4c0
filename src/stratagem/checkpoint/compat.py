"""The only file of this folder that touches private parts of Keras. Checked on Keras 3.13.0 and 3.15.1."""

from __future__ import annotations

from typing import Any

import numpy as np

from stratagem.checkpoint.shard_files import placed_like
from stratagem.mesh.divided import is_in_shards
from stratagem.mesh.shards import rests_divided


def give(variable: Any, value: Any) -> None:
    """Set a Keras variable, also one that a symbolic call has just made.

    Keras finds out the shapes of a model by calling it under a trace. Variables made there have no value until the
    trace ends, and an assignment would be dropped with it; so the value becomes the initializer. One that rests in
    shards already is given its own alone.

    Args:
        variable: A `keras.Variable`.
        value: An array of its shape and dtype, or one that is read when it is asked for (`shard_files.Divided`).
    """
    if vars(variable).get("_value", value) is None:  # of one that lives elsewhere, nothing is fetched to see that
        variable._initializer = lambda shape, dtype=None: np.asarray(value)
    elif rests_divided(variable) and is_in_shards(variable.value):
        variable.assign(placed_like(value, variable.value.sharding))
    else:
        variable.assign(np.asarray(value))
