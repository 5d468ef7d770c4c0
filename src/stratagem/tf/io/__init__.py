"""`tf.io`: record files, what is in them, files."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {
    "TFRecordOptions": "stratagem.tf.io.files:TFRecordOptions",
    "decode_csv": "stratagem.tf.io.text:decode_csv",
    "gfile": "stratagem.tf.io.gfile",
    "matching_files": "stratagem.tf.io.files:matching_files",
    "parse_tensor": "stratagem.tf.io.files:parse_tensor",
    "read_file": "stratagem.tf.io.files:read_file",
    "serialize_tensor": "stratagem.tf.io.files:serialize_tensor",
    "write_file": "stratagem.tf.io.files:write_file",
    **{
        name: f"stratagem.tf.io.images:{name}"
        for name in ("encode_jpeg", "encode_png", "extract_jpeg_shape", "is_jpeg", "decode_bmp", "decode_gif")
    },
}
"""What is not in `stratagem.io`."""

__getattr__, __dir__ = lazy(__name__, _NAMES, behind="stratagem.io")
