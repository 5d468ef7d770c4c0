"""Replacements for names and areas of TensorFlow that `stratagem.tf` does not have."""

from __future__ import annotations

from typing import Final

from stratagem.tf.repairs.areas import TABLE as _AREAS
from stratagem.tf.repairs.graphs import TABLE as _GRAPHS
from stratagem.tf.repairs.keras import TABLE as _KERAS
from stratagem.tf.repairs.operations import TABLE as _OPERATIONS
from stratagem.tf.repairs.training import TABLE as _TRAINING

INSTEAD: Final[dict[str, str]] = {
    name: repair
    for table in (_GRAPHS, _AREAS, _KERAS, _TRAINING, _OPERATIONS)
    for names, repair in table.items()
    for name in names.split()
}
"""For each name the repair. Names of `tf.compat.v1` stand here as `tf`'s."""
