"""Modules in folders: variables, functions without their Python, signatures, under strategies and without.

The numbers and names are TensorFlow 2.21's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stratagem.tf as tf
from stratagem.core.errors import CheckpointError, InputError


class Line(tf.Module):
    """A module with nested variables, plain values, and functions of several kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = tf.Variable(3.0, name="slope")
        self.more = [tf.Variable([1.0, 2.0], trainable=False), {"deep": tf.Variable(2, dtype=tf.int32)}, 7]
        self.generator = tf.random.Generator.from_seed(0)
        self.note = "not saved"

    @tf.function
    def __call__(self, x: Any, factor: int = 2, *, bias: bool = False) -> Any:
        return self.slope * x * factor + (1.0 if bias else 0.0)

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="rows"), tf.TensorSpec([None], tf.float32)])
    def both(self, x: Any, y: Any) -> Any:
        return tf.reduce_sum(x, axis=1) + y, self.slope * y

    @tf.function
    def step(self) -> None:
        self.slope.assign_add(1.0)
        self.generator.normal([])


def saved(module: Any, folder: Path, **options: Any) -> Any:
    tf.saved_model.save(module, folder, **options)
    assert tf.saved_model.contains_saved_model(folder)
    return tf.saved_model.load(folder)


def replicas() -> Any:
    return tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])


def test_a_module_is_loaded_without_its_class(tmp_path: Path) -> None:
    module = Line()
    module(tf.ones([2]))
    module(tf.ones([3]), factor=4, bias=True)
    module.step()
    loaded = saved(module, tmp_path)
    assert not isinstance(loaded, Line)
    np.testing.assert_array_equal(loaded(tf.constant([1.0, 2.0])), [8.0, 16.0])
    np.testing.assert_array_equal(loaded(tf.ones([3]), 4, bias=True), [17.0] * 3)
    assert loaded.more[0].numpy().tolist() == [1.0, 2.0]
    assert not loaded.more[0].trainable
    assert (loaded.more[1]["deep"].numpy(), loaded.more[1]["deep"].dtype) == (2, "int32")
    assert loaded.more[2] is None
    assert not hasattr(loaded, "note")
    module.step()
    loaded.step()
    assert (float(loaded.slope), float(module.slope)) == (5.0, 5.0)
    np.testing.assert_array_equal(loaded.generator.state, module.generator.state)


def test_what_was_not_saved_is_refused(tmp_path: Path) -> None:
    module = Line()
    module(tf.ones([2]))
    loaded = saved(module, tmp_path)
    for given in (tf.ones([4]), tf.constant([1, 2]), "text", [1.0, 2.0]):
        with pytest.raises(
            InputError, match=r"(?s)Could not find matching concrete.*saved for \(float32\[2\], 2, False\)"
        ):
            loaded(given)
    with pytest.raises(InputError, match=r"(?s)saved for nothing: it was never called"):
        loaded.step()
    with pytest.raises(InputError, match="without a saved __call__ was called"):
        saved(tf.train.Checkpoint(v=tf.Variable(1.0)), tmp_path)()


def test_the_one_function_with_a_signature_serves(tmp_path: Path) -> None:
    loaded = saved(Line(), tmp_path)
    serve = loaded.signatures["serving_default"]
    assert serve.structured_input_signature == (
        (),
        {"rows": tf.TensorSpec([None, 2], tf.float32, name="rows"), "y": tf.TensorSpec([None], tf.float32)},
    )
    assert list(serve.structured_outputs) == ["output_0", "output_1"]
    found = serve(rows=tf.ones([3, 2]), y=tf.constant([1.0, 2.0, 3.0]))
    assert {name: value.tolist() for name, value in found.items()} == {
        "output_0": [3.0, 4.0, 5.0],
        "output_1": [3.0, 6.0, 9.0],
    }
    with pytest.raises(InputError, match="Give rows=, y="):
        serve(x=tf.ones([3, 2]))


def test_signatures_by_name(tmp_path: Path) -> None:
    module = Line()
    of_any_rank = module.__call__.get_concrete_function(tf.TensorSpec(None))
    loaded = saved(module, tmp_path, signatures={"scale": of_any_rank, "both": module.both})
    assert sorted(loaded.signatures) == ["both", "scale"]
    for shape in ((), (2,), (2, 3, 4)):
        np.testing.assert_array_equal(loaded.signatures["scale"](tf.ones(shape))["output_0"], np.full(shape, 6.0))
        np.testing.assert_array_equal(loaded(tf.ones(shape)), np.full(shape, 6.0))
    with pytest.raises(InputError, match="The function does not say which tensors it takes"):
        tf.saved_model.save(Line(), tmp_path, signatures=module.step.python_function)


def test_batches_of_one_size(tmp_path: Path) -> None:
    class Difference(tf.Module):
        """Its arguments must have one size, which is not known."""

        @tf.function(input_signature=[tf.TensorSpec([None]), tf.TensorSpec([None])])
        def __call__(self, x: Any, y: Any) -> Any:
            return {"difference": x - y}

    loaded = saved(Difference(), tmp_path)
    found = loaded.signatures["serving_default"](x=tf.ones([3]), y=tf.constant([1.0, 2.0, 3.0]))
    assert found["difference"].tolist() == [0.0, -1.0, -2.0]


