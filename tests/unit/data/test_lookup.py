"""Tokens as numbers. What TensorFlow's layers return for the same calls was written down from their documentation."""

from __future__ import annotations

from typing import Any

import jax
import keras
import numpy as np
import pytest

from stratagem.core.errors import InputError, UsageError
from stratagem.data import Dataset, IntegerLookup, StringLookup

VOCABULARY = ["a", "b", "c", "d"]
DATA = [["a", "c", "d"], ["d", "z", "b"]]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, [[1, 3, 4], [4, 0, 2]]),
        ({"mask_token": "z"}, [[2, 4, 5], [5, 0, 3]]),
        ({"vocabulary": ["[UNK]", *VOCABULARY]}, [[1, 3, 4], [4, 0, 2]]),
        ({"output_mode": "multi_hot"}, [[0, 1, 0, 1, 1], [1, 0, 1, 0, 1]]),
        (
            {"output_mode": "multi_hot", "max_tokens": 6, "pad_to_max_tokens": True},
            [[0, 1, 0, 1, 1, 0], [1, 0, 1, 0, 1, 0]],
        ),
        (
            {"output_mode": "tf_idf", "idf_weights": [0.25, 0.75, 0.6, 0.4]},
            [[0, 0.25, 0, 0.6, 0.4], [0.5, 0, 0.75, 0, 0.4]],
        ),
    ],
)
def test_looking_up_words(arguments: dict[str, Any], expected: Any) -> None:
    lookup = StringLookup(**{"vocabulary": VOCABULARY, **arguments})
    found = lookup(DATA)
    np.testing.assert_allclose(found, expected)
    assert found.dtype == (np.int64 if found.shape == (2, 3) else np.float32)


def test_one_vector_for_each_word_and_counts() -> None:
    one_hot = StringLookup(vocabulary=VOCABULARY, output_mode="one_hot")
    np.testing.assert_array_equal(one_hot(["b", "x"]), [[0, 0, 1, 0, 0], [1, 0, 0, 0, 0]])
    np.testing.assert_array_equal(one_hot([["b"], ["x"]]), one_hot(["b", "x"]))
    count = StringLookup(vocabulary=VOCABULARY, output_mode="count")
    np.testing.assert_array_equal(count([["a", "a", "x"], ["b", "b", "b"]]), [[1, 2, 0, 0, 0], [0, 0, 3, 0, 0]])


def test_a_token_that_means_nothing_is_in_no_vector() -> None:
    lookup = StringLookup(output_mode="count", mask_token="")
    lookup.adapt([["a", ""], ["a", "b"]])
    assert lookup.get_vocabulary() == ["[UNK]", "a", "b"]
    np.testing.assert_array_equal(lookup([["", "a"], ["b", "b"]]), [[0, 1, 0], [0, 0, 2]])


def test_unknown_words() -> None:
    several = StringLookup(vocabulary=VOCABULARY, num_oov_indices=3)
    found = several([f"word {i}" for i in range(50)])
    assert set(found.tolist()) == {0, 1, 2}
    assert several("d").tolist() == 6
    with pytest.raises(InputError, match=r"(?s)given 'z'.*num_oov_indices=1"):
        StringLookup(vocabulary=VOCABULARY, num_oov_indices=0)(DATA)


def test_words_of_numbers_and_back() -> None:
    lookup = StringLookup(vocabulary=VOCABULARY)
    inverse = StringLookup(vocabulary=lookup.get_vocabulary(), invert=True)
    assert inverse(lookup(DATA)).tolist() == [[b"a", b"c", b"d"], [b"d", b"[UNK]", b"b"]]
    assert inverse([9]).tolist() == [b"[UNK]"]


def test_learning_a_vocabulary() -> None:
    """Equally frequent words stand in the order that TensorFlow gives them: from the end of the alphabet."""
    lookup = StringLookup(max_tokens=4)
    lookup.adapt(np.array([[b"d", b"c", b"b"], [b"d", b"d", b"a"], [b"c", b"b", b"x"]], object))
    assert lookup.get_vocabulary() == ["[UNK]", "d", "c", "b"]
    assert (lookup.vocabulary_size(), lookup.get_vocabulary(include_special_tokens=False)) == (4, ["d", "c", "b"])
    numbers = IntegerLookup(mask_token=0)
    numbers.adapt(Dataset.from_tensor_slices(np.array([7, 7, 0, 5])).batch(3))
    assert numbers.get_vocabulary() == [0, -1, 7, 5]
    assert numbers([0, 5, 6]).tolist() == [0, 3, 1]
    weighted = StringLookup(output_mode="tf_idf")
    weighted.adapt([["a", "a"], ["a", "b"], ["c", "c"]])
    weights = np.log(1 + 3 / (1 + np.array([2, 1, 1])))  # a, c, b
    np.testing.assert_allclose(weighted([["a", "b", "b"]]), [[0, weights[0], 0, 2 * weights[2]]], rtol=1e-6)
    np.testing.assert_allclose(weighted([["x"]]), [[weights.mean(), 0, 0, 0]], rtol=1e-6)


def test_what_cannot_be_is_explained() -> None:
    lookup = StringLookup(vocabulary=VOCABULARY)
    for call in (lambda: lookup(keras.Input((3,))), lambda: jax.jit(lookup)(np.ones(3))):
        with pytest.raises(UsageError, match=r"dataset\.map"):
            call()
    for arguments, found in [
        ({"vocabulary": ["a", "a"]}, "'a' twice"),
        ({"vocabulary": VOCABULARY, "max_tokens": 3}, "5 entries, and max_tokens=3"),
        ({"output_mode": "ragged"}, "output_mode='ragged'"),
        ({"output_mode": "count", "invert": True}, "invert=True"),
        ({"sparse": True}, "sparse=True"),
        ({"vocabulary": ["a"], "output_mode": "tf_idf"}, "1 tokens and 0 idf_weights"),
    ]:
        with pytest.raises(InputError, match=found):
            StringLookup(**arguments)
