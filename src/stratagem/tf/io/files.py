"""Whole files and tensors as bytes (`tf.io.write_file`, `tf.io.serialize_tensor`, ...)."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from stratagem.core.eager import EagerArray, EagerText
from stratagem.core.errors import InputError
from stratagem.data.files import decode
from stratagem.data.files.names import paths_of
from stratagem.tf.io import gfile


class TFRecordOptions:
    """Compression of a TFRecord file (`tf.io.TFRecordOptions`).

    Args:
        compression_type: "GZIP", "ZLIB", "" or None.
        tuning: TensorFlow's numbers for zlib; they have no effect.

    Example:
        >>> TFRecordOptions("GZIP").compression_type
        'GZIP'
    """

    def __init__(self, compression_type: str | None = None, **tuning: Any) -> None:
        self.compression_type = compression_type or None


def read_file(filename: Any, name: str | None = None) -> EagerText:
    """Return the contents of a file (`tf.io.read_file`).

    Args:
        filename: A name, or an element of `Dataset.list_files`; with `protocol://` through fsspec.
        name: Accepted as in TensorFlow.

    Raises:
        InputError: The file cannot be read.

    Example:
        >>> read_file("/dev/null")
        b''
    """
    (path,) = paths_of(filename)
    if "://" not in path:
        return EagerText(decode.read_file(path))
    with gfile.GFile(path, "rb") as file:
        return EagerText(file.read())


def write_file(filename: Any, contents: Any, name: str | None = None) -> None:
    """Write a file, and make its folders (`tf.io.write_file`).

    Args:
        filename: The name of the file.
        contents: Bytes or text, or an array without axes that holds either.
        name: Accepted as in TensorFlow.

    Example:
        >>> write_file(getfixture("tmp_path") / "a" / "b", "words")
        >>> gfile.GFile(getfixture("tmp_path") / "a" / "b", "rb").read()
        b'words'
    """
    (path,) = paths_of(filename)
    contents = np.asarray(contents, object).item()
    folder = path.rpartition("/")[0]
    if folder:
        gfile.makedirs(folder)
    with gfile.GFile(path, "wb") as file:
        file.write(contents.encode() if isinstance(contents, str) else contents)


def matching_files(pattern: Any, name: str | None = None) -> EagerArray:
    """Return the files that match a pattern or one of several, sorted (`tf.io.matching_files`).

    Returns:
        An array of bytes, of shape (files,).

    Example:
        >>> matching_files("/dev/nul*").tolist()
        [b'/dev/null']
    """
    return np.array([path.encode() for path in gfile.glob(pattern)], object).view(EagerArray)


def serialize_tensor(tensor: Any, name: str | None = None) -> EagerText:
    """Return an array as bytes that `parse_tensor` reads (`tf.io.serialize_tensor`).

    The bytes have NumPy's format, not TensorFlow's.

    Args:
        tensor: Numbers or booleans, of any shape.
        name: Accepted as in TensorFlow.

    Example:
        >>> parse_tensor(serialize_tensor([1.5, 2.0]), "float64").tolist()
        [1.5, 2.0]
    """
    stream = io.BytesIO()
    np.save(stream, np.asarray(tensor), allow_pickle=False)
    return EagerText(stream.getvalue())


def parse_tensor(serialized: Any, out_type: Any, name: str | None = None) -> EagerArray:
    """Return the array whose bytes `serialize_tensor` returned (`tf.io.parse_tensor`).

    Args:
        serialized: The bytes.
        out_type: The dtype that the program expects.
        name: Accepted as in TensorFlow.

    Raises:
        InputError: The bytes do not come from `serialize_tensor`, or hold another dtype.

    Example:
        >>> parse_tensor(serialize_tensor(np.arange(3)), "int64").tolist()
        [0, 1, 2]
    """
    wanted = np.dtype(getattr(out_type, "as_numpy_dtype", out_type))
    try:
        found = np.load(io.BytesIO(np.asarray(serialized, object).item()), allow_pickle=False)
    except (ValueError, EOFError, TypeError) as error:
        raise InputError(
            f"parse_tensor cannot read the bytes: {error}",
            "TensorFlow's own serialize_tensor writes another format, which only TensorFlow reads.",
            "Write the records again with stratagem's serialize_tensor, or store tensor.tobytes() and read it with "
            "tf.io.decode_raw.",
        ) from None
    if found.dtype != wanted:
        raise InputError(
            f"parse_tensor was asked for {wanted}, but the bytes hold {found.dtype}.",
            "The numbers would differ from those that were written.",
            f"Write out_type=tf.{found.dtype}.",
        )
    return found.view(EagerArray)
