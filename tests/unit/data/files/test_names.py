"""`Dataset.list_files` as tf.data has it: sorted, or shuffled anew in each iteration."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stratagem.core.errors import InputError
from stratagem.data import Dataset
from stratagem.data.files.names import FileList


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.txt", "a.txt", ".h.txt", "c.dat"):
        (tmp_path / name).touch()
    return tmp_path


def names(dataset: Dataset) -> list[str]:
    return [Path(name.decode()).name for name in dataset.as_numpy_iterator()]


def test_files_come_sorted_or_shuffled(folder: Path) -> None:
    assert names(Dataset.list_files(str(folder / "*"), shuffle=False)) == [".h.txt", "a.txt", "b.txt", "c.dat"]
    assert names(Dataset.list_files([folder / "c*", str(folder / "[ab].txt")], shuffle=False)) == [
        *("a.txt", "b.txt", "c.dat")
    ]
    assert names(Dataset.list_files([folder / "?.txt", folder / "a*"], shuffle=False)) == ["a.txt", "b.txt"]
    shuffled = Dataset.list_files(str(folder / "*"), seed=1)
    orders = {tuple(names(shuffled)) for _ in range(8)}
    assert len(orders) > 1, "each iteration has an order of its own"
    assert {tuple(sorted(order)) for order in orders} == {(".h.txt", "a.txt", "b.txt", "c.dat")}
    assert names(Dataset.list_files(str(folder / "*"), seed=1)) in [list(order) for order in orders]


def test_names_are_what_functions_get(folder: Path) -> None:
    dataset = Dataset.list_files(bytes(folder / "*.txt"), shuffle=False).map(lambda name: len(Path(name.decode()).name))
    assert [int(x) for x in dataset] == [6, 5, 5]


def test_no_match_is_an_error(folder: Path) -> None:
    pattern = str(folder / "nothing*")
    with pytest.raises(InputError, match=rf"No file matches {re.escape(repr(pattern))}; the current folder"):
        Dataset.list_files(pattern)
    assert names(Dataset.list_files([pattern, folder / "c*"])) == ["c.dat"]
    with pytest.raises(InputError, match="given no file"):
        Dataset.list_files([])
    with pytest.raises(InputError, match="has 3, which is not the name"):
        Dataset.list_files([3])


def test_part_of_a_list() -> None:
    files = FileList(["a", "b", "c"]).of_files(["c", "a"])
    assert files.paths == ("c", "a")
    assert files.cardinality() == 2
