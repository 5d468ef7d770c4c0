"""Datasets of Grain: how elements nest, and threads."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.feed.kinds.kinds import (
    BATCH,
    ROWS,
    batch,
    model,
)

import stratagem
from stratagem.feed.adapter import make_adapter


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_grain_nests_as_keras_does() -> None:
    grain = pytest.importorskip("grain")
    listed = grain.MapDataset.range(ROWS).map(lambda row: list(batch(row))).batch(BATCH)
    named = grain.MapDataset.range(ROWS).map(lambda row: {"x": batch(row)[0]}).batch(BATCH)
    losses = model().fit(listed, verbose=0).history["loss"]
    assert len(losses) == 1
    outputs = model().predict(named.map(lambda rows: rows["x"]), verbose=0)
    assert outputs.shape == (ROWS, 1)


def test_threads_of_grain_end_when_reading_fails() -> None:
    grain = pytest.importorskip("grain")

    def fails(row: int) -> Any:
        if row == 9:
            raise OSError("no such picture")
        return batch(row)

    rows = grain.MapDataset.range(ROWS).map(fails).batch(BATCH)
    for dataset in (rows, rows.to_iter_dataset()):
        adapter = make_adapter(stratagem.OneDeviceStrategy("cpu:0"), {"x": dataset})
        with pytest.raises(OSError, match="no such picture"):
            list(adapter.get_jax_iterator())
        adapter.close()
