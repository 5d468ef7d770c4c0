"""Texts taken apart are ragged tensors, and looked up as such: TensorFlow's elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stratagem.tf as tf
from stratagem.core.errors import InputError

LOOKUP = tf.keras.layers.StringLookup(vocabulary=["a", "b"], mask_token=None)
BACK = tf.keras.layers.StringLookup(vocabulary=LOOKUP.get_vocabulary(), mask_token=None, invert=True)


def letters() -> Any:
    return tf.strings.unicode_split(["ab", "cba"], "UTF-8")


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda: tf.strings.split(["a b c", "d"]), [[b"a", b"b", b"c"], [b"d"]]),
        (
            lambda: tf.strings.split([["a b c", "d"], ["e", "f g"]]),
            [[[b"a", b"b", b"c"], [b"d"]], [[b"e"], [b"f", b"g"]]],
        ),
        (lambda: tf.strings.unicode_split(["ab", "cdé"], "UTF-8"), [[b"a", b"b"], [b"c", b"d", b"\xc3\xa9"]]),
        (lambda: tf.strings.bytes_split(["ab", "c", ""]), [[b"a", b"b"], [b"c"], []]),
        (lambda: tf.strings.unicode_decode(["ab", "c"], "UTF-8"), [[97, 98], [99]]),
        (lambda: LOOKUP(letters()), [[1, 2], [0, 2, 1]]),
        (lambda: BACK(LOOKUP(letters())), [[b"a", b"b"], [b"[UNK]", b"b", b"a"]]),
    ],
)
def test_several_texts_are_ragged(function: Callable[[], Any], expected: Any) -> None:
    found = function()
    assert isinstance(found, tf.RaggedTensor)
    assert found.to_list() == expected


def test_ragged_text_becomes_dense() -> None:
    assert tf.strings.split(["a b c", "d"]).to_tensor().tolist() == [[b"a", b"b", b"c"], [b"d", b"", b""]]
    assert LOOKUP(letters()).to_tensor().tolist() == [[1, 2, 0], [0, 2, 1]]
    assert tf.strings.reduce_join(BACK(LOOKUP(letters())), axis=-1).tolist() == [b"ab", b"[UNK]ba"]
    assert tf.strings.reduce_join(letters(), axis=1, separator="-", keepdims=True).tolist() == [[b"a-b"], [b"c-b-a"]]
    with pytest.raises(InputError, match="reduce_join was given a ragged tensor"):
        tf.strings.reduce_join(letters(), axis=0)


def test_a_split_of_ones_own() -> None:
    vectorize = tf.keras.layers.TextVectorization(
        split=lambda texts: tf.strings.split(texts, "-"), standardize=None, vocabulary=["a", "b"]
    )
    assert vectorize(["a-b", "b-z-a"]).tolist() == [[2, 3, 0], [3, 1, 2]]


def test_a_function_that_is_given_text_runs_as_python(capsys: Any) -> None:
    scale = tf.Variable(2.0)

    @tf.function
    def lengths(texts: Any, factor: Any = 1.0) -> Any:
        assert texts is not None
        return scale * tf.cast(tf.strings.length(texts), tf.float32) * factor

    assert lengths(tf.constant(["ab", "c"]), 3.0).numpy().tolist() == [12.0, 6.0]
    assert lengths(np.array(["abc"])).numpy().tolist() == [6.0]
    assert "lengths was given text, and devices cannot hold text. So it runs as Python" in capsys.readouterr().err
    with pytest.raises(InputError, match="was given an array of dtype datetime64"):
        lengths(np.array(["2026-11-26"], "datetime64[D]"))


def test_arrays_in_functions_of_datasets_have_the_methods_of_tensors() -> None:
    def scaled(image: Any, label: Any) -> Any:
        half = image[:, :1] / 2
        half.set_shape([2, 1])
        assert image.get_shape().as_list() == [2, 3]
        return half, label

    images = tf.data.Dataset.from_tensor_slices((np.ones((4, 2, 3), "float32"), [0, 1, 2, 3])).map(scaled)
    assert [image.tolist() for image, _ in images.take(1)] == [[[0.5], [0.5]]]
    image, _ = next(iter(images))
    assert (image * 4).numpy().tolist() == [[2.0], [2.0]]
