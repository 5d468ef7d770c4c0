"""Layouts of a model's variables on the devices of a replica, as a table for a person."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import jax.numpy as jnp
import keras

from stratagem.core.errors import InputError
from stratagem.core.findings import size
from stratagem.core.named import load
from stratagem.mesh.layouts import AUTO, layouts_of
from stratagem.mesh.shards import model_axis, sharding_of

_REMEDY: Final = (
    "Name a function that returns a built model: --layout train:make_model, or --layout path/to/train.py:make_model. "
    "It may return (model, layout_map)."
)

_COLUMNS: Final = ("variable", "shape", "divided along", "on each device")


def described(place: str, model_parallel: int | None) -> str:
    """Return how the variables of a model would be divided among the devices of a replica.

    Args:
        place: `module:function` or `path/to/file.py:function`; the function returns a built model, or a model and a
            layout map. Without a map it is "auto".
        model_parallel: How many devices a replica has; None means the number in the mesh of the layout map.

    Raises:
        InputError: The function returns something else, or a layout cannot divide the variables.
    """
    made = load(place, "--layout", _REMEDY)()
    model, layout_map = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(model, keras.Model) or not model.built:
        raise InputError(f"{place} returned {made!r}, which is not a built model.", _REMEDY)
    layouts = layouts_of(AUTO if layout_map is None else layout_map, model_parallel)
    sharding = sharding_of(None, None, 1, layouts)
    if sharding is None or layouts is None:
        raise InputError(
            "A replica has one device.", "No variable is divided.", "Write more devices: --model-parallel 2."
        )
    sharding.mark_weights(model.weights)
    lines = [*_aligned([_COLUMNS, *(_row(variable, layouts.devices) for variable in model.weights)]), ""]
    lines.append(_together(model.weights, layouts.devices))
    unmatched = layouts.unmatched([variable.path for variable in model.weights])
    if unmatched:
        lines.append(f"Patterns that match no variable: {', '.join(map(repr, unmatched))}")
    return "\n".join(lines)


def _row(variable: Any, devices: int) -> tuple[str, ...]:
    axis = model_axis(variable)
    along = "" if axis is None else f"axis {axis}: {variable.shape[axis]} / {devices}"
    return variable.path, str(tuple(variable.shape)), along, size(_nbytes(variable) / (1 if axis is None else devices))


def _together(variables: Sequence[Any], devices: int) -> str:
    whole = sum(map(_nbytes, variables))
    divided = sum(_nbytes(variable) for variable in variables if model_axis(variable) is not None)
    each = whole - divided + divided / devices
    share = f"{divided / max(whole, 1):.0%} are divided among {devices} devices"
    return f"Together {size(whole)}; {share}: {size(each)} on each."


def _nbytes(variable: Any) -> int:
    return math.prod(variable.shape) * jnp.dtype(variable.dtype).itemsize


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
