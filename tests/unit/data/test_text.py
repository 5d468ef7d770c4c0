"""Words as numbers. What TensorFlow's layers return for the same calls was written down from their documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cloudpickle
import jax
import numpy as np
import pytest

from stratagem.core.errors import InputError, UsageError
from stratagem.data import Dataset, StringLookup, TextVectorization


def test_in_a_dataset_and_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("yes\nno\n")
    lookup = StringLookup(vocabulary=tmp_path / "words.txt", num_oov_indices=0)
    dataset = Dataset.from_tensor_slices(({"w": [["yes"], ["no"], ["no"]]}, ["no", "yes", "no"]))
    mapped = dataset.map(lambda x, y: (lookup(x["w"]), lookup(y))).batch(3)
    (features, labels), *_ = mapped.as_numpy_iterator()
    assert (features.tolist(), labels.tolist()) == ([[0], [1], [1]], [1, 0, 1])
    vectorize = TextVectorization(vocabulary=["yes", "no"])
    there = cloudpickle.loads(cloudpickle.dumps([lookup, vectorize]))
    assert there[0](["no"]).tolist() == [1]
    assert there[1](["No, no!"]).tolist() == [[3, 3]]


TEXTS = ["The cat sat.", "the dog sat down", "THE bird"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, ["", "[UNK]", "the", "sat", "down", "dog", "cat", "bird"]),
        ({"max_tokens": 4}, ["", "[UNK]", "the", "sat"]),
        ({"standardize": "lower"}, ["", "[UNK]", "the", "sat.", "sat", "down", "dog", "cat", "bird"]),
        ({"standardize": None, "split": None}, ["", "[UNK]", "the dog sat down", "The cat sat.", "THE bird"]),
        ({"split": "character", "max_tokens": 5}, ["", "[UNK]", "t", " ", "h"]),
        ({"ngrams": 2, "max_tokens": 7}, ["", "[UNK]", "the", "sat", "the dog", "the cat", "the bird"]),
        ({"ngrams": (2,), "max_tokens": 3}, ["", "[UNK]", "the dog"]),
        ({"output_mode": "count", "max_tokens": 3}, ["[UNK]", "the", "sat"]),
    ],
)
def test_the_words_of_texts(arguments: dict[str, Any], expected: list[str]) -> None:
    for data in (TEXTS, Dataset.from_tensor_slices(TEXTS).batch(2)):
        vectorize = TextVectorization(**arguments)
        vectorize.adapt(data)
        assert vectorize.get_vocabulary() == expected


def test_texts_as_numbers() -> None:
    vectorize = TextVectorization(vocabulary=["the", "cat", "sat"])
    assert vectorize(["the cat", "A cat sat here"]).tolist() == [[2, 3, 0, 0], [1, 3, 4, 1]]
    assert vectorize(np.array([[b"the cat"]], object)).tolist() == [[2, 3]]
    assert vectorize("the cat").tolist() == [2, 3]
    whole = TextVectorization(standardize=None, split=None, vocabulary=["a b"])
    assert whole([["a b"], ["a"]]).tolist() == [[2], [1]]
    short = TextVectorization(vocabulary=["the", "cat", "sat"], output_sequence_length=2)
    assert short([["the cat sat"], ["cat"]]).tolist() == [[2, 3], [3, 0]]
    many = TextVectorization(
        vocabulary=["the", "cat", "sat"], output_mode="multi_hot", max_tokens=5, pad_to_max_tokens=True
    )
    assert many(["the the cat", ""]).tolist() == [[0, 1, 1, 0, 0], [0] * 5]
    own = TextVectorization(
        standardize=lambda texts: [text.decode().replace("!", "") for text in texts],
        split=lambda texts: [text.split("-") for text in texts],
        vocabulary=["x", "y"],
    )
    assert own(np.array([b"x-y!"], object)).tolist() == [[2, 3]]


def test_what_cannot_be_is_explained() -> None:
    vectorize = TextVectorization()
    with pytest.raises(UsageError, match="Call adapt"):
        vectorize(["a"])
    with pytest.raises(UsageError, match=r"dataset\.map"):
        jax.jit(vectorize)(np.ones(3))
    for arguments in ({"ragged": True}, {"standardize": "upper"}, {"split": "lines"}):
        with pytest.raises(InputError, match=next(iter(arguments))):
            TextVectorization(**arguments)
