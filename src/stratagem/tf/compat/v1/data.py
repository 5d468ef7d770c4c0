"""`tf.compat.v1.data`: `tf.data`, and iterators as functions."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {
    name: f"stratagem.tf.compat.v1.iterators:{name}"
    for name in ("get_output_classes", "get_output_shapes", "get_output_types", "make_one_shot_iterator")
}
"""What is not in `tf.data`."""

__getattr__, __dir__ = lazy(__name__, _NAMES, behind="stratagem.tf.data")
