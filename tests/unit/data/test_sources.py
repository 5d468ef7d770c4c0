"""`Dataset.from_source`: rows of anything that is read by position."""

from __future__ import annotations

import importlib
import itertools
import pickle
from typing import Any

import numpy as np
import pytest

from stratagem.core.errors import InputError
from stratagem.data import Dataset


class Words:
    """Elements of different lengths; notes which were read."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.read: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.read.append(index)
        return {"word": np.arange(index), "number": np.float32(index)}


class Together(Words):
    """Several at once."""

    def __getitems__(self, index: list[int]) -> list[dict[str, Any]]:
        return [{"word": np.full(2, place), "number": np.float32(place)} for place in index]

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("__getitems__ is there")


def padded(element: dict[str, Any]) -> np.ndarray:
    return np.pad(element["word"], (0, 8 - len(element["word"])))


def test_a_worker_reads_its_rows_only() -> None:
    words = Words(8)
    dataset = Dataset.from_source(words).shuffle(8, seed=3).map(padded).batch(4)
    assert int(dataset.cardinality()) == 2
    assert dataset.element_spec.shape == (None, 8)
    words.read.clear()
    mine = [batch.data.sum(axis=1).tolist() for batch in dataset.batches(lambda rows: slice(0, rows // 2))]
    assert len(words.read) == 4
    everything = [batch.data.sum(axis=1).tolist() for batch in dataset.batches(iteration=0)]
    assert mine == [batch[:2] for batch in everything]
    assert sorted(itertools.chain(*everything)) == [k * (k - 1) // 2 for k in range(8)]


def test_several_elements_at_once() -> None:
    dataset = Dataset.from_source(Together(5)).batch(3)
    words = [batch["word"].tolist() for batch in dataset.as_numpy_iterator()]
    assert words == [[[0, 0], [1, 1], [2, 2]], [[3, 3], [4, 4]]]


def test_elements_of_different_shapes_must_be_padded_first() -> None:
    with pytest.raises(InputError, match=r"\['word'\](.|\n)*Pad or crop"):
        list(Dataset.from_source(Words(4)).batch(4).as_numpy_iterator())


def test_what_is_no_source_is_refused() -> None:
    with pytest.raises(InputError, match="from_generator"):
        Dataset.from_source(iter([1, 2]))
    with pytest.raises(InputError, match="is empty"):
        _ = Dataset.from_source([]).element_spec


def test_state_and_pickle() -> None:
    dataset = Dataset.from_source(list(range(12))).shuffle(12, seed=3).batch(4)
    batches = dataset.batches()
    next(batches)
    rest = [batch.data.tolist() for batch in batches]
    again = pickle.loads(pickle.dumps(dataset)).batches()
    again.set_state({**batches.get_state(), "batches": 1})
    assert [batch.data.tolist() for batch in again] == rest


def test_hugging_face(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(importlib.import_module("tqdm").tqdm, "monitor_interval", 0)  # a thread for a progress bar
    rows = {"x": [[float(i), float(-i)] for i in range(6)], "label": list(range(6))}
    dataset = Dataset.from_source(datasets.Dataset.from_dict(rows).with_format("numpy"))
    batches = list(dataset.map(lambda row: (row["x"], row["label"])).batch(4).as_numpy_iterator())
    assert [y.tolist() for _, y in batches] == [[0, 1, 2, 3], [4, 5]]
    assert batches[1][0].tolist() == [[4.0, -4.0], [5.0, -5.0]]


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    pairs = torch.utils.data.TensorDataset(torch.arange(6.0).reshape(3, 2), torch.arange(3))
    x, y = next(Dataset.from_source(pairs).batch(3).as_numpy_iterator())
    assert (x.tolist(), y.tolist()) == ([[0, 1], [2, 3], [4, 5]], [0, 1, 2])


def test_grain() -> None:
    sources = pytest.importorskip("grain.sources")
    dataset = Dataset.from_source(sources.RangeDataSource(0, 10, 2)).batch(5)
    assert next(dataset.as_numpy_iterator()).tolist() == [0, 2, 4, 6, 8]
