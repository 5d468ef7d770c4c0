"""Batches of a copied object, and how they go to a reader process."""

from __future__ import annotations

import pickle

from stratagem.data.processes.numbered import Copy, NumberedBatch


def test_a_copy_stays_as_it_was_and_is_unpickled_once() -> None:
    value = [10, 20]
    copy = Copy(pickle.dumps(value))
    value[1] = 0
    batch = NumberedBatch(copy, 1)
    assert (batch.gather(), batch.constants) == (20, (copy,))
    assert copy.value is copy.value
