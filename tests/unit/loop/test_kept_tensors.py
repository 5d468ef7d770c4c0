"""Tensors that a compiled function keeps in an attribute, a name or a structure, and reads in the same call.

The values expected are NumPy's. TensorFlow gives the same: a tensor that is kept belongs to the call that made it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import keras
import numpy as np
import pytest

import stratagem
import stratagem.tf as tf

ROWS = [np.arange(4, dtype="float32").reshape(2, 2), np.ones((2, 2), "float32"), np.ones((3, 2), "float32")]

kept: Any = None


class Keeper:
    """An object that keeps what it has seen in attributes, some of them in structures."""

    def __init__(self) -> None:
        self.seen: Any = None
        self.pair: Any = ()
        self.named: dict[str, Any] = {}

    def __call__(self, x: Any) -> Any:
        self.seen = keras.ops.mean(x, 0)
        self.pair = (keras.ops.max(x), [keras.ops.min(x)])
        self.named["sum"] = keras.ops.sum(x)
        return x * 2


class KeepingLayer(keras.layers.Layer):
    """A layer that does the same, whose attributes Keras tracks."""

    def call(self, x: Any) -> Any:
        self.seen = keras.ops.mean(x, 0)
        self.pair = (keras.ops.max(x), [keras.ops.min(x)])
        self.named = {"sum": keras.ops.sum(x)}
        return x * 2


def read(keeper: Any, x: Any) -> Any:
    y = keeper(x)
    kept_by_it = keras.ops.sum(keeper.seen) + keeper.pair[0] + 10 * keeper.pair[1][0] + 100 * keeper.named["sum"]
    return keras.ops.sum(y) + kept_by_it


def expected(x: Any) -> float:
    return float(2 * x.sum() + x.mean(0).sum() + x.max() + 10 * x.min() + 100 * x.sum())


@pytest.mark.parametrize("make", [Keeper, KeepingLayer])
@pytest.mark.parametrize("entry", ["function", "run", "run in a function"])
def test_attributes_belong_to_the_call(make: Callable[[], Any], entry: str) -> None:
    keeper, strategy = make(), stratagem.MirroredStrategy(["cpu:0"])
    traces: list[int] = []

    def step(x: Any) -> Any:
        traces.append(1)
        return read(keeper, x)

    def run(x: Any) -> Any:
        return strategy.run(step, args=(x,))

    call = {"function": stratagem.function(step), "run": run, "run in a function": stratagem.function(run)}[entry]
    for x in [*ROWS, *ROWS]:
        assert float(call(x)) == pytest.approx(expected(x))
    before = len(traces)
    for x in ROWS:
        call(x + 1)
    assert len(traces) == before  # what a tracing left behind costs none


def test_every_replica_reads_its_own() -> None:
    keeper, strategy = Keeper(), stratagem.MirroredStrategy(["cpu:0", "cpu:1"])

    @stratagem.function
    def step(x: Any) -> Any:
        return strategy.experimental_local_results(strategy.run(lambda own: read(keeper, own), args=(x,)))

    for rows in (ROWS[0], ROWS[1]):
        values = strategy.experimental_distribute_values_from_function(lambda _, rows=rows: rows)
        assert [float(each) for each in step(values)] == pytest.approx([expected(rows)] * 2)


def test_names_and_cells_belong_to_the_call() -> None:
    cell = None

    @stratagem.function
    def step(x: Any) -> Any:
        global kept
        nonlocal cell
        kept, cell = keras.ops.mean(x), keras.ops.sum(x)
        return keras.ops.add(kept, keras.ops.multiply(cell, 10))

    for x in [*ROWS, *ROWS]:
        assert float(step(x)) == pytest.approx(x.mean() + 10 * x.sum())


def test_a_gradient_passes_through_what_is_kept() -> None:
    keeper, weight = Keeper(), keras.Variable(2.0)

    @stratagem.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            y = keeper(x * weight)
            loss = keras.ops.sum(y * keeper.seen)
        return tape.gradient(loss, weight)

    for x in [*ROWS, *ROWS]:
        assert float(step(x)) == pytest.approx(4 * 2.0 * (x * x.mean(0)).sum())


def test_each_tracing_finds_what_the_first_one_found() -> None:
    class Table:
        rows: Any = None
        late: Any

    table, losses, named = Table(), [], {}

    @stratagem.function
    def step(x: Any) -> Any:
        if table.rows is None:
            table.rows = keras.ops.arange(2.0) + keras.ops.sum(x)
        if not hasattr(table, "late"):
            table.late = (keras.ops.sum(x), [keras.ops.max(x)])
        losses.append(keras.ops.mean(x))
        named.setdefault("max", keras.ops.max(x))
        return keras.ops.sum(table.rows) + table.late[1][0] + sum(losses) + named["max"]

    for x in (ROWS[0], ROWS[1], ROWS[0]):
        assert float(step(x)) == pytest.approx(1 + 2 * x.sum() + 2 * x.max() + x.mean())
    assert len(losses) == len(named) == 1
    assert table.rows is not None


def test_a_value_put_there_outside_counts() -> None:
    keeper = Keeper()

    @stratagem.function
    def step(x: Any) -> Any:
        before, keeper.seen = keeper.seen, keras.ops.sum(x)
        return keeper.seen if before is None else keeper.seen + before

    assert float(step(ROWS[1])) == 4
    for value in (1.0, np.float32(2), keras.ops.convert_to_tensor(3.0), None):
        keeper.seen = value
        assert float(step(ROWS[1])) == 4 + (0 if value is None else float(value))


def test_a_tensor_of_another_call_cannot_be_read() -> None:
    keeper = Keeper()

    @stratagem.function
    def keep(x: Any) -> Any:
        return keeper(x)

    @stratagem.function
    def reads(x: Any) -> Any:
        return x + keeper.seen

    keep(ROWS[0])
    with pytest.raises(jax.errors.UnexpectedTracerError, match="test_kept_tensors"):
        reads(ROWS[0])


def test_structures_that_hold_themselves() -> None:
    named: dict[str, Any] = {"factor": 2.0}
    named["self"] = named
    listed: list[Any] = [3.0]
    listed.append(listed)
    keeper = Keeper()
    keeper.pair = listed

    @stratagem.function
    def step(x: Any) -> Any:
        named["mean"] = keras.ops.mean(x)
        return x * named["factor"] + listed[0] * named["mean"] + keeper.pair[0]

    for x in [*ROWS, *ROWS]:
        np.testing.assert_allclose(step(x), 2 * x + 3 * x.mean() + 3, rtol=1e-6)
