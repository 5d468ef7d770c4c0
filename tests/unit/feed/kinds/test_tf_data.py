"""Datasets of TensorFlow, and its tensors."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from tests.unit.feed.kinds.kinds import (
    BATCH,
    ROWS,
    batch,
    model,
    read,
)

from stratagem.core.errors import InputError
from stratagem.feed.batch import as_numpy


def test_tensors_of_tensorflow() -> None:
    tf = pytest.importorskip("tensorflow")
    values = (tf.ragged.constant([[1], [2, 3]]), tf.sparse.from_dense([[0, 4]]), tf.constant([5]))
    assert [array.tolist() for array in as_numpy(values)] == [[[1, 0], [2, 3]], [[0, 4]], [5]]


def test_tf_data_in_fit() -> None:
    tf = pytest.importorskip("tensorflow")
    x, y = batch(np.arange(ROWS))
    dataset = tf.data.Dataset.from_tensor_slices((x, y))
    made = model()
    plain = keras.models.clone_model(made)
    plain.set_weights(made.get_weights())
    plain.compile("sgd", "mse")
    batched = dataset.shuffle(ROWS, seed=4).batch(BATCH).map(lambda x, y: (x / 10, y)).prefetch(1)
    np.testing.assert_allclose(
        made.evaluate(batched, verbose=0), plain.evaluate(x / 10, y, batch_size=BATCH, verbose=0), rtol=1e-6
    )
    with pytest.raises(InputError, match="batch dimension"):
        made.fit(dataset.map(lambda x, y: (x, y)), verbose=0)
    with pytest.raises(InputError, match=r"shuffle\(buffer_size, seed=1\)"):
        read(dataset.shuffle(ROWS).batch(BATCH).map(lambda x, y: (x, y)))
