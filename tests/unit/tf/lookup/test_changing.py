"""Tables that a program changes, and checkpoints of them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stratagem.tf as tf
from stratagem.errors import InputError, UsageError


def words() -> Any:
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    table.insert(tf.constant(["a", "b", "a"]), tf.constant([1, 2, 3], tf.int64))
    return table


def contents(table: Any) -> dict[Any, Any]:
    keys, values = table.export()
    return dict(zip(keys.tolist(), np.asarray(values).tolist(), strict=True))


def test_entries_come_and_go() -> None:
    table = words()
    assert table.lookup(tf.constant(["a", "q"])).tolist() == [3, -1]
    assert contents(table) == {b"a": 3, b"b": 2}
    table.remove(tf.constant(["a", "nope"]))
    assert (int(table.size()), int(table[tf.constant("b")])) == (1, 2)
    assert table.lookup(["b", "q"], dynamic_default_values=[5, 6]).tolist() == [2, 6]


def test_values_can_be_rows() -> None:
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, [0.0, 0.0])
    table.insert(tf.constant(["a"]), tf.constant([[1.0, 2.0]]))
    assert table.lookup(tf.constant([["a"], ["q"]])).tolist() == [[[1, 2]], [[0, 0]]]
    with pytest.raises(InputError, match=r"keys of shape \(1,\) and values of shape \(1,\)"):
        table.insert(tf.constant(["a"]), tf.constant([1.0]))


def test_a_function_sees_each_change() -> None:
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0)

    @tf.function
    def count(key: Any) -> Any:
        table.insert(key, table.lookup(key) + 1)
        return table.lookup(key) * 10, table.size()

    seen = [count(tf.constant([key])) for key in (4, 4, 9)]
    assert [(value.tolist(), int(size)) for value, size in seen] == [([10], 1), ([20], 1), ([10], 2)]


def test_replicas_do_not_change_tables() -> None:
    table = words()
    with pytest.raises(UsageError, match=r"used in strategy.run or in a step of fit"):
        tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"]).run(table.size)


def test_a_copy_does_not_change() -> None:
    other = copy.copy(words())
    assert other.lookup(["a"]).tolist() == [3]
    with pytest.raises(UsageError, match=r"The table of the program would not change"):
        other.insert(["a"], [9])


def test_a_dense_table_never_has_its_two_keys() -> None:
    table = tf.lookup.experimental.DenseHashTable(tf.int64, tf.int64, default_value=-1, empty_key=0, deleted_key=-2)
    table.insert(tf.constant([11, 12], tf.int64), tf.constant([1, 2], tf.int64))
    assert table.lookup(tf.constant([11, 13], tf.int64)).tolist() == [1, -1]
    table.erase(tf.constant([11], tf.int64))
    assert contents(table) == {12: 2}
    for key, name in ((0, "empty_key"), (-2, "deleted_key")):
        with pytest.raises(InputError, match=rf"was asked for {key}, which is its {name}"):
            table.lookup(tf.constant([key]))
    with pytest.raises(InputError, match=r"empty_key and deleted_key are both 0"):
        tf.lookup.experimental.DenseHashTable(tf.int64, tf.int64, default_value=-1, empty_key=0, deleted_key=0)


class Counts(tf.Module):
    """A module with a table and a table that checkpoints leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.table = words()
        self.left_out = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0, checkpoint=False)


def test_a_checkpoint_holds_the_entries(tmp_path: Path) -> None:
    saved = Counts()
    saved.table.insert(["\xff\0"], [7])
    saved.left_out.insert([1], [1])
    path = tf.train.Checkpoint(counts=saved).save(str(tmp_path / "saved"))
    restored = Counts()
    restored.table.insert(["z"], [9])
    tf.train.Checkpoint(counts=restored).restore(path).assert_consumed()
    assert contents(restored.table) == {b"a": 3, b"b": 2, "\xff\0".encode(): 7}
    assert contents(restored.left_out) == {}
    saved.table.remove(["a"])
    tf.train.Checkpoint(counts=saved).restore(path).assert_consumed()
    assert contents(saved.table)[b"a"] == 3
