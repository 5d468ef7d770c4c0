"""A `tf.function` that a dataset calls: it runs as it is written, on the values of the element."""

from __future__ import annotations

from typing import Any

import stratagem.tf as tf


def test_sizes_may_depend_on_values() -> None:
    @tf.function
    def places(x: Any) -> Any:
        return tf.where(x > 1)[:, 0]

    dataset = tf.data.Dataset.from_tensor_slices([[0, 2, 3], [5, 0, 0]])
    assert [element.numpy().tolist() for element in dataset.map(places)] == [[1, 2], [0]]


def test_loops_and_branches_are_python_s() -> None:
    @tf.function
    def positive(x: Any) -> Any:
        found = tf.TensorArray(tf.int32, 1, dynamic_size=True)
        count = 0
        for i in tf.range(tf.shape(x)[0]):
            if x[i] <= 0:
                continue
            found = found.write(count, x[i])
            count += 1
        return found.stack()

    dataset = tf.data.Dataset.from_tensor_slices([[0, 2, 3], [5, 0, 0]]).map(lambda x: positive(x) * 2)
    assert [element.numpy().tolist() for element in dataset] == [[4, 6], [10]]
