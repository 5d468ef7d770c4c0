"""`tf.keras.preprocessing.sequence`: Keras 2's, which Keras 3 still has."""

from __future__ import annotations

from typing import Final

from stratagem.tf.keras.namespace import lazy

_NAMES: Final = {
    "TimeseriesGenerator": "stratagem.tf.keras.compat:TimeseriesGenerator",
    "make_sampling_table": "stratagem.tf.keras.compat:make_sampling_table",
    "skipgrams": "stratagem.tf.keras.compat:skipgrams",
}
"""What is not as in Keras 3."""

__getattr__, __dir__ = lazy(__name__, _NAMES, behind="keras.preprocessing.sequence")
