"""Elements of any dataset in a file: what `save`, `load`, `snapshot` and `cache(filename)` write and read.

A file has the elements one after another, then their ends and checksums, a description of an element as JSON, and last
the sizes of these. So it is read by position: a worker reads the rows that it needs. It comes into being under another
name and is complete when it has its own, so a program that is killed, or several that write the same, leave no part.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import struct
import tempfile
import weakref
import zlib
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

import numpy as np

from stratagem.core.errors import InputError
from stratagem.data import check
from stratagem.data.blocks import Block, HeldBlock
from stratagem.data.files.byte_file import ByteFile
from stratagem.data.files.source import Files, FileSource, Take
from stratagem.data.nodes import Key, Node, Stream
from stratagem.data.sources import column_of
from stratagem.data.specs import TensorSpec, spec_of
from stratagem.data.structure import Composite, Tree, component_names, flatten, objects

FILE: Final = "elements.stratagem"
"""Name of the file in a folder that `save` or `snapshot` was given."""

_MAGIC: Final = b"stratagem elements 1\n"
_TAIL: Final = struct.Struct("<QQI")
"""Number of elements, bytes of the description, checksum of all that stands between the elements and this."""


class Writer:
    """Writes elements to a file. Where `complete` is not reached, nothing is left.

    Args:
        path: The file. Its folder is made.
        packed: Whether elements are compressed.

    Raises:
        InputError: It cannot be written.
    """

    def __init__(self, path: str, packed: bool) -> None:
        self._path = path
        self._packed = packed
        folder = os.path.dirname(path) or "."
        try:
            os.makedirs(folder, exist_ok=True)
            descriptor, self._partial = tempfile.mkstemp(".partial", os.path.basename(path), folder)
        except OSError as error:
            raise _unwritable(path, error) from None
        self._file = os.fdopen(descriptor, "wb")
        self._discard = weakref.finalize(self, _discard, self._file, self._partial)
        self._file.write(_MAGIC)
        self._place = len(_MAGIC)
        self._ends: list[int] = []
        self._checksums: list[int] = []
        self._spec: Tree = None

    def add(self, element: Tree) -> None:
        """Write an element.

        Raises:
            InputError: It is built otherwise than those before, or cannot be stored; or the disk is full.
        """
        leaves, _ = flatten(element)
        if any(isinstance(leaf, Composite) for leaf in leaves):
            raise InputError(
                "A dataset of datasets, such as window() makes, was to be stored.",
                "Write flat_map(lambda window: window.batch(size)) first.",
            )
        self._spec = self._admitted(spec_of(element))
        data = b"".join(piece for leaf in leaves for piece in _pieces(np.asarray(leaf, _dtype(leaf))))
        data = zlib.compress(data, 1) if self._packed else data
        try:
            self._file.write(data)
        except OSError as error:
            raise _unwritable(self._path, error) from None
        self._place += len(data)
        self._ends.append(self._place)
        self._checksums.append(zlib.crc32(data))

    def _admitted(self, spec: Tree) -> Tree:
        """Return the spec of all elements so far, with this one, which must be built alike."""
        found, structure = flatten(spec)
        known, before = flatten(spec if self._spec is None else self._spec)
        kinds, kinds_before = [leaf.dtype.name for leaf in found], [leaf.dtype.name for leaf in known]
        if structure != before or kinds != kinds_before:
            raise InputError(
                f"Element {len(self._ends)} of a dataset that is being stored has the components "
                f"{', '.join(component_names(spec))} of {', '.join(kinds)}; the elements before it have "
                f"{', '.join(component_names(self._spec))} of {', '.join(kinds_before)}.",
                "Let the function or generator return the same tuples, dicts and dtypes for every element.",
            )
        return structure.unflatten([have.merged(new) for have, new in zip(known, found, strict=True)])

    def complete(self) -> None:
        """End the file, and give it its name.

        Raises:
            InputError: It cannot be written.
        """
        element = None if self._spec is None else _described(self._spec)
        described = json.dumps({"element": element, "packed": self._packed}).encode()
        between = np.array(self._ends, "<i8").tobytes() + np.array(self._checksums, "<u4").tobytes() + described
        try:
            self._file.write(between + _TAIL.pack(len(self._ends), len(described), zlib.crc32(between)))
            self._file.flush()
            os.fsync(self._file.fileno())
            os.replace(self._partial, self._path)
        except OSError as error:
            raise _unwritable(self._path, error) from None
        self._discard()


def _discard(file: Any, partial_path: str) -> None:
    try:
        file.close()
    finally:
        if os.path.exists(partial_path):
            os.unlink(partial_path)


def _unwritable(path: str, error: OSError) -> InputError:
    return InputError(
        f"{path} cannot be written: {error.strerror}.",
        "Check the permissions of the folder, and the free space on the disk.",
    )


def _dtype(leaf: Any) -> Any:
    return object if isinstance(leaf, bytes) else None


def _pieces(array: np.ndarray) -> Iterable[bytes]:
    """Yield the parts of an array: its axes, and what is in it."""
    yield struct.pack(f"<B{array.ndim}q", array.ndim, *array.shape)
    if not array.dtype.hasobject:
        yield array.astype(array.dtype.newbyteorder("<")).tobytes()
        return
    texts = [text.encode() if isinstance(text, str) else text for text in array.ravel()]
    if other := {type(text).__name__ for text in texts if not isinstance(text, bytes)}:
        raise InputError(
            f"A component of a dataset that is being stored holds {', '.join(sorted(other))}.",
            "Only numbers and text can be stored; pad rows of different length with padded_batch.",
        )
    yield np.array([len(text) for text in texts], "<i8").tobytes()
    yield from texts


def _array(data: memoryview, place: int, dtype: np.dtype) -> tuple[Any, int]:
    """Return the array that begins at a place, and where it ends."""
    axes = data[place]
    shape = struct.unpack_from(f"<{axes}q", data, place + 1)
    place += 1 + 8 * axes
    count = math.prod(shape)
    if not dtype.hasobject:
        end = place + count * dtype.itemsize
        stored = np.frombuffer(data[place:end], dtype.newbyteorder("<")).reshape(shape)
        return stored.astype(dtype)[()], end
    lengths = np.frombuffer(data[place : place + 8 * count], "<i8").tolist()
    ends = list(itertools.accumulate(lengths, initial=place + 8 * count))
    texts = objects([bytes(data[first:last]) for first, last in itertools.pairwise(ends)])
    return texts.reshape(shape)[()], ends[-1]


def _described(spec: Tree) -> Any:
    """Return a tree of specs as JSON."""
    if spec is None:
        return None
    if type(spec) is tuple:
        return {"tuple": [_described(part) for part in spec]}
    if type(spec) is dict and all(isinstance(key, str) for key in spec):
        return {"dict": {key: _described(part) for key, part in spec.items()}}
    if isinstance(spec, TensorSpec):
        return {"dtype": spec.dtype.name, "shape": spec.shape}
    raise InputError(
        f"A dataset that is being stored has elements that are nested in {type(spec).__name__}.",
        "First use map to return tuples, or dicts whose keys are str.",
    )


def _spec(described: Any) -> Tree:
    """Return the tree of specs that JSON describes."""
    if described is None:
        return None
    if "tuple" in described:
        return tuple(_spec(part) for part in described["tuple"])
    if "dict" in described:
        return {key: _spec(part) for key, part in described["dict"].items()}
    return TensorSpec(described["shape"], described["dtype"])


class Elements:
    """The format of such a file (`IndexedFormat`)."""

    def scan(self, path: str) -> tuple[int, Any]:
        ends, checksums, _ = _layout(ByteFile(path))
        return len(ends), (ends, checksums)

    def spec(self, path: str) -> Tree:
        element = _layout(ByteFile(path))[2]["element"]
        if element is None:
            raise InputError(f"{path} holds no element.", "Store a dataset with at least one element.")
        return _spec(element)

    def open(self, path: str, layout: Any) -> Take:
        file = ByteFile(path)
        _, _, described = _layout(file)
        return partial(_take, file, layout, _spec(described["element"]), described["packed"])


def _layout(file: ByteFile) -> tuple[np.ndarray, np.ndarray, Any]:
    """Return the ends and the checksums of the elements, and the description."""
    smallest = len(_MAGIC) + _TAIL.size
    if file.size < smallest or file.read(0, len(_MAGIC)) != _MAGIC:
        raise InputError(
            f"{file.path} was not written by Dataset.save, snapshot or cache(filename) of Stratagem.",
            "Name a file or folder that they wrote. TensorFlow's files have another format: write TFRecord files in "
            "TensorFlow instead.",
        )
    count, described, checksum = _TAIL.unpack(file.read(file.size - _TAIL.size, _TAIL.size))
    size = 12 * count + described
    if file.size < smallest + size:
        raise _damaged(file.path)
    between = file.read(file.size - _TAIL.size - size, size)
    if zlib.crc32(between) != checksum:
        raise _damaged(file.path)
    ends = np.frombuffer(between, "<i8", count)
    checksums = np.frombuffer(between, "<u4", count, 8 * count)
    return ends, checksums, json.loads(between[12 * count :])


def _damaged(path: str, number: int | None = None) -> InputError:
    where = "its end" if number is None else f"element {number}"
    return InputError(
        f"{path} is damaged: {where} has a wrong checksum.", "Delete the file, and the program writes it again."
    )


def _take(file: ByteFile, layout: Any, spec: Tree, packed: bool, index: np.ndarray) -> Tree:
    ends, checksums = layout
    starts = np.concatenate([[len(_MAGIC)], ends[:-1]])
    specs, structure = flatten(spec)
    rows = []
    for number, (buffer, first, last) in zip(index.tolist(), file.pieces(starts[index], ends[index]), strict=True):
        data = buffer[first:last]
        if zlib.crc32(data) != checksums[number]:
            raise _damaged(file.path, number)
        rows.append(_arrays(memoryview(zlib.decompress(data) if packed else data), specs))
    return structure.unflatten([column_of(column) for column in zip(*rows, strict=True)])


def _arrays(data: memoryview, specs: list[TensorSpec]) -> list[Any]:
    place, arrays = 0, []
    for spec in specs:
        array, place = _array(data, place, spec.dtype)
        arrays.append(array)
    return arrays


def reading(path: str) -> Node:
    """Return the step that reads a file."""
    return Files(FileSource([path], Elements()))


def write(path: str, elements: Iterable[Tree], packed: bool) -> None:
    """Write all elements to a file."""
    writer = Writer(path, packed)
    for element in elements:
        writer.add(element)
    writer.complete()


def in_folder(path: Any) -> str:
    """Return the file of elements in a folder."""
    return os.path.join(os.fsdecode(path), FILE)


def saved_in(path: Any) -> str:
    """Return the file of elements in a folder, which must be there.

    Raises:
        InputError: It is not there.
    """
    file = in_folder(path)
    if not os.path.exists(file):
        written_by_tensorflow = os.path.exists(os.path.join(os.fsdecode(path), "dataset_spec.pb"))
        raise InputError(
            f"{os.fsdecode(path)} has no {FILE}" + (": TensorFlow wrote it." if written_by_tensorflow else "."),
            "Stratagem cannot read TensorFlow's format. Write TFRecord files in TensorFlow, and read them with "
            "TFRecordDataset."
            if written_by_tensorflow
            else "Name the folder that dataset.save(path) was given.",
        )
    return file


def is_packed(compression: str | None) -> bool:
    """Return whether a kind of compression means to compress.

    Raises:
        InputError: There is no such kind.
    """
    check.one_of("compression", compression or None, (None, "AUTO", "GZIP", "SNAPPY"))
    return compression == "GZIP"


class Stored(Node):
    """The elements of the first complete pass, read from a file from then on, also by later programs.

    Args:
        inner: The elements.
        path: The file.
        packed: Whether they are compressed there.
    """

    in_memory = False

    def __init__(self, inner: Node, path: str, packed: bool = False) -> None:
        super().__init__([inner])
        self._path = path
        self._packed = packed

    def stream(self, key: Key) -> Stream:
        if os.path.exists(self._path):
            return reading(self._path).stream(key)
        # Iteration 0, as `cache()`: what is kept depends on the dataset, not on which pass came first.
        return _Storing(self.inputs[0].stream((0,)), Writer(self._path, self._packed))

    def _make_spec(self) -> Tree:
        return Elements().spec(self._path) if os.path.exists(self._path) else super()._make_spec()


class _Storing(Stream):
    def __init__(self, inner: Stream, writer: Writer) -> None:
        self._inner = inner
        self._writer = writer
        self._ended = False

    def pull(self, rows: int) -> Block | None:
        block = None if self._ended else self._inner.pull(rows)
        if block is not None:
            elements = block.elements()
            for element in elements:
                self._writer.add(element)
            return HeldBlock.of(elements)
        if not self._ended:
            self._writer.complete()
        self._ended = True
        return None
