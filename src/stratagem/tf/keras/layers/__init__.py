"""`tf.keras.layers`: Keras's, and lookups of words that need no TensorFlow."""

from __future__ import annotations

from typing import Final

from stratagem.tf.keras.namespace import lazy

_NAMES: Final = {
    "CuDNNGRU": "keras.layers:GRU",
    "CuDNNLSTM": "keras.layers:LSTM",
    "IntegerLookup": "stratagem.data:IntegerLookup",
    "StringLookup": "stratagem.data:StringLookup",
    "TextVectorization": "stratagem.data:TextVectorization",
    "experimental": "stratagem.tf.keras.layers.experimental",
}
"""What is not as in Keras 3."""

__getattr__, __dir__ = lazy(__name__, _NAMES, behind="keras.layers")
