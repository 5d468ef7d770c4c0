"""`tf.compat.v1.python_io`: the older place of TFRecord files."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {
    "TFRecordOptions": "stratagem.tf.io.files:TFRecordOptions",
    "TFRecordWriter": "stratagem.io:TFRecordWriter",
    "tf_record_iterator": "stratagem.tf.compat.v1.iterators:tf_record_iterator",
}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
