"""Columns: how their features are read, the numbers they give, words among them, and errors that name the argument."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from stratagem.core.errors import InputError
from stratagem.estimator import feature_column as fc
from stratagem.estimator.text import Text, fingerprints


def text(*words: Any) -> Text:
    return Text(jnp.asarray(fingerprints(np.array(words, object))))


def numbers(column: Any, **features: Any) -> list[Any]:
    return column.numbers(features).tolist()


def test_files_are_read_as_columns_say(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("b\na\n\n")
    columns = [
        fc.numeric_column("x", shape=2, default_value=0.0),
        fc.categorical_column_with_vocabulary_file("w", str(tmp_path / "words")),
        fc.crossed_column(["c", fc.categorical_column_with_identity("n", 3)], 10),
    ]
    spec = fc.make_parse_example_spec(columns)
    assert {key: (type(found).__name__, found.dtype) for key, found in spec.items()} == {
        "x": ("FixedLenFeature", "float32"),
        "w": ("VarLenFeature", "string"),
        "c": ("VarLenFeature", "string"),
        "n": ("VarLenFeature", "int64"),
    }
    assert numbers(columns[1], w=text("a")) == [[1]]
    with pytest.raises(InputError, match="read the feature 'w' differently"):
        fc.make_parse_example_spec([columns[1], fc.numeric_column("w")])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fc.categorical_column_with_vocabulary_list("w", []), "vocabulary_list of column 'w' is empty"),
        (lambda: fc.categorical_column_with_vocabulary_list("w", ["a", "a"]), "'a' twice"),
        (lambda: fc.categorical_column_with_hash_bucket("w", 0), "hash_bucket_size is 0"),
        (lambda: fc.bucketized_column(fc.numeric_column("x"), [3, 1]), r"boundaries=\[3, 1\]"),
        (lambda: fc.crossed_column(["w", fc.numeric_column("x")], 10), "No combinations"),
        (lambda: fc.indicator_column(fc.numeric_column("x")), "indicator_column was given 'x', a Numeric"),
        (lambda: fc.embedding_column(fc.categorical_column_with_identity("w", 2), 0), "dimension=0"),
        (lambda: fc.DenseFeatures([fc.categorical_column_with_identity("w", 2)]), r"Wrap it: indicator_column"),
        (lambda: fc.DenseFeatures([fc.numeric_column("x"), fc.numeric_column("x")]), "the names x, x"),
        (lambda: fc.DenseFeatures(["x"]), "'x' among them"),
        (lambda: fc.numeric_column("x").rows({"y": 1}, None), "needs the feature 'x'; input_fn gives 'y'"),
        (lambda: fc.numeric_column("x").rows({"x": jnp.ones((2, 3))}, None), r"is of shape \(2, 3\)"),
        (
            lambda: fc.categorical_column_with_identity("w", 2).numbers({"w": text("a")}),
            "is one of numbers; the feature 'w' is text",
        ),
        (
            lambda: fc.categorical_column_with_hash_bucket("w", 2).numbers({"w": jnp.ones(2)}),
            "takes values one by one; the feature 'w' is of dtype float32",
        ),
    ],
)
def test_mistakes_name_the_argument(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


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
