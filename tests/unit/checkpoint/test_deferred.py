"""What becomes a part of a program after a checkpoint was restored gets its value then: numbers of TensorFlow 2.21."""

from __future__ import annotations

import copy
import gc
import logging
import pickle
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest

from stratagem.core.errors import InputError, UnmatchedError
from stratagem.train import Checkpoint


def variable(*values: float) -> Any:
    return keras.Variable(np.asarray(values, "float32"))


def test_an_attribute_that_is_set_later(tmp_path: Path) -> None:
    path = Checkpoint(a=variable(1.0), b=variable(2.0, 3.0)).save(tmp_path / "c")
    checkpoint: Any = Checkpoint(a=variable(0.0))
    status = checkpoint.restore(path).assert_existing_objects_matched()
    with pytest.raises(UnmatchedError, match=r"no object of the program took b\."):
        status.assert_consumed()
    checkpoint.b = variable(0.0, 0.0)
    status.assert_consumed()
    assert checkpoint.b.numpy().tolist() == [2.0, 3.0]
    checkpoint.b = variable(5.0, 5.0)  # the first that comes took the value
    checkpoint.a = variable(6.0)
    assert (checkpoint.b.numpy().tolist(), checkpoint.a.numpy().tolist()) == ([5.0, 5.0], [6.0])


def test_objects_within_objects_and_containers(tmp_path: Path) -> None:
    saved = Checkpoint(inner=Checkpoint(dense=variable(1.0), row=[variable(2.0), {"x": variable(3.0)}]))
    path = saved.save(tmp_path / "c")
    checkpoint: Any = Checkpoint()
    status = checkpoint.restore(path)
    inner: Any = Checkpoint()
    checkpoint.inner = inner
    inner.dense = variable(0.0)
    inner.row = [variable(0.0), {"x": variable(0.0)}]
    assert [float(v.numpy()[0]) for v in (inner.dense, inner.row[0], inner.row[1]["x"])] == [1.0, 2.0, 3.0]
    status.assert_consumed()


def test_what_comes_into_a_list_or_dictionary_later(tmp_path: Path) -> None:
    def rows(number: int) -> Any:
        return [variable(float(value)) for value in range(1, number + 1)]

    path = Checkpoint(rows=rows(5), named={"x": variable(6.0), "y": variable(7.0)}).save(tmp_path / "c")
    checkpoint: Any = Checkpoint(rows=[variable(0.0)], named={})
    status = checkpoint.restore(path)
    checkpoint.rows.append(variable(0.0))
    checkpoint.rows.extend([variable(0.0)])
    checkpoint.rows += [variable(0.0), variable(0.0)]
    checkpoint.named["x"] = variable(0.0)
    checkpoint.named.update(y=variable(0.0))
    status.assert_consumed()
    assert [float(row.numpy()[0]) for row in checkpoint.rows] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert {name: float(value.numpy()[0]) for name, value in checkpoint.named.items()} == {"x": 6.0, "y": 7.0}
    checkpoint.rows[0] = variable(9.0)  # the value was given to the one that came first
    checkpoint.named["x"] = variable(9.0)
    assert [float(each.numpy()[0]) for each in (checkpoint.rows[0], checkpoint.named["x"])] == [9.0, 9.0]


def test_a_list_that_waits_is_a_list(tmp_path: Path) -> None:
    """To copies, to files and to JAX. One that has nothing to wait for is what it was."""
    path = Checkpoint(rows=[variable(1.0), variable(2.0)]).save(tmp_path / "c")
    checkpoint: Any = Checkpoint(rows=[variable(0.0)], numbers=[1, 2])
    checkpoint.restore(path).expect_partial()
    copied = copy.deepcopy(checkpoint.numbers)
    assert (type(copied), copied, pickle.loads(pickle.dumps(checkpoint.numbers))) == (list, [1, 2], [1, 2])
    assert jax.tree.map(lambda number: number + 1, checkpoint.numbers) == [2, 3]
    whole: Any = Checkpoint(rows=[variable(0.0), variable(0.0)])
    whole.restore(path).assert_consumed()
    assert type(whole.rows) is list


def test_the_last_restore_counts_and_a_value_that_does_not_fit_is_named(tmp_path: Path) -> None:
    first = Checkpoint(b=variable(1.0)).save(tmp_path / "c")
    second = Checkpoint(b=variable(2.0)).save(tmp_path / "c")
    checkpoint: Any = Checkpoint()
    checkpoint.restore(first).expect_partial()
    checkpoint.restore(second).expect_partial()
    with pytest.raises(InputError, match=r"b .* is float32\[2\], the checkpoint has float32\[1\]"):
        checkpoint.b = variable(0.0, 0.0)
    checkpoint.b = variable(0.0)
    assert checkpoint.b.numpy().tolist() == [2.0]


def test_nested_checkpoints_have_no_counters_to_match(tmp_path: Path) -> None:
    dense = keras.layers.Dense(5, bias_initializer="ones")
    dense.build((None, 1))
    path = Checkpoint(net={"l1": dense}).save(tmp_path / "ckpt")
    bias = keras.Variable(np.zeros(5, "float32"))
    root = Checkpoint(net=Checkpoint(l1=Checkpoint(bias=bias)))
    root.restore(path).expect_partial().assert_existing_objects_matched()
    assert bias.numpy().tolist() == [1.0] * 5
    nested = Checkpoint(net=Checkpoint(bias=bias)).save(tmp_path / "nested")
    Checkpoint(net={"bias": bias}).restore(nested).assert_consumed()


def test_what_is_not_taken_is_said_when_the_status_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = Checkpoint(dense=keras.layers.Dense(1), b=variable(2.0)).save(tmp_path / "c")
    checkpoint: Any = Checkpoint(dense=keras.layers.Dense(1))
    with caplog.at_level(logging.WARNING, "stratagem"):
        checkpoint.restore(path)
        gc.collect()
        assert caplog.messages == []  # the layer is not built yet, and may have more to take
        checkpoint.dense.build((None, 2))
    assert [message.partition(": ")[2][:39] for message in caplog.messages] == [
        "no object of the program took b. Call s"
    ]
    checkpoint.b = variable(0.0)
    assert checkpoint.b.numpy().tolist() == [2.0]