@pytest.mark.parametrize("save_in_scope", [True, False])
def test_a_module_moves_between_strategies(tmp_path: Path, save_in_scope: bool) -> None:
    strategy = replicas()
    with strategy.scope():
        module = Line()
        module(tf.ones([2]))
        module.step()
        if save_in_scope:
            tf.saved_model.save(module, tmp_path)
    if not save_in_scope:
        tf.saved_model.save(module, tmp_path)
    np.testing.assert_array_equal(tf.saved_model.load(tmp_path)(tf.ones([2])), [8.0, 8.0])
    with strategy.scope():
        loaded = tf.saved_model.load(tmp_path)
    assert loaded.slope.distribute_strategy is strategy
    for value in strategy.experimental_local_results(strategy.run(loaded, args=(tf.ones([2]),))):
        np.testing.assert_array_equal(value, [8.0, 8.0])
    again = saved(loaded, tmp_path / "again")
    np.testing.assert_array_equal(again(tf.ones([2])), [8.0, 8.0])


def test_on_read_variables_are_saved_whole(tmp_path: Path) -> None:
    class Sum(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.v = tf.Variable(
                0.0, synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM
            )

        @tf.function(input_signature=[])
        def __call__(self) -> Any:
            return self.v.read_value()

    strategy = replicas()
    with strategy.scope():
        module = Sum()
        module.v.assign(10.0)
        tf.saved_model.save(module, tmp_path)
    loaded = tf.saved_model.load(tmp_path)
    assert (float(loaded.v), float(loaded())) == (10.0, 10.0)
    with strategy.scope():
        loaded = tf.saved_model.load(tmp_path)
    parts = strategy.experimental_local_results(strategy.run(loaded))
    assert ([float(part) for part in parts], float(loaded.v)) == ([5.0, 5.0], 10.0)


def test_a_function_that_adds_to_the_sum_of_replicas_is_saved_for_one_device(tmp_path: Path) -> None:
    class Counter(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            kind = tf.VariableSynchronization.ON_READ
            self.total = tf.Variable(4.0, synchronization=kind, aggregation=tf.VariableAggregation.SUM)

        @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
        def update(self, value: Any) -> Any:
            self.total.assign_add(value)
            self.total.assign_sub(1.0)
            return self.total + 1.0

    with replicas().scope():
        counter = Counter()
        counter.total.assign(4.0)
        loaded = saved(counter, tmp_path)
    assert float(loaded.update(3.0)) == 7.0
    assert float(loaded.update(3.0)) == 9.0
    assert float(counter.total.read_value()) == 4.0


def test_a_function_that_needs_python_is_left_out_or_explained(tmp_path: Path) -> None:
    class Finds(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = tf.Variable(2.0)
            self.table = tf.lookup.experimental.MutableHashTable("int64", "int64", -1)

        @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
        def find(self, key: Any) -> Any:
            return self.table.lookup(key)

    finds = Finds()
    assert float(saved(finds, tmp_path, signatures={}).weight) == 2.0
    with pytest.raises(InputError, match="needs Python at each call"):
        tf.saved_model.save(finds, tmp_path)


def test_a_loaded_function_has_a_gradient(tmp_path: Path) -> None:
    module = Line()
    module(tf.ones([2]))
    loaded = saved(module, tmp_path)
    with tf.GradientTape() as tape:
        y = loaded(tf.constant([1.0, 2.0]))
    assert float(tape.gradient(y, loaded.slope)) == 6.0


def test_a_function_that_cannot_be_saved_is_left_out(tmp_path: Path) -> None:
    strategy = replicas()

    class Trained(Line):
        """A module whose training runs on replicas."""

        @tf.function
        def train(self) -> Any:
            return strategy.run(lambda: self.slope.assign_add(1.0))

        @tf.function(input_signature=[tf.TensorSpec([None])])
        def checked(self, x: Any) -> Any:
            tf.debugging.assert_positive(x)
            return x * self.slope

    with strategy.scope():
        module = Trained()
        module.train()
    loaded = saved(module, tmp_path)
    assert loaded.checked(tf.ones([2])).tolist() == [4.0, 4.0]
    with pytest.raises(InputError, match=r"train was left out of the file(?s:.*)calls strategy\.run"):
        loaded.train()


def test_a_model_in_a_module(tmp_path: Path) -> None:
    model = tf.keras.Sequential([tf.keras.layers.Input((3,)), tf.keras.layers.Dense(2)])
    module = tf.Module()
    module.model = model
    module.serve = tf.function(lambda x: {"y": model(x)}, input_signature=[tf.TensorSpec([None, 3], name="x")])
    loaded = saved(module, tmp_path, signatures=module.serve)
    x = np.arange(6.0, dtype="float32").reshape(2, 3)
    np.testing.assert_allclose(loaded.signatures["serving_default"](x=x)["y"], model(x), rtol=1e-6)
    assert len(loaded.variables) == 2
    loaded.variables[0].assign(tf.zeros([2]))  # the bias


def test_one_variable(tmp_path: Path) -> None:
    loaded = saved(tf.Variable([1.0, 2.0], name="v"), tmp_path)
    assert isinstance(loaded, tf.Variable)
    assert loaded.numpy().tolist() == [1.0, 2.0]


def test_a_folder_holds_what_was_saved_last(tmp_path: Path) -> None:
    model = tf.keras.Sequential([tf.keras.layers.Input((3,)), tf.keras.layers.Dense(2)])
    tf.saved_model.save(model, tmp_path)
    assert not hasattr(saved(Line(), tmp_path), "model")
    assert saved(model, tmp_path).model.count_params() == 8


def test_what_cannot_be_saved_is_explained(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"given a dict(?s:.*)a tf\.Module with them"):
        tf.saved_model.save({"v": tf.Variable(1.0)}, tmp_path)
    module = Line()
    tf.saved_model.save(module, tmp_path)
    file = tmp_path / "saved_model.safetensors"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(CheckpointError, match="damaged"):
        tf.saved_model.load(tmp_path)
