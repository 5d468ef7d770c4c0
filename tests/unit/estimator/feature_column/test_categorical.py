"""Feature columns: the numbers they give for features of a batch, words among them."""

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


def test_words_and_integers_have_numbers() -> None:
    words = fc.categorical_column_with_vocabulary_list("w", ["b", "a", "c"])
    assert numbers(words, w=text("a", b"c", "x", "")) == [[1], [2], [-1], [-1]]
    unknown = fc.categorical_column_with_vocabulary_list("w", ["b", "a"], default_value=0)
    assert numbers(unknown, w=text("a", "x", "")) == [[1], [0], [-1]]
    extra = fc.categorical_column_with_vocabulary_list("w", ["b"], num_oov_buckets=2)
    found = np.array(numbers(extra, w=text(*"bxyzuvw")))[:, 0]
    assert found[0] == 0
    assert set(found[1:]) == {1, 2}
    integers = fc.categorical_column_with_vocabulary_list("w", [7, 3, -2])
    assert numbers(integers, w=jnp.array([3, -2, 4])) == [[1], [2], [-1]]
    same = fc.categorical_column_with_identity("w", 3)
    assert numbers(same, w=jnp.array([[0, 2], [3, -1]])) == [[0, 2], [-1, -1]]
    assert numbers(fc.categorical_column_with_identity("w", 3, default_value=1), w=jnp.array([5, -1])) == [[1], [-1]]


def test_hashes_fill_all_buckets_and_keep_combinations_apart() -> None:
    words = [f"word {number}" for number in range(400)]
    hashed = np.array(numbers(fc.categorical_column_with_hash_bucket("w", 10), w=text(*words)))
    assert np.bincount(hashed[:, 0], minlength=10).min() > 20
    integers = np.array(numbers(fc.categorical_column_with_hash_bucket("w", 10, "int64"), w=jnp.arange(400)))
    assert np.bincount(integers[:, 0], minlength=10).min() > 20
    age = fc.bucketized_column(fc.numeric_column("age"), [30])
    crossed = fc.crossed_column([age, "sex"], 100_000)
    assert crossed.name == "age_bucketized_X_sex"
    features = {"age": jnp.array([20, 40, 20, 40, 25, 20]), "sex": text("m", "m", "f", "f", "m", "")}
    found = np.asarray(crossed.numbers(features))[:, 0]
    assert len(set(found[:4])) == 4
    assert found[4] == found[0]
    assert found[5] == -1
    many = fc.crossed_column([fc.categorical_column_with_identity("a", 5), "b"], 1000)
    assert many.numbers({"a": jnp.array([[1, 2]]), "b": jnp.array([[1, 2, 3]])}).shape == (1, 6)
