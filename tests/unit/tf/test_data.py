"""`tf.data` under TensorFlow's names."""

from __future__ import annotations

import numpy as np
import pytest

import stratagem.tf as tf


def test_options_as_programs_set_them() -> None:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    options.experimental_deterministic = False
    options.deterministic = False
    options.autotune.enabled = True
    options.threading.private_threadpool_size = 4
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_slack = True
    dataset = tf.data.Dataset.range(4).with_options(options)
    assert dataset.options().experimental_distribute.auto_shard_policy == tf.data.experimental.AutoShardPolicy.OFF
    assert options.threading.private_threadpool_size == 4
    with pytest.raises(AttributeError, match="has no experimental_nonsense"):
        options.experimental_nonsense = 1
    with pytest.raises(AttributeError, match=r"has no threading\.threads"):
        options.threading.threads = 1


def test_older_functions_are_steps() -> None:
    dataset = tf.data.Dataset.range(6)
    experimental = tf.data.experimental
    batches = dataset.apply(experimental.map_and_batch(lambda x: x * 2, 4))
    assert [batch.numpy().tolist() for batch in batches] == [[0, 2, 4, 6], [8, 10]]
    twice = dataset.apply(experimental.shuffle_and_repeat(6, 2, seed=1))
    assert sorted(int(x) for x in twice) == sorted([*range(6)] * 2)
    assert int(experimental.cardinality(dataset.apply(experimental.assert_cardinality(6)))) == 6
    with pytest.raises(ValueError, match=r"assert_cardinality\(5\)"):
        dataset.apply(experimental.assert_cardinality(5))
    assert int(experimental.get_single_element(dataset.take(1))) == 0
    with pytest.raises(ValueError, match="several elements"):
        experimental.get_single_element(dataset)


def test_a_missing_method_says_what_to_write() -> None:
    dataset = tf.data.Dataset.range(6)
    with pytest.raises(AttributeError, match="Write padded_batch"):
        dataset.sparse_batch(3, [3])
    with pytest.raises(AttributeError, match="stratagem help data"):
        dataset.nonsense  # noqa: B018
    assert not hasattr(dataset, "fingerprint")
    windows = np.lib.stride_tricks.sliding_window_view(np.arange(6), 3, axis=0)
    found = tf.data.Dataset.from_tensor_slices(windows).batch(2)
    assert [x.numpy().tolist() for x in found.take(1)] == [[[0, 1, 2], [1, 2, 3]]]


def test_iterators_of_tensorflow_1() -> None:
    dataset = tf.data.Dataset.from_tensor_slices((np.zeros((4, 3), np.float32), np.arange(4))).batch(2)
    assert tf.compat.v1.data.get_output_shapes(dataset) == ((None, 3), (None,))
    assert tf.compat.v1.data.get_output_types(dataset) == (np.float32, np.int64)
    x, y = next(tf.compat.v1.data.make_one_shot_iterator(dataset))
    assert (x.shape, y.numpy().tolist()) == ((2, 3), [0, 1])
