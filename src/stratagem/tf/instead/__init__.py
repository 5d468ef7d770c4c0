"""What to write in place of names of TensorFlow that are not here, or of whole areas."""

from __future__ import annotations

from typing import Final

from stratagem.tf.instead.areas import TABLE as _AREAS
from stratagem.tf.instead.graphs import TABLE as _GRAPHS
from stratagem.tf.instead.keras import TABLE as _KERAS
from stratagem.tf.instead.operations import TABLE as _OPERATIONS
from stratagem.tf.instead.training import TABLE as _TRAINING

INSTEAD: Final[dict[str, str]] = {
    name: repair
    for table in (_GRAPHS, _AREAS, _KERAS, _TRAINING, _OPERATIONS)
    for names, repair in table.items()
    for name in names.split()
}
"""For each name the repair. Names of `tf.compat.v1` stand here as `tf`'s."""
