"""The file of a checkpoint: its layout, and writing it so that it is there whole or not at all.

The layout is that of safetensors (https://github.com/huggingface/safetensors): eight bytes with the length of a JSON
header, the header, and the arrays one after another. Whatever opens safetensors opens a checkpoint, also
without Stratagem. The last array, `__crc32__`, is the CRC-32 of all bytes before it: a file that was
cut short or damaged anywhere does not pass for a checkpoint.

A file `NAME.index` lies beside it: programs of TensorFlow look for that before they restore, and would begin anew
without a word.

Of variables that rest in shards of several workers, each worker writes its blocks to a file of its own
(`shard_files`). The checkpoint's file lists them, and is written last. The names of these files hold the name of the
attempt, so that no two attempts mix.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jax.numpy as jnp
import numpy as np

from stratagem.checkpoint.file_names import file_of, path_of, remove_shards
from stratagem.core.errors import CheckpointError, InputError
from stratagem.core.files import draft_of, files_in

_INDEX: Final = ".index"

_CHECKSUM: Final = "__crc32__"
_CHECKSUM_BYTES: Final = 4
_READ_BYTES: Final = 1 << 20
_MOST_HEADER: Final = 1 << 30
_ENTRY: Final = "stratagem"
_SHARDS: Final = "shards"
_SHARD: Final = "shard"
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
        arrays: Arrays by name. Of those that lie in several files, `shard_files.Divided`.
        shards: The JSON that says what lies in files of workers, and where; None for nothing.
    """

    metadata: Any
    arrays: Mapping[str, Any]
    shards: Any = None


def can_hold(dtype: np.dtype) -> bool:
    """Whether a checkpoint can hold arrays of a dtype."""
    return dtype.name in _CODES


def write(path: str, metadata: str, arrays: Mapping[str, np.ndarray], shards: Mapping[str, Any] | None = None) -> None:
    """Write a checkpoint. A reader, also one after a crash, sees all of it or nothing.

    Args:
        path: What programs call it; folders are made.
        metadata: JSON.
        arrays: Arrays in host memory by name, of any shapes.
        shards: What lies in files of workers, which are there already, under "attempt" their attempt; None for nothing.

    Raises:
        InputError: An array has a dtype that the layout cannot hold.
        CheckpointError: The file cannot be written.
    """
    listed = {} if shards is None else {_SHARDS: json.dumps(shards)}
    _write_file(file_of(path), {_ENTRY: metadata, **listed}, arrays)
    remove_shards(path, keep=None if shards is None else shards["attempt"])


