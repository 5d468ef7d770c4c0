"""Sparse tensors in programs, compiled functions, strategies and datasets.

Values of each operation, and their derivatives, are in tests/unit/tf/operations/cases/sparse.txt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import keras
import numpy as np
import pytest

import stratagem.tf as tf
from stratagem.core.errors import InputError


def matrix(values: Any = (1.0, 2.0, 3.0, 4.0)) -> Any:
    """Return a sparse matrix, of which two values lie at one place."""
    values = list(values) if isinstance(values, tuple) else values
    return tf.SparseTensor([[0, 1], [0, 1], [1, 2], [2, 0]], values, [3, 3])


DENSE = [[0.0, 3.0, 0.0], [0.0, 0.0, 3.0], [4.0, 0.0, 0.0]]
"""The same, as a dense one: values at one place are added."""

COLUMNS = np.arange(6, dtype=np.float32).reshape(3, 2)

OF_AN_ARGUMENT: list[Callable[[Any], Any]] = [
    lambda sp: tf.sparse.sparse_dense_matmul(sp, COLUMNS),
    lambda sp: tf.sparse.sparse_dense_matmul(COLUMNS, sp, adjoint_a=True),
    lambda sp: tf.sparse.reduce_sum(sp, axis=1),
    lambda sp: tf.sparse.reduce_max(sp, axis=0),
    lambda sp: tf.sparse.add(sp, tf.ones((3, 3))),
    lambda sp: tf.sparse.transpose(sp),
    lambda sp: tf.sparse.concat(0, [sp, sp]),
    lambda sp: tf.sparse.reshape(sp, [9]),
    lambda sp: tf.sparse.expand_dims(sp, 0),
    lambda sp: tf.sparse.reset_shape(sp, [4, 4]),
    lambda sp: tf.sparse.softmax(sp),
    lambda sp: tf.sparse.map_values(tf.square, sp),
    lambda sp: tf.sparse.to_dense(tf.sparse.retain(sp, [True, False, True, True])),
    lambda sp: tf.sparse.to_indicator(tf.cast(sp, tf.int32), 5),
    lambda sp: sp * tf.constant([1.0, 2.0, 3.0]) / 2.0,
    lambda sp: tf.abs(sp),
]
"""What a compiled function computes of a sparse tensor that it is given: its shape alone is known."""

OF_KNOWN_INDICES: list[Callable[[Any], Any]] = [
    lambda sp: tf.sparse.add(sp, sp),
    lambda sp: tf.sparse.maximum(sp, sp),
    lambda sp: tf.sparse.slice(sp, [0, 1], [2, 2]),
    lambda sp: tf.sparse.split(sp, 3, axis=0),
    lambda sp: tf.sparse.fill_empty_rows(sp, 7.0),
    lambda sp: tf.sparse.reduce_sum(sp, 1, output_is_sparse=True),
    lambda sp: tf.sparse.reset_shape(sp),
]
"""What a compiled function computes of a sparse tensor from outside it."""


def assert_alike(found: Any, expected: Any) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-6)


@pytest.mark.parametrize("compute", OF_AN_ARGUMENT)
def test_in_a_compiled_function_as_outside(compute: Callable[[Any], Any]) -> None:
    assert_alike(tf.function(compute)(matrix()), compute(matrix()))


@pytest.mark.parametrize("compute", [*OF_AN_ARGUMENT, *OF_KNOWN_INDICES])
def test_of_a_constant_in_a_compiled_function(compute: Callable[[Any], Any]) -> None:
    constant = matrix()
    assert_alike(tf.function(lambda: compute(constant))(), compute(constant))


@pytest.mark.parametrize("compute", OF_KNOWN_INDICES)
def test_what_needs_indices_says_so(compute: Callable[[Any], Any]) -> None:
    with pytest.raises(InputError, match="the indices exist only when it runs") as caught:
        tf.function(compute)(matrix())
    assert "Why it matters" in str(caught.value)
    assert "let the function use it" in str(caught.value)


def test_what_needs_the_shape_says_so() -> None:
    def total(size: Any) -> Any:
        return tf.sparse.reduce_sum(tf.SparseTensor([[0]], [1.0], size[None]), axis=[])

    with pytest.raises(
        InputError, match=r"tf\.sparse\.reduce_sum was called .* and the sizes in dense_shape exist only"
    ):
        tf.function(total)(tf.constant(3))


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (lambda: tf.sparse.retain(matrix(), tf.constant([1.0, 2.0])), "one boolean for each value"),
        (lambda: tf.function(lambda x: tf.sparse.from_dense(x))(tf.ones(3)), "the values of its tensor exist only"),
        (lambda: tf.sparse.reduce_sum(tf.ones((2, 2))), "not a SparseTensor"),
        (lambda: tf.sparse.sparse_dense_matmul(matrix(), matrix()), "two sparse tensors"),
        (lambda: tf.sparse.sparse_dense_matmul(matrix(), tf.ones((2, 2))), r"of shape \(3, 3\) and a dense"),
        (lambda: tf.sparse.to_dense(matrix()), r"several values at \[0, 1\]"),
        (lambda: tf.sparse.softmax(tf.SparseTensor([[0]], ["a"], [1])), "computes with numbers"),
        (lambda: matrix() * tf.ones((4, 3, 3)), "broadcast to a sparse one"),
        (lambda: matrix() * matrix(), "Products of two sparse tensors"),
        (lambda: matrix() * 2.5j, "Both must have the same dtype"),
        (lambda: tf.sparse.transpose(matrix(), [0, 0]), "each axis once"),
    ],
)
def test_what_is_refused(refused: Callable[[], Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        refused()


def loss(values: Any, weights: Any) -> Any:
    sparse = matrix(values)
    product = tf.sparse.sparse_dense_matmul(sparse, weights)
    sums = tf.sparse.reduce_sum(tf.sparse.add(sparse, sparse), axis=0)
    return (
        tf.reduce_sum(product * product) + tf.reduce_sum(sums * sums) + tf.reduce_sum((sparse * weights[:, :1]).values)
    )


def by_variables(values: Any, weights: Any) -> list[Any]:
    with tf.GradientTape() as tape:
        value = loss(values, weights)
    return [value, *tape.gradient(value, [values, weights])]


def test_gradients_by_variables() -> None:
    """As TensorFlow 2.21 computes them; compiled too."""
    values, weights = tf.Variable([1.0, 2.0, 3.0, 4.0]), tf.Variable(COLUMNS)
    expected = [660.0, [102.0, 102.0, 272.0, 44.0], [[3.0, 32.0], [39.0, 54.0], [76.0, 90.0]]]
    for found in (by_variables(values, weights), tf.function(lambda: by_variables(values, weights))()):
        assert [np.asarray(each).tolist() for each in found] == expected


def test_in_strategies() -> None:
    strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
    constant = matrix()

    def step() -> Any:
        number = tf.distribute.get_replica_context().replica_id_in_sync_group
        return tf.sparse.sparse_dense_matmul(constant, tf.ones((3, 1))) * tf.cast(number + 1, tf.float32)

    found = strategy.experimental_local_results(strategy.run(step))
    assert [each.numpy().ravel().tolist() for each in found] == [[3, 3, 4], [6, 6, 8]]


def test_in_datasets() -> None:
    rows = tf.data.Dataset.from_tensor_slices(matrix())
    sums = rows.map(lambda row: tf.sparse.reduce_sum(row * 2.0))
    assert [float(each) for each in sums] == [6, 6, 8]
    assert [type(each).__name__ for each in sums] == ["EagerArray"] * 3
    wholes = rows.map(lambda row: tf.cast(row, tf.int64)).map(lambda row: tf.sparse.add(row, row).values)
    assert [(each.tolist(), str(each.dtype)) for each in wholes] == [([2, 4], "int64"), ([6], "int64"), ([8], "int64")]
    products = rows.batch(3).map(lambda batch: tf.sparse.sparse_dense_matmul(batch, COLUMNS))
    np.testing.assert_array_equal(next(iter(products)), np.array(DENSE, np.float32) @ COLUMNS)


def test_in_a_model_of_symbolic_inputs() -> None:
    """A layer of a graph network: the matrix of neighbours is a constant, the nodes are the batch."""
    inputs = keras.Input((2,))
    model = keras.Model(inputs, tf.sparse.sparse_dense_matmul(matrix(), inputs))
    np.testing.assert_array_equal(model.predict_on_batch(COLUMNS), np.array(DENSE, np.float32) @ COLUMNS)


def test_indices_that_jax_computed_are_known() -> None:
    dense = tf.constant(DENSE)
    places = tf.where(dense > 3.5)
    sparse = tf.SparseTensor(places, tf.gather_nd(dense, places), tf.shape(dense, out_type=tf.int64))
    assert sparse.shape == (3, 3)
    assert sparse.get_shape().as_list() == [3, 3]
    assert tf.sparse.slice(sparse, [2, 0], [1, 1]).values.tolist() == [4]


def test_a_sparse_tensor_goes_into_a_function_and_out() -> None:
    seen = []

    @tf.function
    def double(sparse: Any) -> Any:
        seen.append(sparse.shape)
        return sparse * 2.0

    assert tf.sparse.reduce_sum(double(matrix()), axis=1).tolist() == [6, 6, 8]
    assert double(matrix((4.0, 3.0, 2.0, 1.0))).values.tolist() == [8, 6, 4, 2]
    assert set(seen) == {(3, 3)}


def test_pagerank() -> None:
    """Ranks of pages, by a sparse matrix of links in a loop; the numbers are those of TensorFlow 2.21."""
    links = [[0, 1], [0, 2], [1, 2], [2, 0], [3, 0], [3, 2], [4, 0], [4, 1], [4, 3]]
    graph = tf.sparse.reorder(tf.SparseTensor(links, tf.ones(len(links)), [5, 5]))
    degrees = tf.sparse.reduce_sum(graph, axis=1, keepdims=True)
    transition = tf.sparse.transpose(graph / degrees)

    @tf.function
    def ranks(damping: Any) -> Any:
        def step(count: Any, rank: Any, change: Any) -> Any:
            new = damping * tf.sparse.sparse_dense_matmul(transition, rank) + (1.0 - damping) / 5.0
            return count + 1, new, tf.reduce_sum(tf.abs(new - rank))

        first = (tf.constant(0), tf.fill([5, 1], 0.2), tf.constant(1.0))
        return tf.while_loop(lambda count, rank, change: change > 1e-6, step, first)

    count, rank, _ = ranks(tf.constant(0.85))
    assert int(count) == 25
    np.testing.assert_allclose(
        np.asarray(rank).ravel(),
        [0.36807796359062195, 0.1949332058429718, 0.3684890568256378, 0.038499996066093445, 0.029999995604157448],
        atol=1e-6,
    )
