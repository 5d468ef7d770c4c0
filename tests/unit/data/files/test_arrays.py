"""Rows of `.npy` and `.npz` files, compared with `numpy.load`."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stratagem.core.errors import InputError
from stratagem.data import Dataset, NumpyDataset, TensorSpec
from stratagem.data.lru import Recent

draw = np.random.default_rng(0)


def test_rows_of_npy_files(tmp_path: Path) -> None:
    parts = [draw.random((n, 3, 2)).astype(np.float32) for n in (4, 0, 7)]
    parts[2] = np.asfortranarray(parts[2])
    paths = [tmp_path / f"x_{k}.npy" for k in range(3)]
    for path, part in zip(paths, parts, strict=True):
        np.save(path, part)
    dataset = NumpyDataset(paths)
    assert len(dataset) == 11
    assert dataset.element_spec == TensorSpec((3, 2), np.float32)
    assert np.array_equal(list(dataset.as_numpy_iterator()), np.concatenate(parts))
    (batch,) = dataset.shuffle(11, seed=2).batch(11).as_numpy_iterator()
    assert type(batch) is np.ndarray
    assert batch.flags.writeable, "rows are copies, not views of the file"
    assert sorted(batch[:, 0, 0]) == sorted(np.concatenate(parts)[:, 0, 0])
    copy = pickle.loads(pickle.dumps(dataset))
    assert np.array_equal(list(copy.as_numpy_iterator()), np.concatenate(parts))


@pytest.mark.parametrize("whole", [True, False])
def test_a_file_that_is_cut_while_it_is_read_does_not_end_the_process(whole: bool, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((1000, 1000)))
    rows = iter(NumpyDataset(path).batch(10).as_numpy_iterator())
    next(rows)
    size = 0 if whole else 4_000_000
    with path.open("r+b") as file:
        file.truncate(size)
    with pytest.raises(InputError, match=rf"x\.npy ends at byte {size}; it had 8000128 bytes"):
        list(rows)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_rows_of_npz_files(save: Callable[..., None], tmp_path: Path) -> None:
    x, y, texts = draw.integers(0, 255, (5, 4), np.uint8), np.arange(5), np.array([f"t{k}" for k in range(5)])
    paths = [str(tmp_path / f"part{k}.npz") for k in range(2)]
    save(paths[0], x=x[:2], y=y[:2], texts=texts[:2])
    save(paths[1], x=x[2:], y=y[2:], texts=texts[2:])
    dataset = NumpyDataset(paths)
    assert dataset.element_spec["x"] == TensorSpec((4,), np.uint8)
    (batch,) = dataset.batch(5).as_numpy_iterator()
    assert np.array_equal(batch["x"], x)
    assert np.array_equal(batch["y"], y)
    assert np.array_equal(batch["texts"], texts)
    assert pickle.loads(pickle.dumps(dataset)).batch(2).cardinality() == 3


def test_decompressed_arrays_are_kept_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    whole = np.lib.format.read_array
    monkeypatch.setattr(np.lib.format, "read_array", lambda *a, **k: opened.append("x") or whole(*a, **k))
    monkeypatch.setattr("stratagem.data.files.arrays._DECOMPRESSED", Recent(100))
    paths = [tmp_path / f"{k}.npz" for k in range(3)]
    for path in paths:
        np.savez_compressed(path, x=np.arange(6))  # 48 bytes
    dataset = NumpyDataset(paths[:2])
    assert [int(e["x"]) for e in dataset.repeat(2).as_numpy_iterator()] == [0, 1, 2, 3, 4, 5] * 4
    assert len(opened) == 2
    dataset = NumpyDataset(paths)
    list(dataset.repeat(2).as_numpy_iterator())
    assert len(opened) == 2 + 6


def test_files_that_belong_together_are_zipped(tmp_path: Path) -> None:
    for k in range(3):
        np.save(tmp_path / f"x_{k}.npy", np.full((2, 2), k))
        np.save(tmp_path / f"y_{k}.npy", np.full(2, -k))
    x, y = (NumpyDataset(sorted(tmp_path.glob(pattern))) for pattern in ("x_*", "y_*"))
    assert [(int(a[0]), int(b)) for a, b in Dataset.zip(x, y).as_numpy_iterator()] == [
        *((0, 0), (0, 0), (1, -1), (1, -1), (2, -2), (2, -2))
    ]
    names = Dataset.list_files(str(tmp_path / "y_*"), shuffle=False)
    assert [int(n) for n in names.interleave(NumpyDataset, cycle_length=3)] == [0, -1, -2, 0, -1, -2]


def test_a_truncated_file_is_named_with_the_place(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((10, 2)))
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(
        InputError, match=r"x\.npy cannot be read: there are 152 bytes from byte 128 .*\(10, 2\).* 160\."
    ):
        len(NumpyDataset(path))
    path.write_bytes(b"no array")
    with pytest.raises(InputError, match=rf"{re.escape(str(path))} cannot be read: .*magic string"):
        len(NumpyDataset(path))
    with pytest.raises(InputError, match=r"nothing\.npy cannot be read: .*No such file"):
        len(NumpyDataset(tmp_path / "nothing.npy"))


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x=draw.random(2000))
    content = bytearray(path.read_bytes())
    path.write_bytes(content[:-50])
    with pytest.raises(InputError, match=r"x\.npz cannot be read: File is not a zip file"):
        len(NumpyDataset(path))
    content[2000] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"x\.npz, array 'x', cannot be read: (Bad CRC-32|Error -3)"):
        list(NumpyDataset(path).as_numpy_iterator())


def test_arrays_that_make_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, x=np.zeros(3), y=np.zeros(2))
    shapes = r"\['x'\] \(3,\), \['y'\] \(2,\)\."
    with pytest.raises(
        InputError, match=rf"x\.npz differ in their first dimension, or have none; their shapes are: {shapes}"
    ):
        len(NumpyDataset(path))
    np.savez(path, x=np.array([{}, {}], object))
    with pytest.raises(InputError, match=r"The array x in .*x\.npz holds Python objects"):
        len(NumpyDataset(path))
    np.savez(path)
    with pytest.raises(InputError, match=r"cannot be read"):
        len(NumpyDataset(path))
    np.save(tmp_path / "a.npy", np.zeros((2, 3)))
    np.save(tmp_path / "b.npy", np.zeros((2, 4)))
    with pytest.raises(InputError, match=r"b\.npy holds elements of .*\(4,\).*a\.npy holds elements of .*\(3,\)"):
        len(NumpyDataset([tmp_path / "a.npy", tmp_path / "b.npy"]))
