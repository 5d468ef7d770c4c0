"""Data that Python reads for a function that is being compiled: it is asked for at each call, never kept from one."""

from __future__ import annotations

from typing import Any

import pytest

import stratagem.tf as tf
from stratagem.core.errors import UsageError


@pytest.fixture(scope="module")
def strategy() -> Any:
    return tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])


@pytest.mark.parametrize("given", [True, False])
def test_a_function_that_reads_an_iterator_gets_the_next_element_at_each_call(given: bool) -> None:
    iterator = iter(tf.data.Dataset.range(3))
    read = tf.function((lambda it: next(it) + 1) if given else (lambda: next(iterator) + 1))
    assert [int(read(iterator) if given else read()) for _ in range(3)] == [1, 2, 3]


def test_passes_that_differ_differ_in_a_function_too() -> None:
    dataset = tf.data.Dataset.range(32).shuffle(32)
    read = tf.function(lambda: [int(x) for x in dataset])
    first, second = read(), read()
    assert sorted(first) == sorted(second) == list(range(32))
    assert first != second


def test_data_of_python_s_own_is_read_at_each_call() -> None:
    passes = []

    def elements() -> Any:
        passes.append(None)
        yield len(passes)

    dataset = tf.data.Dataset.from_generator(elements, output_signature=tf.TensorSpec((), tf.int32))
    read = tf.function(lambda: [x + 0 for x in dataset])
    assert [int(read()[0]) for _ in range(3)] == [1, 2, 3]


def test_elements_that_never_change_are_constants_of_a_replica_s_function(strategy: Any) -> None:
    dataset = tf.data.Dataset.range(4).map(lambda x: x * 2)
    result = strategy.run(lambda: sum(dataset, start=tf.constant(0, tf.int64)))
    assert [int(each) for each in strategy.experimental_local_results(result)] == [12, 12]


def test_elements_that_change_are_no_constants_of_a_replica_s_function(strategy: Any) -> None:
    iterator = iter(tf.data.Dataset.range(3))
    shuffled = tf.data.Dataset.range(4).shuffle(4)
    with pytest.raises(UsageError, match=r"args=\(next\(iterator\),\)"):
        strategy.run(lambda: next(iterator))
    assert int(next(iterator)) == 0  # none was lost
    with pytest.raises(UsageError, match="a dataset whose passes differ"):
        strategy.run(lambda: sum(shuffled, start=tf.constant(0, tf.int64)))
