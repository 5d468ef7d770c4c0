"""Records of many files by position, of a format that is made up."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratagem.core.errors import InputError
from stratagem.data.dataset import Dataset
from stratagem.data.files.source import Files, FileSource, StreamedFiles
from stratagem.data.lru import Recent
from stratagem.data.options import Options
from stratagem.data.specs import TensorSpec
from stratagem.data.structure import objects


class _Letters:
    """Every byte of a file is a record."""

    def __init__(self) -> None:
        self.scanned: list[str] = []

    def scan(self, path: str) -> tuple[int, Any]:
        self.scanned.append(Path(path).name)
        return len(Path(path).read_bytes()), None

    def open(self, path: str, layout: Any) -> Callable[[np.ndarray], np.ndarray]:
        content = Path(path).read_bytes()
        return lambda index: objects([content[place : place + 1] for place in index.tolist()])

    def spec(self, path: str) -> TensorSpec:
        return TensorSpec((), object)

    def read(self, path: str) -> Iterator[bytes]:
        for letter in Path(path).read_text():
            yield letter.encode()


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    for name, content in (("a", "abc"), ("empty", ""), ("b", "de\0")):
        (tmp_path / name).write_text(content)
    return [str(tmp_path / name) for name in ("a", "empty", "b")]


def test_positions_count_over_all_files(paths: list[str]) -> None:
    source = FileSource(paths, _Letters())
    assert len(source) == 6
    assert source.counts.tolist() == [3, 0, 3]
    assert source.take(np.array([5, 0, 3, 2, 0])).tolist() == [b"\0", b"a", b"d", b"c", b"a"]


def test_a_file_is_scanned_once(paths: list[str]) -> None:
    letters = _Letters()
    source = FileSource(paths, letters)
    source.take(np.arange(6))
    part = source.of_files(paths[2:])
    assert part.take(np.array([1])).tolist() == [b"e"]
    assert letters.scanned == ["a", "empty", "b"]


def test_files_that_are_no_longer_held_open_are_opened_again(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    held = Recent(1)
    monkeypatch.setattr("stratagem.data.files.source._OPEN", held)
    sources = [FileSource(paths, _Letters()) for _ in range(2)]
    for number in (0, 1, 0, 1):
        assert sources[number].take(np.array([3, 0])).tolist() == [b"d", b"a"]
        assert len(held) == 1, "over all datasets of the process"
    sources.clear()
    gc.collect()
    assert len(held) == 0, "with the dataset its files are closed"


def test_another_process_gets_the_scan_but_no_open_file(paths: list[str]) -> None:
    source = FileSource(paths, _Letters())
    source.take(np.array([0]))
    copy = pickle.loads(pickle.dumps(source))
    assert "_scanned" in vars(copy)
    assert copy.take(np.array([4])).tolist() == [b"e"]


def test_indexed_and_streamed_files_give_the_same_elements(paths: list[str]) -> None:
    indexed = Dataset(Files(FileSource(paths, _Letters())), Options())
    streamed = Dataset(StreamedFiles(paths, _Letters().read), Options())
    expected = [b"a", b"b", b"c", b"d", b"e", b"\0"]
    assert list(indexed.as_numpy_iterator()) == expected
    assert list(streamed.as_numpy_iterator()) == expected
    assert (len(indexed), streamed.cardinality()) == (6, -2)
    assert indexed.element_spec == streamed.element_spec == TensorSpec((), object)


def test_bytes_keep_their_zeros_through_every_step(paths: list[str]) -> None:
    dataset = Dataset(Files(FileSource(paths, _Letters())), Options()).map(lambda letter: (letter + b"\0", 1)).cache()
    expected = [b"a\0", b"b\0", b"c\0", b"d\0", b"e\0", b"\0\0"]
    for _ in range(2):
        assert [text for text, _ in dataset.as_numpy_iterator()] == expected
        assert [text.numpy() for text, _ in dataset] == expected
        assert [b.data[0].tolist() for b in dataset.batch(4).batches()] == [expected[:4], expected[4:]]


def test_bytes_from_lists_and_generators(paths: list[str]) -> None:
    assert list(Dataset.from_tensor_slices([b"a\0", b"b"]).as_numpy_iterator()) == [b"a\0", b"b"]
    assert list(Dataset.from_tensors(b"a\0").as_numpy_iterator()) == [b"a\0"]
    assert list(Dataset.from_generator(lambda: iter([b"a\0"])).as_numpy_iterator()) == [b"a\0"]


def test_files_of_different_kinds_are_an_error(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = dict(zip(paths, [object, object, np.int8], strict=True))
    monkeypatch.setattr(_Letters, "spec", lambda self, path: TensorSpec((), kinds[path]))
    with pytest.raises(
        InputError, match=r"b holds elements of .*int8.*a holds elements of .*\n  What to do: Give files of the same"
    ):
        len(FileSource(paths, _Letters()))


def test_no_file_is_an_error() -> None:
    with pytest.raises(InputError, match="given no file"):
        FileSource([], _Letters())
    with pytest.raises(InputError, match="given no file"):
        StreamedFiles([], _Letters().read)
