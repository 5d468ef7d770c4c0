"""`tf.strings`: text."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {
    "as_string": "stratagem.tf.tensors.texts:as_string",
    "bytes_split": "stratagem.tf.tensors.texts:bytes_split",
    "format": "stratagem.tf.tensors.texts:format",
    "join": "stratagem.tf.tensors.texts:join",
    "length": "stratagem.tf.tensors.texts:length",
    "lower": "stratagem.tf.tensors.texts:lower",
    "reduce_join": "stratagem.tf.tensors.texts:reduce_join",
    "regex_full_match": "stratagem.tf.tensors.texts:regex_full_match",
    "regex_replace": "stratagem.tf.tensors.texts:regex_replace",
    "split": "stratagem.tf.tensors.texts:split",
    "strip": "stratagem.tf.tensors.texts:strip",
    "substr": "stratagem.tf.tensors.texts:substr",
    "to_number": "stratagem.tf.tensors.texts:to_number",
    "unicode_decode": "stratagem.tf.tensors.texts:unicode_decode",
    "unicode_split": "stratagem.tf.tensors.texts:unicode_split",
    "upper": "stratagem.tf.tensors.texts:upper",
}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
