"""Tables that never change: TensorFlow 2.21's numbers, in datasets, in compiled functions and outside."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from tests.unit.ps.servers import Cluster

import stratagem
import stratagem.tf as tf
from stratagem.errors import InputError, UsageError


def words() -> Any:
    return tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.constant(["a", "b"]), tf.constant([1, 2], tf.int64)), default_value=-1
    )


def numbers(default: int = -2) -> Any:
    keys, values = tf.constant([5, 3, 11], tf.int64), tf.constant([50, 30, 110], tf.int64)
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), default_value=default)


def test_words_have_values() -> None:
    table = words()
    assert table.lookup(tf.constant([["a", "z"]])).tolist() == [[1, -1]]
    assert int(table[tf.constant("b")]) == 2
    assert (int(table.size()), int(table.default_value)) == (2, -1)
    assert (table.key_dtype, table.name) == (tf.string, None)
    keys, values = table.export()
    assert (keys.tolist(), values.tolist()) == ([b"a", b"b"], [1, 2])


def test_values_can_be_text() -> None:
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1, 2], ["x", "y"]), "?")
    assert table.lookup(tf.constant([2, 3])).tolist() == [b"y", b"?"]
    assert table[2] == "y"


def in_a_function(table: Any, keys: Any) -> Any:
    return tf.function(lambda keys: table.lookup(keys))(keys)


def on_replicas(table: Any, keys: Any) -> Any:
    strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
    results = strategy.experimental_local_results(strategy.run(lambda keys: table.lookup(keys), args=(keys,)))
    assert len(results) == 2
    return results[1]


def in_a_dataset(table: Any, keys: Any) -> Any:
    return next(iter(tf.data.Dataset.from_tensors(keys).map(table.lookup)))


def outside(table: Any, keys: Any) -> Any:
    return table.lookup(keys)


PLACES = [outside, in_a_function, on_replicas, in_a_dataset]


@pytest.mark.parametrize("look_up", PLACES)
def test_numbers_are_looked_up_anywhere(look_up: Callable[[Any, Any], Any]) -> None:
    found = look_up(numbers(), tf.constant([[3, 5], [7, 12], [-1, 11]], tf.int64))
    assert np.asarray(found).tolist() == [[30, 50], [-2, -2], [-2, 110]]


@pytest.mark.parametrize("look_up", PLACES)
def test_a_table_without_keys_gives_its_default(look_up: Callable[[Any, Any], Any]) -> None:
    nothing = tf.lookup.KeyValueTensorInitializer(np.zeros(0, np.int64), np.zeros(0, np.float32))
    table = tf.lookup.StaticHashTable(nothing, 0.5)
    assert np.asarray(look_up(table, tf.constant([3, 5]))).tolist() == [0.5, 0.5]


def test_numbers_have_64_bits_in_datasets() -> None:
    far = 2**40
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(np.array([1, far]), np.array([far, 7])), default_value=0
    )
    dataset = tf.data.Dataset.from_tensor_slices(np.array([far, 1, 2])).map(table.lookup)
    assert [int(value) for value in dataset] == [7, far, 0]
    with pytest.raises(InputError, match=r"has the value 1099511627776, but JAX holds whole numbers in 32 bits"):
        table.lookup(tf.constant([1]))


def test_text_cannot_be_in_a_compiled_function() -> None:
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1, 2], ["x", "y"]), "?")
    with pytest.raises(UsageError, match=r"no device holds text.\n  What to do: Look them up outside"):
        in_a_function(table, tf.constant([1]))


def test_keys_of_another_kind_are_refused() -> None:
    with pytest.raises(InputError, match=r"keys of tf.string was asked for keys of tf.int32"):
        words().lookup(tf.constant([1]))
    with pytest.raises(InputError, match=r"keys of tf.int32 was asked for keys of tf.string"):
        numbers().lookup(tf.constant(["a"]))
    with pytest.raises(InputError, match=r"A table has keys of tf.float32"):
        tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1.0], [1]), 0)


def test_a_key_has_one_value() -> None:
    with pytest.raises(tf.errors.FailedPreconditionError, match=r"has the values 1 and 2 for the key b'a'"):
        tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "a"], [1, 2]), -1)
    twice = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "a"], [1, 1]), -1)
    assert int(twice.size()) == 1


def test_unknown_words_have_the_buckets_of_tensorflow() -> None:
    known = tf.lookup.KeyValueTensorInitializer(["e", "l", "p"], tf.constant([0, 1, 2], tf.int64))
    table = tf.lookup.StaticVocabularyTable(known, 3)
    found = table.lookup(tf.constant(["e", "foo", "bar", "p", "baz", "King", ""]))
    assert found.tolist() == [0, 3, 3, 2, 5, 4, 5]
    assert (int(table.size()), table[tf.constant(["zz"])].tolist()) == (6, [4])
    assert tf.lookup.StaticVocabularyTable(None, 4).lookup(["a", "b", "c"]).tolist() == [3, 2, 0]


def test_unknown_numbers_have_the_buckets_of_tensorflow() -> None:
    known = tf.lookup.KeyValueTensorInitializer(tf.constant([7, 8], tf.int64), tf.constant([0, 1], tf.int64))
    table = tf.lookup.StaticVocabularyTable(known, 3)
    assert table.lookup(tf.constant([7, 8, 9, 10, 11], tf.int64)).tolist() == [0, 1, 4, 4, 3]
    with pytest.raises(UsageError, match=r"Look keys up in Dataset.map"):
        in_a_function(table, tf.constant([7]))


def test_a_vocabulary_has_a_bucket_and_whole_numbers() -> None:
    known = tf.lookup.KeyValueTensorInitializer(["e"], [0.5])
    with pytest.raises(InputError, match=r"num_oov_buckets is 0.\n  What to do: Write 1 or more"):
        tf.lookup.StaticVocabularyTable(known, 0)
    with pytest.raises(InputError, match=r"The values have the dtype tf.float32"):
        tf.lookup.StaticVocabularyTable(known, 1)


def test_reader_processes_have_copies() -> None:
    copy = pickle.loads(pickle.dumps(words()))
    assert copy.lookup(["b", "q"]).tolist() == [2, -1]


def test_workers_of_parameter_servers_look_up() -> None:
    cluster = Cluster()
    try:
        strategy = stratagem.ParameterServerStrategy(cluster.resolver)
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        with strategy.scope():
            table = numbers()

        @tf.function
        def step(keys: Any) -> Any:
            return keras.ops.sum(table.lookup(keys))

        results = [coordinator.schedule(step, args=(np.array([3, 5, 4]),)) for _ in range(3)]
        assert [int(result.fetch()) for result in results] == [78, 78, 78]
        strategy.close()
    finally:
        cluster.close()
