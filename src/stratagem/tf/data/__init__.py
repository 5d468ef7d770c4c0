"""`tf.data`: the datasets of `stratagem.data`."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {
    "Iterator": "stratagem.data:DatasetIterator",
    "NumpyIterator": "stratagem.data:DatasetIterator",
    "Options": "stratagem.tf.data.options:Options",
    "ThreadingOptions": "stratagem.tf.data.options:ThreadingOptions",
    "experimental": "stratagem.tf.data.experimental",
}
"""What is not as in `stratagem.data`."""

__getattr__, __dir__ = lazy(__name__, _NAMES, behind="stratagem.data")
