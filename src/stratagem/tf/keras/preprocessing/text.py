"""`tf.keras.preprocessing.text`: Keras 2's, which Keras 3 still has."""

from __future__ import annotations

from typing import Final

from stratagem.tf.keras.namespace import lazy

_NAMES: Final = {
    "Tokenizer": "stratagem.tf.keras.compat:Tokenizer",
    "hashing_trick": "stratagem.tf.keras.compat:hashing_trick",
    "one_hot": "stratagem.tf.keras.compat:one_hot",
    "text_to_word_sequence": "stratagem.tf.keras.compat:text_to_word_sequence",
    "tokenizer_from_json": "stratagem.tf.keras.compat:tokenizer_from_json",
}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
