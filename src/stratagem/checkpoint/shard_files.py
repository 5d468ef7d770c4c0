"""Arrays that lie in files of several workers: reading of rows without the rest.

A checkpoint's file lists such arrays. Each is a grid of equal blocks, of which a worker wrote those that it held. Its
file has the same layout as a checkpoint's own (`storage`); in it, block 3 of the array `a/b` in the order of rows is
called `a/b/3`. A file is checked against its checksum before anything of it is used.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np

from stratagem.checkpoint import file_names, storage
from stratagem.checkpoint.blocks import Blocks, Box, block_name, from_json
from stratagem.checkpoint.storage import Contents
from stratagem.core.errors import CheckpointError

_MOST_FILES: Final = 1 << 20


class ShardFile:
    """The file of one worker.

    Args:
        file: Where it lies.
        said: What it says of itself.
    """

    def __init__(self, file: Path, said: Mapping[str, Any]) -> None:
        self.file = file
        self.is_checked = False
        self._said = dict(said)
        self._received: bytes | None = None
        self._header: dict[str, Any] | None = None
        self._start = 0

    def receive(self, data: bytes) -> None:
        """Take the file's bytes from a worker that can read it."""
        self._received = data

    def check(self) -> None:
        """See that the file is whole, and is the one that was written with the checkpoint.

        Raises:
            CheckpointError: It is not; the message names it.
        """
        if self.is_checked:
            return
        if (fault := self._fault()) is not None:
            raise CheckpointError(
                f"{self.file}, one worker's part of a checkpoint, {fault}.",
                "A part of the values is lost with this file. Nothing was restored.",
                "Put a copy of the file back, or restore an earlier checkpoint; latest_checkpoint(folder) finds the "
                "newest that is whole.",
            )
        self._read_header()
        self.trust()

    def trust(self) -> None:
        """Take the file as whole, as another worker has checked it."""
        self.is_checked = True

    def read(self, name: str, box: Box) -> np.ndarray:
        """Return a part of a block. Of the first axis only the rows that are asked for are read.

        Args:
            name: What the block is called.
            box: Which part.

        Raises:
            CheckpointError: The file is damaged or gone.
        """
        self.check()
        header = self._header or self._read_header()
        try:
            entry = header[name]
            dtype, shape = storage.dtype_of(entry["dtype"]), entry["shape"]
            first, last = entry["data_offsets"]
            rows = box[0] if box else slice(0, 1)
            per_row = (last - first) // (shape[0] if shape else 1)
            data = np.empty(per_row * (rows.stop - rows.start), np.uint8)
            with self._opened() as stream:
                stream.seek(self._start + first + per_row * rows.start)
                if stream.readinto(data.data) != data.nbytes:
                    raise OSError("it is shorter than it says")
            return data.view(dtype).reshape(-1, *shape[1:])[(slice(None), *box[1:])].reshape(_shape_of(box))
        except OSError as error:
            raise CheckpointError(
                f"{self.file}, one worker's part of a checkpoint, cannot be read: {error}.",
                "A part of the values is lost with this file.",
                "Make sure that no process deletes checkpoints during a restore, and restore the checkpoint again.",
            ) from error
        except (ValueError, LookupError, TypeError) as error:
            raise _not_one(self.file, error) from error

    def _fault(self) -> str | None:
        if self._received is None:
            return storage.fault_in(self.file)
        return None if storage.is_whole(self._received) else "arrived damaged"

    def _read_header(self) -> dict[str, Any]:
        try:
            with self._opened() as stream:
                header, self._start = storage.header_in(stream)
            if storage.shard_said(header) != self._said:
                raise ValueError(f"it is {storage.shard_said(header)}, and not {self._said}")
            self._header = header
            return header
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise _not_one(self.file, error) from error

    def _opened(self) -> io.BufferedIOBase:
        return self.file.open("rb") if self._received is None else io.BytesIO(self._received)


