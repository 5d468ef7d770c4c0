"""Models of text: the preprocessing of TensorFlow's tutorial for parameter servers, held against tf-keras's numbers."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stratagem.tf as tf
from stratagem.core.errors import InputError


def lookup_model(size: int, vocabulary: list[str], **arguments: Any) -> Any:
    inputs = tf.keras.layers.Input(shape=(size,), dtype=tf.string)
    return tf.keras.Model(
        inputs, tf.keras.layers.StringLookup(vocabulary=vocabulary, mask_token=None, **arguments)(inputs)
    )


def test_preprocessing_of_the_parameter_server_tutorial() -> None:
    features = lookup_model(3, ["a", "b", "c"])
    label = lookup_model(1, ["yes", "no"], num_oov_indices=0)
    examples = {"features": [["a", "b", "z"], ["c", "c", "a"]], "label": [["yes"], ["no"]]}
    dataset = tf.data.Dataset.from_tensor_slices(examples).map(
        lambda x: ({"features": features(x["features"])}, label(x["label"]))
    )
    ((x, y),) = list(dataset.batch(2))
    assert x["features"].numpy().tolist() == [[1, 2, 0], [3, 3, 1]]
    assert y.numpy().tolist() == [[[0]], [[1]]]  # (1,) is a column to a model of (None, 1), as in Keras 2


def test_inputs_may_have_names_and_be_several() -> None:
    names = {name: tf.keras.Input((2,), dtype="string", name=name) for name in ("one", "two")}
    lookup = tf.keras.layers.StringLookup(vocabulary=["a", "b"])
    model = tf.keras.Model(names, {name: lookup(each) for name, each in names.items()})
    values = {"one": tf.constant([["a", "b"]]), "two": np.array([["b", "?"]])}
    assert {name: each.tolist() for name, each in model(values).items()} == {"one": [[1, 2]], "two": [[2, 0]]}


def test_numbers_go_on_into_layers() -> None:
    inputs = tf.keras.Input((2,), dtype="string")
    lookup = tf.keras.layers.StringLookup(vocabulary=["a", "b"], output_mode="multi_hot")
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, kernel_initializer="ones")(lookup(inputs)))
    assert model.output_shape == (None, 1)
    assert model(tf.constant([["a", "b"], ["a", "?"], ["a", "a"]])).numpy().tolist() == [[2.0], [2.0], [1.0]]


@pytest.mark.parametrize(
    ("arguments", "shape", "expected"),
    [
        ({"output_sequence_length": 4}, (None, 4), [[2, 3, 0, 0], [1, 2, 0, 0]]),
        ({}, (None, None), [[2, 3], [1, 2]]),
        ({"output_mode": "count"}, (None, 3), [[0, 1, 1], [1, 1, 0]]),
    ],
)
def test_texts_as_inputs(arguments: dict[str, Any], shape: Any, expected: Any) -> None:
    vectorize = tf.keras.layers.TextVectorization(vocabulary=["the", "cat"], **arguments)
    inputs = tf.keras.Input((1,), dtype="string")
    model = tf.keras.Model(inputs, vectorize(inputs))
    assert model.output_shape == shape
    assert model(np.array([["The cat"], ["dog, the"]])).numpy().tolist() == expected


def test_fit_says_where_text_belongs() -> None:
    with tf.distribute.MirroredStrategy(["cpu:0"]).scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    with pytest.raises(InputError, match=r"x holds text(.|\n)*turn text into numbers before the model"):
        model.fit(np.array([["a", "b"]]), np.ones((1, 2)))


def test_a_model_of_text_is_saved_and_sent(tmp_path: Path) -> None:
    inputs = tf.keras.Input((2,), dtype="string")
    lookup = tf.keras.layers.StringLookup(
        vocabulary=["a", "b"], mask_token="", output_mode="tf_idf", idf_weights=[2, 3]
    )
    model = tf.keras.Model(inputs, lookup(inputs))
    vectorize = tf.keras.layers.TextVectorization(output_sequence_length=3, ngrams=2)
    vectorize.adapt(["the cat", "the dog"])
    texts = tf.keras.Input((1,), dtype="string")
    words = tf.keras.Model(texts, vectorize(texts))
    for original, given in ((model, [["b", "b"], ["a", "?"]]), (words, [["The dog"], ["a cat"]])):
        expected = original(tf.constant(given)).tolist()
        path = str(tmp_path / "model.keras")
        original.save(path)
        for again in (pickle.loads(pickle.dumps(original)), tf.keras.models.load_model(path)):
            assert again(tf.constant(given)).tolist() == expected
    assert words(tf.constant([["The dog"]])).tolist() == [[2, 5, 3]]


def test_a_function_in_a_lookup_is_not_saved(tmp_path: Path) -> None:
    texts = tf.keras.Input((1,), dtype="string")
    vectorize = tf.keras.layers.TextVectorization(standardize=lambda text: text, vocabulary=["a"])
    model = tf.keras.Model(texts, vectorize(texts))
    with pytest.raises(InputError, match="a function as standardize"):
        model.save(str(tmp_path / "model.keras"))
