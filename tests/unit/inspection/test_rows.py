"""Rows of a batch: their places on replicas, and the search for those that are at fault."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from stratagem.feed.batch import GlobalBatch, place_batch
from stratagem.inspection.rows import RowsOfBatch, rows_at_fault
from stratagem.mesh.mesh import ReplicaMesh
from stratagem.mesh.split import Split


def batch_of(rows: np.ndarray, replicas: int) -> tuple[ReplicaMesh, GlobalBatch]:
    mesh = ReplicaMesh(jax.devices()[:replicas])
    return mesh, place_batch(mesh, Split(len(rows), replicas), (rows, np.arange(len(rows))))


def values(batch: GlobalBatch) -> np.ndarray:
    return np.asarray(batch.data[0])


@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.parametrize("faulty", [[0], [6], [1, 2, 5]])
def test_rows_at_fault_are_found_also_where_shares_are_uneven(replicas: int, faulty: list[int]) -> None:
    rows = np.ones((7, 2), np.float32)
    rows[faulty] = -1
    mesh, batch = batch_of(rows, replicas)
    found = rows_at_fault(mesh, batch, None, lambda each: bool((values(each) < 0).any()))
    assert found is not None
    assert (found.rows, found.is_all) == (faulty, True)


def test_rows_of_the_step_before_take_the_places_of_others() -> None:
    mesh, batch = batch_of(np.full((4, 1), -1, np.float32), 2)
    _, before = batch_of(np.ones((4, 1), np.float32), 2)
    found = rows_at_fault(mesh, batch, before, lambda each: bool((values(each) < 0).any()))
    assert found is not None
    assert found.rows == [0, 1, 2, 3]


def test_no_rows_are_at_fault_where_others_do_the_same_or_only_all_together() -> None:
    mesh, batch = batch_of(np.ones((4, 1), np.float32), 2)
    assert rows_at_fault(mesh, batch, batch, lambda _: True) is None
    _, zeros = batch_of(np.zeros((4, 1), np.float32), 2)
    assert rows_at_fault(mesh, batch, zeros, lambda each: bool(values(each).sum() > 3)) is None


def test_a_search_is_given_up_where_too_many_rows_are_at_fault() -> None:
    mesh, batch = batch_of(np.full((512, 1), -1, np.float32), 1)
    _, before = batch_of(np.ones((512, 1), np.float32), 1)
    found = rows_at_fault(mesh, batch, before, lambda each: bool((values(each) < 0).any()))
    assert found is not None
    assert not found.is_all
    assert 50 < len(found.rows) < 512


def test_inputs_that_are_not_finite_are_named_as_the_user_gave_them() -> None:
    mesh = ReplicaMesh(jax.devices()[:2])
    image, label = np.ones((5, 2, 2), np.float32), np.ones((5, 1), np.float32)
    image[3, 1, 0], label[4] = np.nan, np.inf
    data = ({"image": image, "number": np.arange(5)}, label, np.ones(5, np.float32))
    assert RowsOfBatch(mesh, place_batch(mesh, Split(5, 2), data)).not_finite() == {"x['image']": [3], "y": [4]}
    assert RowsOfBatch(mesh, place_batch(mesh, Split(5, 2), {"image": image})).not_finite() == {"x['image']": [3]}
