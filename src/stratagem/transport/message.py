"""Messages between two tasks: a small header and arrays, each in a separate frame.

| frame    | bytes                                                                              |
| -------- | ---------------------------------------------------------------------------------- |
| first    | `STRG`, the version of this format (2 bytes), a JSON object (UTF-8)                |
| others   | the elements of one array each, in C order, little-endian                          |

The JSON object has `kind` (what is asked for, or answered), `id` (an answer repeats that of its request), `fields`
(anything JSON can hold), `memory` (the name of the shared memory for this request and its answer, with the room that
the arrays lie in, or null) and `arrays`: dtype and shape of each, and whether it lies in that room and has no frame.
Nothing here is ever unpickled.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import ml_dtypes
import numpy as np

from stratagem.core.errors import StratagemError
from stratagem.transport.memory import SharedMemory

DONE: Final = "done"
"""The kind of an answer."""

ERROR: Final = "error"
"""The kind of an answer that reports an error: fields `module`, `class` and `text`."""

VERSION: Final = 3
_PREFIX: Final = struct.Struct("!4sH")
_MAGIC: Final = b"STRG"

_DTYPES: Final[Mapping[str, np.dtype]] = {
    np.dtype(dtype).name: np.dtype(dtype)
    for dtype in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64"),
        *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
    )
}
"""What an array frame may hold: plain numbers only."""

_NAMES: Final[Mapping[np.dtype, str]] = {dtype: name for name, dtype in _DTYPES.items()}
"""NumPy makes a dtype's name anew each time (10 us)."""

_HEADER: Final = json.JSONEncoder(separators=(",", ":"))


class MessageError(StratagemError, ValueError):
    """The bytes are not a message of this version. Remedy: run the same version of Stratagem in every task."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a task accepts from others.

    Args:
        header_bytes: Longest first frame, in bytes.
        frame_bytes: Longest frame, in bytes; ZeroMQ ends a connection that announces a longer one, before it
            reserves memory for it.
        frames: Most frames of one message.
    """

    header_bytes: int = 4 << 20
    frame_bytes: int = 4 << 30
    frames: int = 1 << 16


@dataclass(frozen=True, slots=True)
class Message:
    """A request or an answer.

    Args:
        kind: What is asked for, or answered.
        fields: What JSON can hold.
        arrays: Arrays of numbers. Those of a received message may be read only, and keep its frames alive, or the room
            of the shared memory that they lie in.
        id: The number of the request; an answer has the same number.
        memory: In a received message, the name of the shared memory for it and its answer; None without one.

    Example:
        >>> frames = encode(Message("pull", {"names": ["w"]}, [np.arange(3.0)], id=7))
        >>> message = decode(frames)
        >>> message.kind, message.id, message.fields, message.arrays[0].tolist()
        ('pull', 7, {'names': ['w']}, [0.0, 1.0, 2.0])
    """

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    arrays: Sequence[np.ndarray] = ()
    id: int = 0
    memory: str | None = None


def encode(message: Message, memory: SharedMemory | None = None) -> list[Any]:
    """Return the frames of a message: bytes, then the memory of each array, without a copy where possible.

    Args:
        message: The message.
        memory: The shared memory for its arrays, as far as there is room.
    """
    arrays = [np.ascontiguousarray(array).reshape(np.shape(array)) for array in message.arrays]
    dtypes = [_dtype_name(array) for array in arrays]
    # `uint8` because the buffer protocol does not know bfloat16.
    contents = [array.reshape(-1).view(np.uint8) for array in arrays]
    room, lying = memory.put(contents) if memory else (0, [False] * len(arrays))
    header = {
        "kind": message.kind,
        "id": message.id,
        "fields": message.fields,
        "memory": memory and [memory.name, room],
        "arrays": [*zip(dtypes, (array.shape for array in arrays), lying, strict=True)],
    }
    text = _HEADER.encode(header).encode()
    travelling = [content.data for content, lies in zip(contents, lying, strict=True) if not lies]
    return [_PREFIX.pack(_MAGIC, VERSION) + text, *travelling]


