"""Layers that take features by columns."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from stratagem.estimator import feature_column as fc


def test_layers_join_columns_by_name_and_train_their_variables() -> None:
    first = fc.categorical_column_with_identity("z", 3)
    columns = [fc.numeric_column("y"), fc.embedding_column(first, 4), fc.indicator_column(first)]
    features = {"y": jnp.array([5.0, 6.0]), "z": jnp.array([0, 2])}
    layer = fc.DenseFeatures(columns)
    found = np.asarray(layer(features))
    assert found.shape == (2, 8)
    assert found[:, 0].tolist() == [5.0, 6.0]  # y, z_embedding, z_indicator
    assert found[:, 5:].tolist() == [[1, 0, 0], [0, 0, 1]]
    (table,) = layer.trainable_variables
    assert layer.name.startswith("dense_features")
    assert table.path == f"{layer.name}/z_embedding/embedding_weights"
    np.testing.assert_array_equal(found[:, 1:5], np.asarray(table.value)[[0, 2]])
    linear = fc.LinearModel([fc.numeric_column("y"), first], units=2)
    assert linear(features).tolist() == [[0, 0], [0, 0]]
    assert {v.path: tuple(v.shape) for v in linear.trainable_variables} == {
        "linear_model/y/weights": (1, 2),
        "linear_model/z/weights": (3, 2),
        "linear_model/bias_weights": (2,),
    }
    for variable in linear.trainable_variables:
        variable.assign(np.arange(np.prod(variable.shape)).reshape(variable.shape))
    np.testing.assert_allclose(linear(features), [[0 + 0, 1 + 5 + 1], [0 + 4, 1 + 6 + 5]])
    shared = fc.shared_embeddings([first, fc.categorical_column_with_identity("u", 3)], 2)
    joined = fc.DenseFeatures(shared)
    parts = np.asarray(joined({"z": jnp.array([1]), "u": jnp.array([1])}))
    assert len(joined.trainable_variables) == 1
    np.testing.assert_array_equal(parts[:, :2], parts[:, 2:])
