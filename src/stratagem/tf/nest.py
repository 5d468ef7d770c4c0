"""`tf.nest`: nested structures."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {
    "assert_same_structure": "keras.tree:assert_same_structure",
    "flatten": "keras.tree:flatten",
    "is_nested": "keras.tree:is_nested",
    "map_structure": "keras.tree:map_structure",
    "pack_sequence_as": "keras.tree:pack_sequence_as",
}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
