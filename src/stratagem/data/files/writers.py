"""Writers of record files. A file gets its name when it is whole, so that nobody reads half a file."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from stratagem.core import optional
from stratagem.core.errors import InputError, UsageError
from stratagem.core.files import draft_of
from stratagem.core.log import announce
from stratagem.data.files.byte_file import checked_compression, compressor
from stratagem.data.files.tfrecord import framed


class TFRecordWriter:
    """Writes records to a TFRecord file (`tf.io.TFRecordWriter`).

    Unlike TensorFlow's writer, it writes to a temporary file, which gets its name in `close`. If the program fails or
    is killed before that, an old file is kept.

    Args:
        path: The file. Missing folders are created.
        options: "GZIP", "ZLIB", or None; or an object with the attribute `compression_type` (`tf.io.TFRecordOptions`).

    Raises:
        InputError: The file cannot be written, or the compression is unknown.

    Example:
        >>> with TFRecordWriter(getfixture("tmp_path") / "digits.tfrecord", "GZIP") as writer:
        ...     writer.write(b"three")
    """

    def __init__(self, path: str | os.PathLike[str], options: Any = None) -> None:
        compression = checked_compression(getattr(options, "compression_type", options))
        self._path = Path(path)
        self._compressor = None if compression is None else compressor(compression)
        with _explained(self._path), ExitStack() as stack:
            draft = stack.enter_context(draft_of(self._path))
            self._file = stack.enter_context(draft.open("wb"))
            self._finish = stack.pop_all()
        self._forgotten = weakref.finalize(self, _drop, self._path, self._finish)

    def write(self, record: bytes) -> None:
        """Append a record.

        Raises:
            InputError: The record is not bytes, or the disk is full.
            UsageError: The writer is closed.
        """
        if self._file.closed:
            raise UsageError(
                f"A record was written to {self._path} after close().",
                "Write inside `with TFRecordWriter(...) as writer:`.",
            )
        frame = framed(_checked(record))
        with _explained(self._path):
            self._file.write(frame if self._compressor is None else self._compressor.compress(frame))

    def flush(self) -> None:
        """Pass the written data to the system. The file still gets its name only in `close`."""
        with _explained(self._path):
            self._file.flush()

    def close(self) -> None:
        """Complete the file. A second call does nothing."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Complete the file, or drop it after an exception."""
        if self._file.closed:
            return
        self._forgotten.detach()
        if error is not None:
            self._finish.__exit__(kind, error, traceback)
            return
        with _explained(self._path), self._finish:
            if self._compressor is not None:
                self._file.write(self._compressor.flush())


def _drop(path: Path, finish: ExitStack) -> None:
    finish.__exit__(GeneratorExit, GeneratorExit(), None)
    announce(
        f"{path} was not written: its TFRecordWriter was never closed, and the records are lost. "
        "Write inside `with TFRecordWriter(...) as writer:`, or call close()."
    )


def write_tfrecord(path: str | os.PathLike[str], records: Iterable[bytes], compression_type: str | None = None) -> None:
    """Write a TFRecord file. It gets its name when all records are written.

    Args:
        path: The file. Missing folders are created.
        records: The records, as bytes. `SerializeToString()` turns a `stratagem.train.Example` into one.
        compression_type: "GZIP", "ZLIB", or None. Only uncompressed files can be read by position.

    Raises:
        InputError: The file cannot be written, the compression is unknown, or a record is not bytes.

    Example:
        >>> write_tfrecord(getfixture("tmp_path") / "digits.tfrecord", [b"three", b"four"])
    """
    with TFRecordWriter(path, compression_type) as writer:
        for record in records:
            writer.write(record)


def write_array_record(path: str | os.PathLike[str], records: Iterable[bytes], options: str = "group_size:1") -> None:
    """Write an ArrayRecord file. It gets its name when all records are written.

    Args:
        path: The file. Missing folders are created.
        records: The records.
        options: Options of `ArrayRecordWriter`, separated by commas. Records are compressed in groups. Reading one
            record decompresses its whole group, so a group of 1 is best for a shuffle. "uncompressed" reads twice as
            fast if records are small or cannot be compressed, such as JPEG images.

    Raises:
        InputError: The file cannot be written, the options are unknown, or a record is not bytes.

    Example:
        >>> write_array_record(getfixture("tmp_path") / "digits.arrayrecord", [b"three", b"four"])
    """
    library = optional.load("array_record.python.array_record_module", "files", "An ArrayRecord file")
    with _explained(Path(path)), draft_of(Path(path)) as draft:
        try:
            writer = library.ArrayRecordWriter(str(draft), options)
        except ValueError as error:
            raise InputError(
                f"options is {options!r}: {error}.",
                'Write options such as "group_size:1" or "group_size:1,uncompressed".',
            ) from None
        try:
            for record in records:
                writer.write(_checked(record))
        finally:
            writer.close()


def _checked(record: Any) -> bytes:
    if isinstance(record, bytes | bytearray | memoryview):
        return bytes(record)
    raise InputError(
        f"A record is of type {type(record).__name__}.",
        "Write bytes: example.SerializeToString(), text.encode(), or array.tobytes().",
    )


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn the system's errors, and those of the ArrayRecord library, into ours."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"{path} cannot be written: {error}.",
            "Records would be missing. An old file of that name was not changed.",
            "Make room on the disk, or choose a folder that this process may write to.",
        ) from error