def write_shard(file: Path, said: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write the file of one worker.

    Args:
        file: It; see `shard_file`.
        said: What it is: see `shard_said`.
        arrays: The worker's blocks in host memory by name.

    Raises:
        InputError: An array has a dtype that the layout cannot hold.
        CheckpointError: The file cannot be written.
    """
    _write_file(file, {_SHARD: json.dumps(said)}, arrays)


def shard_said(header: Mapping[str, Any]) -> Any:
    """Return what `write_shard` was told, given the header of a file."""
    return json.loads(header["__metadata__"][_SHARD])


def _write_file(file: Path, metadata: Mapping[str, str], arrays: Mapping[str, np.ndarray]) -> None:
    # Large items first: each array then starts at a multiple of its item size.
    ordered = {name: arrays[name] for name in sorted(arrays, key=lambda name: -arrays[name].dtype.itemsize)}
    header = _header(metadata, ordered)
    with replacing(file) as stream:
        checksum = zlib.crc32(header)
        stream.write(header)
        for array in ordered.values():
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            checksum = zlib.crc32(data, checksum)
            stream.write(data)
        stream.write(checksum.to_bytes(_CHECKSUM_BYTES, "little"))


def mark(path: str | os.PathLike[str]) -> None:
    """Write the file beside a checkpoint by which programs of TensorFlow find it, once the checkpoint is whole.

    Raises:
        CheckpointError: It cannot be written.
    """
    with replacing(_index_of(path)) as stream:
        stream.write(_words_of(path))


def remove(path: str | os.PathLike[str]) -> None:
    """Delete a checkpoint, the file beside it first, those of workers last: what is listed by a file is there.

    Raises:
        OSError: It cannot be deleted.
    """
    _index_of(path).unlink(missing_ok=True)
    file_of(path).unlink(missing_ok=True)
    remove_shards(path)


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
            hint = (
                "It is a checkpoint of TensorFlow. Load it in TensorFlow, and save the model as .weights.h5 for Keras."
            )
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
        said = header.pop("__metadata__")
        metadata, shards = json.loads(said[_ENTRY]), json.loads(said.get(_SHARDS, "null"))
        del header[_CHECKSUM]
        return Contents(metadata, {name: _array(blob, end, entry) for name, entry in header.items()}, shards)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise CheckpointError(
            f"{file_of(path)} is not a checkpoint of Stratagem ({type(error).__name__}: {error}).",
            "The file does not say which value belongs to which object.",
            "Restore a file that Checkpoint.save wrote.",
        ) from error


def is_whole(blob: bytes) -> bool:
    """Whether bytes end with the checksum of those before."""
    body = memoryview(blob)[:-_CHECKSUM_BYTES]
    return len(body) >= 8 and zlib.crc32(body) == int.from_bytes(blob[-_CHECKSUM_BYTES:], "little")


def fault_in(file: Path) -> str | None:
    """Return what is wrong with a file as a whole, without holding all of it in memory; None for nothing."""
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            checksum, left = 0, size - _CHECKSUM_BYTES
            while left > 0 and (data := stream.read(min(left, _READ_BYTES))):
                checksum, left = zlib.crc32(data, checksum), left - len(data)
            if size >= 8 + _CHECKSUM_BYTES and checksum == int.from_bytes(stream.read(), "little"):
                return None
    except OSError as error:
        return f"cannot be read ({error})"
    return f"is damaged ({size} bytes, the checksum does not fit)"


def header_in(stream: io.BufferedIOBase) -> tuple[dict[str, Any], int]:
    """Return the header of a file that is whole, and where its arrays begin.

    Args:
        stream: The file, at its beginning.

    Raises:
        ValueError: It is none.
    """
    length = int.from_bytes(stream.read(8), "little")
    text = stream.read(min(length, _MOST_HEADER))
    return json.loads(text), 8 + length


def shards_in(file: Path) -> Any:
    """Return the JSON that says what lies in files of workers; None for nothing, or in a file that is no checkpoint."""
    try:
        with file.open("rb") as stream:
            return json.loads(header_in(stream)[0]["__metadata__"].get(_SHARDS, "null"))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


@contextlib.contextmanager
def replacing(file: Path) -> Iterator[Any]:
    """Open a file to be written anew; at the end it replaces the old one at once, and it survives a power cut.

    Args:
        file: The file. Folders are made.

    Raises:
        CheckpointError: The file cannot be written; the old one stays.
    """
    try:
        for left_over in files_in(file.parent, f".{file.name}.", ".tmp"):  # of a process that was killed here
            left_over.unlink(missing_ok=True)
        with draft_of(file) as draft, draft.open("wb") as stream:
            yield stream
    except OSError as error:
        raise CheckpointError(
            f"{file} could not be written: {error}.",
            "The state of the program would be lost. Checkpoints written before are untouched.",
            "Make room on the disk, or choose a folder that this process may write to.",
        ) from error


def _header(metadata: Mapping[str, str], arrays: Mapping[str, np.ndarray]) -> bytes:
    entries: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, array in arrays.items():
        entries[name] = {
            "dtype": code_of(name, array.dtype),
            "shape": array.shape,
            "data_offsets": [end, end + array.nbytes],
        }
        end += array.nbytes
    entries[_CHECKSUM] = {"dtype": "U8", "shape": [_CHECKSUM_BYTES], "data_offsets": [end, end + _CHECKSUM_BYTES]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def code_of(name: str, dtype: np.dtype) -> str:
    """Return what the layout calls a dtype.

    Args:
        name: Of an array, for the message.
        dtype: Its dtype.

    Raises:
        InputError: The layout cannot hold it.
    """
    try:
        return _CODES[dtype.name]
    except KeyError:
        raise InputError(f"{name} has dtype {dtype.name}.", f"Use one of {', '.join(sorted(_CODES))}.") from None


def dtype_of(code: str) -> np.dtype:
    """Return the dtype that the layout calls so.

    Raises:
        KeyError: There is none.
    """
    return np.dtype(getattr(jnp, _DTYPES[code]))


def _array(blob: bytes, start: int, entry: Mapping[str, Any]) -> np.ndarray:
    first, last = entry["data_offsets"]
    view = memoryview(blob)[start + first : start + last]
    return np.frombuffer(view, dtype_of(entry["dtype"])).reshape(entry["shape"])
