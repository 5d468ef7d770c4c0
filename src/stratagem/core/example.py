"""The messages of `tf.train.Example`, made when they are first used, as only some programs need protobuf.

They live in a pool of their own, beside TensorFlow's where both are loaded.
https://www.tensorflow.org/tutorials/load_data/tfrecord#tftrainexample
"""

from __future__ import annotations

from functools import cache
from typing import Any

from stratagem.core import optional

MESSAGES = ("BytesList", "FloatList", "Int64List", "Feature", "Features", "Example")
"""The classes that `message` returns."""

_FILE = "stratagem/example.proto"
_LISTS = {"bytes_list": "BytesList", "float_list": "FloatList", "int64_list": "Int64List"}


def message(name: str) -> Any:
    """Return one of the classes `MESSAGES`.

    Raises:
        InputError: The package protobuf is not installed.

    Example:
        >>> feature = message("Feature")(int64_list=message("Int64List")(value=[3, -1]))
        >>> feature.SerializeToString().hex()
        '1a0d0a0b03ffffffffffffffffff01'
    """
    return _messages()[f"tensorflow.{name}"]


@cache
def _messages() -> dict[str, Any]:
    purpose = "tf.train.Example"
    descriptor = optional.load("google.protobuf.descriptor_pb2", "files", purpose)
    pool = optional.load("google.protobuf.descriptor_pool", "files", purpose).DescriptorPool()
    factory = optional.load("google.protobuf.message_factory", "files", purpose)
    pool.AddSerializedFile(_description(descriptor).SerializeToString())
    return factory.GetMessageClassesForFiles([_FILE], pool)


def _description(descriptor: Any) -> Any:
    """Return what https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/example declares."""
    kinds = descriptor.FieldDescriptorProto
    file = descriptor.FileDescriptorProto(name=_FILE, package="tensorflow", syntax="proto3")
    types = (kinds.TYPE_BYTES, kinds.TYPE_FLOAT, kinds.TYPE_INT64)
    for name, kind in zip(_LISTS.values(), types, strict=True):
        file.message_type.add(name=name).field.add(name="value", number=1, type=kind, label=kinds.LABEL_REPEATED)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, (name, message_name) in enumerate(_LISTS.items(), 1):
        field = {"name": name, "number": number, "type_name": f".tensorflow.{message_name}", "oneof_index": 0}
        feature.field.add(**field, type=kinds.TYPE_MESSAGE, label=kinds.LABEL_OPTIONAL)
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    for owner, name, number, kind, label in (
        (entry, "value", 2, "Feature", kinds.LABEL_OPTIONAL),
        (features, "feature", 1, "Features.FeatureEntry", kinds.LABEL_REPEATED),
        (file.message_type.add(name="Example"), "features", 1, "Features", kinds.LABEL_OPTIONAL),
    ):
        owner.field.add(name=name, number=number, type=kinds.TYPE_MESSAGE, type_name=f".tensorflow.{kind}", label=label)
    return file
