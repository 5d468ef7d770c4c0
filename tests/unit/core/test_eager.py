"""Arrays and texts that answer `.numpy()`: how they compare."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stratagem.core.eager import EagerArray, answering

ORDERS = [operator.lt, operator.le, operator.gt, operator.ge]


@pytest.mark.parametrize("order", ORDERS)
def test_numbers_are_ordered_as_plain_arrays_are(order: Callable[[Any, Any], Any]) -> None:
    plain = np.array([1, 2, 3])
    found = order(plain.view(EagerArray), 2)
    assert type(found) is EagerArray
    assert found.tolist() == order(plain, 2).tolist()


def test_results_of_arithmetic_answer_like_their_operands() -> None:
    """`(image / 255).numpy()`: a tensor stays one. Without an axis they are numbers of NumPy, which have a hash."""
    image = np.array([1.0, 2.0], "float32").view(EagerArray)
    scaled = np.ones(2, "float32") - image / 2
    assert type(scaled) is EagerArray
    assert scaled.numpy().tolist() == [0.5, 0.0]
    assert type(scaled.numpy()) is np.ndarray
    assert type(image[0] * 2) is type(image.sum()) is np.float32


@pytest.mark.parametrize("order", ORDERS)
def test_text_has_no_order(order: Callable[[Any, Any], Any]) -> None:
    texts = answering(np.array([b"eel", b"cod"], object))
    with pytest.raises(TypeError, match=r"Text has no order among tensors; compare the bytes of \.numpy\(\)\."):
        order(texts, texts)


def test_text_equals_its_characters() -> None:
    texts = answering(np.array([b"eel", b"cod"], object))
    assert (texts == "eel").tolist() == [True, False]
    assert (texts != "eel").tolist() == [False, True]
    assert (texts + "s").tolist() == [b"eels", b"cods"]


def test_device_of_a_copy() -> None:
    """A copy of what lies on a device names it; what is computed of the copy lies on the host."""
    copy = EagerArray.of_device(np.arange(3), "/job:localhost/replica:0/task:0/device:GPU:1")
    assert copy.device == copy.backing_device == "/job:localhost/replica:0/task:0/device:GPU:1"
    assert copy[1:].device == "/job:localhost/replica:0/task:0/device:CPU:0"


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "float16", "float32", "float64"])
def test_an_element_that_is_a_number_answers(dtype: str) -> None:
    array = np.asarray([3, 4], dtype).view(EagerArray)
    first, second = array
    for number, expected in ((first, 3), (second, 4), (array[0], 3), (array[1] + 0, 4), ((array * 2)[1], 8)):
        assert number == expected
        assert number.dtype == dtype
    assert type(array[0].numpy()) is np.dtype(dtype).type
    assert isinstance(array[0], np.dtype(dtype).type)
    assert pickle.loads(pickle.dumps(array[0])) == 3
    assert {array[0]: "three"}[np.dtype(dtype).type(3)] == "three"