def decode(
    frames: Sequence[Any], limits: Limits | None = None, memories: Mapping[str, SharedMemory] | None = None
) -> Message:
    """Read a message; everything in it may be hostile.

    Args:
        frames: Objects with a buffer.
        limits: The limits for a message.
        memories: The memories shared with other tasks, by name.

    Raises:
        MessageError: The frames are not a message of this version, or are beyond the limits.
    """
    limits = limits or Limits()
    buffers = [memoryview(frame).cast("B") for frame in frames]
    if not buffers or len(buffers) > limits.frames:
        raise _refused(f"A message has {len(buffers)} frames; 1 to {limits.frames} are accepted.")
    header = _read_header(buffers[0], limits)
    try:
        kind, number, fields = header["kind"], header["id"], header["fields"]
        place: Any = header["memory"] or (None, 0)
        memory, room = place
        if not (isinstance(kind, str) and type(number) is int and isinstance(fields, dict) and len(header) == 5):
            raise TypeError("a part has the wrong type")
        layouts = [_Layout.read(*described) for described in header["arrays"]]
        lying = [each.size for each in layouts if each.lies]
        if len(layouts) - len(lying) != len(buffers) - 1:
            raise TypeError(f"{len(layouts) - len(lying)} arrays are announced, but {len(buffers) - 1} came")
        travelled = iter(buffers[1:])
        taken = iter((memories or {})[memory].take(room, lying) if memory or lying else [])
        read = [each.array(next(taken if each.lies else travelled)) for each in layouts]
    except (KeyError, TypeError, ValueError) as error:
        raise _refused(f"The header of a message cannot be used: {error}.") from None
    return Message(kind, fields, read, number, memory)


def _read_header(buffer: memoryview, limits: Limits) -> dict[str, Any]:
    if not _PREFIX.size <= len(buffer) <= limits.header_bytes:
        raise _refused(f"A header has {len(buffer)} bytes; up to {limits.header_bytes} are accepted.")
    magic, version = _PREFIX.unpack_from(buffer)
    if magic != _MAGIC:
        raise _refused(f"A message begins with {magic!r}, not with {_MAGIC!r}.")
    if version != VERSION:
        raise _refused(f"A message has version {version}; this task uses version {VERSION}.")
    try:
        header = json.loads(bytes(buffer[_PREFIX.size :]))
    except (ValueError, RecursionError) as error:
        raise _refused(f"A header is not JSON: {type(error).__name__}.") from None
    if not isinstance(header, dict):
        raise _refused("A header is JSON, but not an object.")
    return header


@dataclass(frozen=True, slots=True)
class _Layout:
    """What a header says of an array."""

    dtype: np.dtype
    shape: list[int]
    lies: bool

    @classmethod
    def read(cls, dtype: Any, shape: Any, lies: Any) -> _Layout:
        if not (isinstance(dtype, str) and dtype in _DTYPES):
            raise TypeError(f"{dtype!r} is not a dtype of an array")
        if not (isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)):
            raise TypeError(f"{shape!r} is not a shape")
        return cls(_DTYPES[dtype], shape, lies is True)

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def array(self, content: Any) -> np.ndarray:
        if len(content) != self.size:
            raise TypeError(f"an array {self.dtype}{self.shape} has {len(content)} bytes")
        return np.ndarray(self.shape, self.dtype, content)


def _dtype_name(array: np.ndarray) -> str:
    name = _NAMES.get(array.dtype)
    if name is None:
        raise MessageError(f"An array has dtype {array.dtype}.", f"Send one of {', '.join(_DTYPES)}.")
    return name


def _refused(found: str) -> MessageError:
    remedy = "Run the same version of Stratagem in every task, and do not let other programs use its ports."
    return MessageError(found, "Its meaning is unknown, so it was refused.", remedy)
