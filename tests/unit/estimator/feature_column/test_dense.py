"""Dense columns: their numbers for features of a batch."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from stratagem.estimator import feature_column as fc
from stratagem.estimator.text import Text, fingerprints


def text(*words: Any) -> Text:
    return Text(jnp.asarray(fingerprints(np.array(words, object))))


def numbers(column: Any, **features: Any) -> list[Any]:
    return column.numbers(features).tolist()


def rows(column: Any, **features: Any) -> list[Any]:
    return np.asarray(column.rows({key: jnp.asarray(value) for key, value in features.items()}, None)).tolist()


def test_numbers_and_ranges() -> None:
    assert rows(fc.numeric_column("x"), x=[1, 2]) == [[1.0], [2.0]]
    assert rows(fc.numeric_column("x", shape=(2, 1)), x=[[[1.0], [2.0]]]) == [[1.0, 2.0]]
    buckets = fc.bucketized_column(fc.numeric_column("x", shape=2), [0, 10])
    assert numbers(buckets, x=jnp.array([[-1.0, 0.0], [9.9, 10.0]])) == [[0, 4], [1, 5]]
    assert rows(buckets, x=[[-1.0, 0.0]]) == [[1, 0, 0, 0, 1, 0]]


def test_indicators_embeddings_and_weights() -> None:
    words = fc.categorical_column_with_vocabulary_list("w", ["a", "b"])
    batch = {
        "w": Text(text("a", "a", "b", "", "", "").words.reshape(2, 3, 2)),
        "v": jnp.array([[1.0, 2, 4], [1, 1, 1]]),
    }
    assert np.asarray(fc.indicator_column(words).rows(batch, None)).tolist() == [[2.0, 1.0], [0.0, 0.0]]
    weighted = fc.weighted_categorical_column(words, "v")
    assert np.asarray(fc.indicator_column(weighted).rows(batch, None)).tolist() == [[3.0, 4.0], [0.0, 0.0]]
    table = jnp.array([[1.0, 10.0], [4.0, 40.0]])
    for combiner, size in (("mean", 3.0), ("sum", 1.0), ("sqrtn", 3**0.5)):
        found = fc.embedding_column(words, 2, combiner).rows(batch, table)
        np.testing.assert_allclose(found, [[6.0 / size, 60.0 / size], [0.0, 0.0]], rtol=1e-6)
    np.testing.assert_allclose(fc.embedding_column(weighted, 2).rows(batch, table)[0], [19 / 7, 190 / 7], rtol=1e-6)
