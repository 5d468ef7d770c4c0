"""The file of a checkpoint: its layout, and writing it so that it is there whole or not at all.

The layout is that of safetensors (https://github.com/huggingface/safetensors): eight bytes with the length of a JSON
header, the header, and the arrays one after another. Whatever opens safetensors opens a checkpoint, also
without Stratagem. The last array, `__crc32__`, is the CRC-32 of all bytes before it: a file that was
cut short or damaged anywhere does not pass for a checkpoint.

A file `NAME.index` lies beside it: programs of TensorFlow look for that before they restore, and would begin anew
without a word.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jax.numpy as jnp
import numpy as np

from stratagem.core.errors import CheckpointError, InputError
from stratagem.core.files import draft_of

SUFFIX: Final = ".safetensors"
"""Ending of a checkpoint's file, which the path that programs see does not have."""

_INDEX: Final = ".index"

_CHECKSUM: Final = "__crc32__"
_CHECKSUM_BYTES: Final = 4
_ENTRY: Final = "stratagem"
_DTYPES: Final = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
}
_CODES: Final = {name: code for code, name in _DTYPES.items()}


@dataclass(frozen=True)
class Contents:
    """The contents of a checkpoint's file.

    Args:
        metadata: The JSON beside the arrays.
        arrays: Arrays by name.
    """

    metadata: Any
    arrays: Mapping[str, np.ndarray]


def file_of(path: str | os.PathLike[str]) -> Path:
    """Return the file of the checkpoint that programs call `path`.

    Example:
        >>> file_of("folder/ckpt-3").name
        'ckpt-3.safetensors'
    """
    return Path(f"{path_of(path)}{SUFFIX}")


def path_of(path: str | os.PathLike[str]) -> str:
    """Return what programs call a checkpoint, given that or its file."""
    return os.fspath(path).removesuffix(SUFFIX)


def can_hold(dtype: np.dtype) -> bool:
    """Whether a checkpoint can hold arrays of a dtype."""
    return dtype.name in _CODES


