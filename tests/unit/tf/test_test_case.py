"""`tf.test.TestCase`: what its methods accept and what they refuse."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import stratagem.tf as tf

CASE: Any = tf.test.TestCase()
NEAR = {"a": [1.0, 2.0], "b": ({"c": 3.0}, np.ones(2))}


@pytest.mark.parametrize(
    ("method", "accepted", "refused"),
    [
        ("assertAllClose", ([1.0, 2.0], [1.0, 2.0 + 1e-7]), ([1.0], [1.1])),
        ("assertAllClose", (NEAR, NEAR), (NEAR, {**NEAR, "b": ({"c": 3.1}, np.ones(2))})),
        ("assertAllClose", ((np.ones(2), np.ones(3)), [np.ones(2), np.ones(3)]), ({"a": 1.0}, {"b": 1.0})),
        ("assertNotAllClose", ([1.0], [1.1]), ([1.0], [1.0])),
        ("assertNotAllEqual", ([1], [2]), ([1], [1])),
        ("assertAllCloseAccordingToType", (np.float16([1.0]), [1.0005]), ([1.0], [1.0005])),
        ("assertAllCloseAccordingToType", (np.asarray([1.0], ml_dtypes.bfloat16), [1.005]), ([1.0], [1.005])),
        ("assertArrayNear", ([[1.0], [2.0]], [[1.1], [2.0]], 0.2), ([[1.0], [2.0]], [[1.1], [2.0]], 0.05)),
        ("assertArrayNear", ([1.0, 2.0], [1.1, 2.0], 0.2), ([1.0, 2.0], [1.1, 2.0], 0.05)),
        ("assertAllGreater", ([1, 2], 0), ([1, 2], 1)),
        ("assertAllGreaterEqual", ([1, 2], 1), ([1, 2], 2)),
        ("assertAllLess", ([1, 2], 3), ([1, 2], 2)),
        ("assertAllLessEqual", ([1, 2], 2), ([1, 2], 1)),
        ("assertAllInRange", ([1, 2], 1, 2), ([1, 2], 1, 2, True)),
        ("assertAllInRange", ([1, 2], 0, 3, True, True), ([1, 2], 1, 2, False, True)),
        ("assertAllInSet", ([1, 2, 1], {1, 2}), ([1, 2], {1})),
        ("assertDTypeEqual", (tf.constant(1.0), tf.float32), (tf.constant(1), tf.float32)),
    ],
)
def test_assertions(method: str, accepted: tuple[Any, ...], refused: tuple[Any, ...]) -> None:
    getattr(CASE, method)(*accepted)
    with pytest.raises(AssertionError):
        getattr(CASE, method)(*refused)


@pytest.mark.parametrize("predicate", [r"no gr.y", lambda error: "gray" in str(error)])
def test_exceptions_that_match(predicate: Callable[[Any], Any] | str) -> None:
    with CASE.assertRaisesWithPredicateMatch(ValueError, predicate):
        raise ValueError("no gray")
    with pytest.raises(AssertionError), CASE.assertRaisesWithPredicateMatch(ValueError, predicate):
        raise ValueError("no blue")


def test_a_folder_for_a_test() -> None:
    case: Any = tf.test.TestCase()
    folder = case.get_temp_dir()
    assert (os.path.isdir(folder), case.get_temp_dir()) == (True, folder)
    case.doCleanups()
    assert not os.path.exists(folder)


def test_values_of_a_structure() -> None:
    values = CASE.evaluate({"a": tf.constant([1.0]), "b": (tf.constant(2),)})
    assert (values["a"].tolist(), values["b"][0].tolist(), CASE.evaluate(tf.constant([1.0])).tolist()) == (
        [1.0],
        2,
        [1.0],
    )
    several = CASE.evaluate([tf.constant(1), tf.constant([2, 3])])  # a list stays one, as in TensorFlow
    assert [each.tolist() for each in several] == [1, [2, 3]]


def test_values_of_replicas() -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    ids = strategy.run(lambda: tf.distribute.get_replica_context().replica_id_in_sync_group)
    assert CASE.evaluate({"ids": ids}) == {"ids": (0, 1)}


@pytest.mark.parametrize("shape", [4, np.int64(4), (4,)])
def test_an_input_of_one_number(shape: Any) -> None:
    assert tuple(tf.keras.Input(shape=shape).shape) == tuple(tf.keras.layers.Input(shape).shape) == (None, 4)


def test_each_test_draws_the_same_numbers() -> None:
    class Draws(tf.test.TestCase):
        def draw(self) -> None:
            drawn.append((random.random(), np.random.random(), float(tf.random.uniform([]))))

    drawn: list[Any] = []
    for _ in range(2):
        assert Draws("draw").run().wasSuccessful()
    assert drawn[0] == drawn[1]