class Divided:
    """An array that lies in several files; it is read when it is asked for, and no more of it than that.

    Args:
        name: What it is called.
        blocks: Its blocks.
        files: The files of all workers.
    """

    def __init__(self, name: str, blocks: Blocks, files: Sequence[ShardFile]) -> None:
        self.dtype, self.shape = blocks.dtype, blocks.shape
        self._name, self._blocks, self._files = name, blocks, files

    def __getitem__(self, index: tuple[slice, ...]) -> np.ndarray:
        """Return a part: a slice for each axis."""
        limits = [part.indices(length) for part, length in zip(index, self.shape, strict=True)]
        wanted = tuple(slice(start, stop) for start, stop, _ in limits)
        result: np.ndarray | None = None
        for number, box in enumerate(self._blocks.boxes()):
            common = [slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(wanted, box, strict=True)]
            if any(part.start >= part.stop for part in common):
                continue
            name, file = block_name(self._name, number), self._files[self._blocks.workers[number]]
            part = file.read(name, _within(common, box))
            if part.shape == _shape_of(wanted):
                return part
            result = np.empty(_shape_of(wanted), self.dtype) if result is None else result
            result[_within(common, wanted)] = part
        return np.empty(_shape_of(wanted), self.dtype) if result is None else result

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        whole = self[(slice(None),) * len(self.shape)]
        return whole if dtype is None else whole.astype(dtype, copy=False)


def placed_like(value: Any, sharding: jax.sharding.Sharding) -> jax.Array:
    """Put an array on devices, of which each gets its part. Of one that is read, no other part is read.

    Args:
        value: An array in memory, or `Divided`.
        sharding: Where each part goes.
    """
    return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])


def files_of(shards: Any, path: str) -> list[ShardFile]:
    """Return the files of workers of a checkpoint.

    Args:
        shards: What the checkpoint's file says of them; None for nothing.
        path: What programs call it.

    Raises:
        CheckpointError: It says what cannot be.
    """
    if shards is None:
        return []
    try:
        attempt, count = shards["attempt"], int(shards["files"])
        if not isinstance(attempt, str) or not 0 < count <= _MOST_FILES:
            raise ValueError(f"it has {count} files of the attempt {attempt!r}")
        said = [{"attempt": attempt, "number": number, "files": count} for number in range(count)]
        files = [file_names.shard_file(path, attempt, number, count) for number in range(count)]
        if any(file_names.owner_of_shard(file.name) != os.path.basename(file_names.path_of(path)) for file in files):
            raise ValueError(f"its attempt is {attempt!r}")
    except (ValueError, LookupError, TypeError) as error:
        raise _not_one(file_names.file_of(path), error) from error
    return [ShardFile(file, each) for file, each in zip(files, said, strict=True)]


def with_divided(contents: Contents, files: Sequence[ShardFile], path: str) -> Contents:
    """Return contents with the arrays that lie in files of workers.

    Args:
        contents: Those of the checkpoint's own file.
        files: The others.
        path: What programs call it, for messages.

    Raises:
        CheckpointError: Its own file says of the others what cannot be.
    """
    if contents.shards is None:
        return contents
    try:
        listed = from_json(contents.shards)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise _not_one(file_names.file_of(path), error) from error
    divided = {name: Divided(name, blocks, files) for name, blocks in listed.items()}
    return replace(contents, arrays={**contents.arrays, **divided})


def load(path: str) -> Contents:
    """Return the contents of a checkpoint. Files of workers are checked when something in them is first read.

    Args:
        path: What programs call it.

    Raises:
        CheckpointError: It is missing or damaged.
    """
    contents = storage.decode(storage.read(path), path)
    return with_divided(contents, files_of(contents.shards, path), path)


def load_whole(path: str) -> Contents:
    """Return the contents of a checkpoint, all of whose files were checked; see `load`."""
    contents = storage.decode(storage.read(path), path)
    files = files_of(contents.shards, path)
    for file in files:
        file.check()
    return with_divided(contents, files, path)


def fault_in(path: str) -> str | None:
    """Return what is wrong with a checkpoint, its own file or one of a worker; None for nothing."""
    fault = storage.fault_in(file_names.file_of(path))
    if fault is not None:
        return fault
    try:
        for file in files_of(storage.shards_in(file_names.file_of(path)), path):
            file.check()
    except CheckpointError as error:
        return f"is damaged: {str(error).splitlines()[0]}"
    return None


def _within(part: Sequence[slice], outer: Sequence[slice]) -> Box:
    """Return where a part is, counted from the beginning of what it is in."""
    return tuple(slice(a.start - b.start, a.stop - b.start) for a, b in zip(part, outer, strict=True))


def _shape_of(box: Sequence[slice]) -> tuple[int, ...]:
    return tuple(part.stop - part.start for part in box)


def _not_one(file: Path, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"{file} is not a part of this checkpoint of Stratagem ({type(error).__name__}: {error}).",
        "Values would be put together that were not saved together.",
        "Restore a checkpoint whose files were all written by one Checkpoint.save.",
    )