def write(path: str, metadata: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a checkpoint. A reader, also one after a crash, sees all of it or nothing.

    Args:
        path: What programs call it; folders are made.
        metadata: JSON.
        arrays: Arrays in host memory by name, of any shapes.

    Raises:
        InputError: An array has a dtype that the layout cannot hold.
        CheckpointError: The file cannot be written.
    """
    # Large items first: each array then starts at a multiple of its item size.
    ordered = {name: arrays[name] for name in sorted(arrays, key=lambda name: -arrays[name].dtype.itemsize)}
    header = _header(metadata, ordered)
    with replacing(file_of(path)) as file:
        checksum = zlib.crc32(header)
        file.write(header)
        for array in ordered.values():
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            checksum = zlib.crc32(data, checksum)
            file.write(data)
        file.write(checksum.to_bytes(_CHECKSUM_BYTES, "little"))


def mark(path: str | os.PathLike[str]) -> None:
    """Write the file beside a checkpoint by which programs of TensorFlow find it, once the checkpoint is whole.

    Raises:
        CheckpointError: It cannot be written.
    """
    with replacing(_index_of(path)) as stream:
        stream.write(_words_of(path))


def remove(path: str | os.PathLike[str]) -> None:
    """Delete a checkpoint, and the file beside it first.

    Raises:
        OSError: It cannot be deleted.
    """
    _index_of(path).unlink(missing_ok=True)
    file_of(path).unlink(missing_ok=True)


def _index_of(path: str | os.PathLike[str]) -> Path:
    return Path(f"{path_of(path)}{_INDEX}")


def _words_of(path: str | os.PathLike[str]) -> bytes:
    """Return what the file beside a checkpoint says."""
    return f"{file_of(path).name}\n".encode()


def read(path: str) -> bytes:
    """Return the bytes of a checkpoint.

    Raises:
        CheckpointError: There is no such checkpoint, or it cannot be read.
    """
    try:
        return file_of(path).read_bytes()
    except OSError as error:
        hint = "Give the path that save() returned, or latest_checkpoint(folder)."
        index = _index_of(path)
        if index.exists() and index.read_bytes() != _words_of(path):
            hint = "It is one of TensorFlow: load it there, and save the model as .weights.h5 for Keras."
        raise CheckpointError(f"There is no checkpoint {path!r} to read: {error}.", hint) from error


def decode(blob: bytes, path: str) -> Contents:
    """Return the contents that the bytes of a checkpoint stand for. The arrays are views of `blob`.

    Args:
        blob: The bytes.
        path: What programs call the checkpoint, for error messages.

    Raises:
        CheckpointError: The bytes are not, or no longer, a checkpoint.
    """
    if not is_whole(blob):
        raise CheckpointError(
            f"The checkpoint {path!r} is damaged: {len(blob)} bytes, and the checksum at the end does not fit.",
            "Training would go on from wrong values. Nothing was restored.",
            "Restore an earlier one; latest_checkpoint(folder) finds the newest that is whole.",
        )
    end = 8 + int.from_bytes(blob[:8], "little")
    try:
        header = json.loads(blob[8:end])
        metadata = json.loads(header.pop("__metadata__")[_ENTRY])
        del header[_CHECKSUM]
        return Contents(metadata, {name: _array(blob, end, entry) for name, entry in header.items()})
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise CheckpointError(
            f"{file_of(path)} is not a checkpoint of Stratagem ({type(error).__name__}: {error}).",
            "It does not say which value belongs to which object.",
            "Restore a file that Checkpoint.save wrote.",
        ) from error


def is_whole(blob: bytes) -> bool:
    """Whether bytes end with the checksum of those before."""
    body = memoryview(blob)[:-_CHECKSUM_BYTES]
    return len(body) >= 8 and zlib.crc32(body) == int.from_bytes(blob[-_CHECKSUM_BYTES:], "little")


@contextlib.contextmanager
def replacing(file: Path) -> Iterator[Any]:
    """Open a file to be written anew; at the end it replaces the old one at once, and it survives a power cut.

    Args:
        file: The file. Folders are made.

    Raises:
        CheckpointError: The file cannot be written; the old one stays.
    """
    try:
        for left_over in file.parent.glob(f".{glob.escape(file.name)}.*.tmp"):  # of a process that was killed here
            left_over.unlink(missing_ok=True)
        with draft_of(file) as draft, draft.open("wb") as stream:
            yield stream
    except OSError as error:
        raise CheckpointError(
            f"{file} could not be written: {error}.",
            "The state of the program would be lost. Checkpoints written before are untouched.",
            "Make room on the disk, or choose a folder that this process may write to.",
        ) from error


def _header(metadata: str, arrays: Mapping[str, np.ndarray]) -> bytes:
    entries: dict[str, Any] = {"__metadata__": {_ENTRY: metadata}}
    end = 0
    for name, array in arrays.items():
        entries[name] = {"dtype": _code(name, array), "shape": array.shape, "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    entries[_CHECKSUM] = {"dtype": "U8", "shape": [_CHECKSUM_BYTES], "data_offsets": [end, end + _CHECKSUM_BYTES]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _code(name: str, array: np.ndarray) -> str:
    try:
        return _CODES[array.dtype.name]
    except KeyError:
        raise InputError(f"{name} has dtype {array.dtype.name}.", f"Use one of {', '.join(sorted(_CODES))}.") from None


def _array(blob: bytes, start: int, entry: Mapping[str, Any]) -> np.ndarray:
    first, last = entry["data_offsets"]
    dtype = np.dtype(getattr(jnp, _DTYPES[entry["dtype"]]))
    return np.frombuffer(memoryview(blob)[start + first : start + last], dtype).reshape(entry["shape"])
