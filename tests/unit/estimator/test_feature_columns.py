"""Feature columns: the numbers they give for features of a batch, words among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from stratagem.core.errors import InputError
from stratagem.estimator import feature_column as fc
from stratagem.estimator.text import Names, Text, Vocabulary, encoded, encoding, fingerprints, restored


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
    assert table.path == "dense_features/z_embedding/embedding_weights"
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


def test_text_travels_as_fingerprints() -> None:
    ragged = np.empty(2, object)
    ragged[:] = [np.array(["a"], object), np.array(["b", "a", "c"], object)]
    lengths = np.empty(2, object)
    lengths[:] = [np.array([3]), np.array([1, 2])]
    batch = {
        "w": np.array(["a", "b"]),
        "bytes": np.array([b"b", None], object),
        "r": ragged,
        "n": lengths,
        "x": np.ones(2),
    }
    found = restored(encoded((batch, np.array(["b", "b"]))))
    assert isinstance(found, tuple)
    features, labels = found
    assert (features["w"] == "a").tolist() == [True, False]
    assert (features["w"] != features["bytes"]).tolist() == [True, True]
    assert (labels == np.array(["b", "c"])).tolist() == [True, False]
    assert features["r"].shape == (2, 4)
    assert (features["r"][1] == "a").tolist() == [False, True, False, False]
    assert features["n"].tolist() == [[3, -1], [1, 2]]
    assert features["x"] is batch["x"]
    (first,) = encoding(iter([{"w": np.array(["a"])}]))
    assert (restored(first)["w"] == "a").tolist() == [True]
    with pytest.raises(InputError, match="Devices compute with numbers"):
        jnp.sum(features["w"])
    assert Names(np.array([[1], [0]]), (b"x", b"y")).words().tolist() == [[b"y"], [b"x"]]


def test_words_whose_fingerprints_begin_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    halves = {b"a": (5, 1), b"b": (5, 2), b"c": (9, 1), b"d": (5, 3)}
    monkeypatch.setattr("stratagem.estimator.text._fingerprint", halves.__getitem__)
    assert Vocabulary(["c", "a", "b"]).places(text("a", "b", "c", "d")).tolist() == [1, 2, 0, -1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fc.categorical_column_with_vocabulary_list("w", []), "vocabulary_list of column 'w' is empty"),
        (lambda: fc.categorical_column_with_vocabulary_list("w", ["a", "a"]), "'a' twice"),
        (lambda: fc.categorical_column_with_hash_bucket("w", 0), "hash_bucket_size is 0"),
        (lambda: fc.bucketized_column(fc.numeric_column("x"), [3, 1]), r"boundaries=\[3, 1\]"),
        (lambda: fc.crossed_column(["w", fc.numeric_column("x")], 10), "no combinations"),
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
