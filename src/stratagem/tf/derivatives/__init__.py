"""Functions with TensorFlow's derivatives. `rules` says why and how; tests/unit/tf/operations holds them to that."""

from __future__ import annotations

from typing import Final

from stratagem.tf.derivatives import axes, numbers
from stratagem.tf.derivatives.axes import *  # noqa: F403
from stratagem.tf.derivatives.losses import *  # noqa: F403
from stratagem.tf.derivatives.numbers import *  # noqa: F403
from stratagem.tf.derivatives.rules import *  # noqa: F403
from stratagem.tf.derivatives.rules import Function
from stratagem.tf.derivatives.special import *  # noqa: F403

OF_NUMPY: Final[dict[str, Function]] = {
    "abs": numbers.absolute,
    "absolute": numbers.absolute,
    "arccos": numbers.acos,
    "arccosh": numbers.acosh,
    "arcsin": numbers.asin,
    "arctan": numbers.atan,
    "arctan2": numbers.atan2,
    "arctanh": numbers.atanh,
    "clip": numbers.clip,
    "floor_divide": numbers.floordiv,
    "log": numbers.log,
    "log1p": numbers.log1p,
    "maximum": numbers.maximum,
    "minimum": numbers.minimum,
    "mod": numbers.floormod,
    "nextafter": numbers.nextafter,
    "power": numbers.power,
    "prod": axes.prod,
    "reciprocal": numbers.reciprocal,
    "sign": numbers.sign,
    "sqrt": numbers.sqrt,
    "tan": numbers.tan,
    "true_divide": numbers.divide,
}
"""The functions that NumPy has too, by its names."""
