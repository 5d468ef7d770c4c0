"""Parts of variables on a parameter server: values, versions, slots, and what must be restored."""

from __future__ import annotations

import jax
import keras
import ml_dtypes  # noqa: F401 - NumPy knows bfloat16 then
import numpy as np
import pytest

from stratagem.core.errors import InputError, UnavailableError, UsageError
from stratagem.ps.compat import optimizer_recipe
from stratagem.ps.server.store import Store, StoredPart


def make_store(optimizer: keras.optimizers.Optimizer | None = None) -> Store:
    store = Store()
    store.create("weight", StoredPart(np.array([1.0, 2.0], "float32")))
    store.define_optimizer("it", optimizer_recipe(optimizer or keras.optimizers.SGD(momentum=0.5)))
    return store


def values(store: Store, name: str = "weight") -> list[float]:
    return store.read(name)[0].tolist()


def test_each_change_counts_as_a_version() -> None:
    store = make_store()
    assert store.read("weight")[1] == 0
    store.write("weight", np.array([4.0, 5.0]))
    store.add("weight", np.array([1.0, -1.0]))
    assert values(store) == [5.0, 4.0]
    assert store.read("weight")[1] == 2
    assert store.read("weight")[0].dtype == "float32"


def test_a_part_that_is_here_stays_as_it_is() -> None:
    store = make_store()
    store.create("weight", StoredPart(np.zeros(2, "float32")))
    assert values(store) == [1.0, 2.0]
    assert store.names() == ["weight"]


def test_gradients_are_applied_with_the_slots_of_the_part() -> None:
    store = make_store()
    for step in range(2):  # momentum: -1, then 0.5 * -1 - 1
        store.apply("weight", np.ones(2, "float32"), "it", step, 1.0, seen=None)
    assert values(store) == [-1.5, -0.5]
    assert values(store, "weight|it|0") == [-1.5, -1.5]
    store.write("weight|it|0", np.zeros(2))
    store.apply("weight", np.ones(2, "float32"), "it", 2, 1.0, seen=None)
    assert values(store) == [-2.5, -1.5]


def test_staleness_is_counted() -> None:
    store = make_store()
    for seen in (0, 0, 1):
        store.apply("weight", np.ones(2, "float32"), "it", 0, 0.0, seen)
    assert (store.updates, store.staleness, store.max_staleness) == (3, 2, 1)


def test_operations_are_done_in_order() -> None:
    store = make_store()
    operations = [
        {"op": "set", "name": "weight"},
        {"op": "add", "name": "weight"},
        {"op": "apply", "name": "weight", "optimizer": "it", "iterations": 0, "rate": 0.5, "in_rows": True},
    ]
    arrays = [np.zeros(2), np.full(2, 3.0), np.array([1]), np.array([2.0], "float32")]
    store.change(operations, arrays)
    assert values(store) == [3.0, 2.0]
    with pytest.raises(InputError, match=r"cannot do .*'op': 'drop'"):
        store.change([{"op": "drop", "name": "weight"}], [np.zeros(2)])


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_after_the_first_update_nothing_is_put_on_the_device(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store()
    store.create("other", StoredPart(np.array([[3.0]], "float32")))
    names = ["weight", "other", "weight"]
    operations = [{"op": "apply", "name": name, "optimizer": "it", "iterations": 0, "rate": 1.0} for name in names]
    gradients = [np.ones(2, dtype), np.full((1, 1), 2, dtype), np.full(2, 3, dtype)]
    store.change(operations, gradients)
    assert values(store) == [1.0 - 1.0 - 3.5, 2.0 - 1.0 - 3.5]  # momentum: -1, then 0.5 * -1 - 3
    assert values(store, "other") == [[1.0]]
    puts: list[object] = []
    monkeypatch.setattr(jax, "device_put", lambda what, *more: puts.append(what))
    store.change(operations, gradients)
    assert puts == []
    assert values(store) == [-3.5 - 2.75 - 4.375, -2.5 - 2.75 - 4.375]


def test_what_is_awaited_must_be_restored() -> None:
    store = Store()
    store.create("dense/kernel#3", StoredPart(np.zeros(2, "float32"), awaited={"", "it|0"}))
    store.define_optimizer("it", optimizer_recipe(keras.optimizers.SGD(momentum=0.5)))
    with pytest.raises(UsageError, match=r"No value for 'dense/kernel'"):
        store.read("dense/kernel#3")
    with pytest.raises(UsageError, match="No value for"):
        store.add("dense/kernel#3", np.ones(2))
    store.write("dense/kernel#3", np.ones(2))
    assert values(store, "dense/kernel#3") == [1.0, 1.0]
    with pytest.raises(UsageError, match="No value for the slots of 'dense/kernel'"):
        store.apply("dense/kernel#3", np.ones(2, "float32"), "it", 0, 1.0, seen=None)
    store.write("dense/kernel#3|it|0", np.ones(2))
    store.apply("dense/kernel#3", np.ones(2, "float32"), "it", 0, 1.0, seen=None)
    assert values(store, "dense/kernel#3") == [0.5, 0.5]


def test_what_was_removed_is_gone() -> None:
    store = make_store()
    store.apply("weight", np.ones(2, "float32"), "it", 0, 1.0, seen=None)
    store.remove(["weight", "unknown"], ["it", "unknown"])
    with pytest.raises(UnavailableError, match="has no variable 'weight'"):
        store.read("weight")
    store.create("weight", StoredPart(np.zeros(2, "float32")))
    with pytest.raises(InputError, match="does not know optimizer 'it'"):
        store.apply("weight", np.ones(2, "float32"), "it", 0, 1.0, seen=None)


def test_a_value_of_another_shape_is_refused() -> None:
    store = make_store()
    with pytest.raises(InputError, match=r"shape \(3,\) came for 'weight', which has shape \(2,\)"):
        store.write("weight", np.zeros(3))
    assert store.read("weight")[1] == 0
