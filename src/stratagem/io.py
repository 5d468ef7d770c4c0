"""Functions that read, write and parse records and images (`tf.io`)."""

from stratagem.data.files.decode import decode_image, decode_jpeg, decode_png, decode_raw, read_file
from stratagem.data.files.example import (
    FixedLenFeature,
    FixedLenSequenceFeature,
    RaggedFeature,
    VarLenFeature,
    parse_example,
    parse_single_example,
)
from stratagem.data.files.writers import TFRecordWriter

__all__ = [
    "FixedLenFeature",
    "FixedLenSequenceFeature",
    "RaggedFeature",
    "TFRecordWriter",
    "VarLenFeature",
    "decode_image",
    "decode_jpeg",
    "decode_png",
    "decode_raw",
    "parse_example",
    "parse_single_example",
    "read_file",
]
