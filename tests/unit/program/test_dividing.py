"""Variables are divided in groups while a program makes or assigns them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import keras
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import stratagem
from stratagem.program import dividing as module
from stratagem.program.compat import stored_value
from stratagem.program.dividing import current_division, dividing, whole

DIVIDED = PartitionSpec("replica")
SIZE = 64 * 64 * 4
"""Bytes of a kernel in these tests."""


@pytest.fixture(autouse=True)
def groups_of_two(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "GROUP_BYTES", 2 * SIZE)
    yield
    assert current_division() is None


@pytest.fixture
def strategy() -> Any:
    return stratagem.MirroredStrategy([f"cpu:{i}" for i in range(4)], shard="parameters", shard_min_size=64)


def kernel(value: float = 1.0, **kwargs: Any) -> Any:
    return keras.Variable(np.full((64, 64), value, "float32"), **kwargs)


def spec(variable: Any) -> Any:
    return getattr(variable.value.sharding, "spec", None)


def test_a_group_is_divided_when_the_next_variable_is_made(strategy: Any) -> None:
    made: list[Any] = []
    seen = []
    with strategy.scope():
        for number in range(5):
            made.append(kernel(number))
            seen.append(sum(spec(each) == DIVIDED for each in made))
    assert seen == [0, 0, 2, 2, 4]
    for number, variable in enumerate(made):
        assert spec(variable) == DIVIDED
        assert [shard.data.nbytes for shard in variable.value.addressable_shards] == [SIZE // 4] * 4
        np.testing.assert_array_equal(variable.numpy(), np.full((64, 64), number))


def test_what_is_no_weight_stays_whole(strategy: Any) -> None:
    with strategy.scope():
        others = {
            "small": keras.Variable(np.ones(8, "float32")),
            "statistics": keras.Variable(np.ones(256, "float32"), trainable=False),
            "summed": kernel(trainable=False, aggregation="sum"),
            "of each replica": kernel(trainable=False, synchronization="on_read"),
            "replaced by its gradient": kernel(),
            "not divisible": keras.Variable(np.ones((63, 63), "float32")),
            "of a metric": keras.metrics.MeanIoU(64).total_cm,
        }
        others["replaced by its gradient"].overwrite_with_gradient = True
        optimizer = keras.optimizers.Adagrad()
        frozen = kernel(trainable=False)
        optimizer.build([frozen])
        others["slot"] = optimizer.variables[-1]
    assert [name for name, variable in others.items() if spec(variable) is not None] == []
    assert spec(frozen) == DIVIDED


@pytest.mark.parametrize("shard", ["optimizer", None])
def test_other_stages_divide_nothing(shard: str | None) -> None:
    other = stratagem.MirroredStrategy(["cpu:0", "cpu:1"], shard=shard)
    with other.scope():
        assert current_division() is None
        assert spec(kernel()) is None


def test_a_value_that_was_assigned_in_the_scope_is_divided_again(strategy: Any) -> None:
    with strategy.scope():
        first, second, third = kernel(1), kernel(2), kernel(3)
        assert [spec(each) for each in (first, second, third)] == [DIVIDED, DIVIDED, None]
        first.assign(np.full((64, 64), 7.0))
        second.assign_add(np.full((64, 64), 1.0))
        third.assign(first)
    assert [spec(each) for each in (first, second, third)] == [DIVIDED] * 3
    assert [float(each.numpy()[5, 5]) for each in (first, second, third)] == [7, 3, 7]
    first.assign(np.zeros((64, 64)))
    assert spec(first) is None  # outside, until the next step


def test_slots_that_a_file_gives_wholes_go_back_to_shards(strategy: Any) -> None:
    with strategy.scope():
        weight, optimizer = kernel(), keras.optimizers.Adam()
        optimizer.build([weight])
        slot = optimizer.variables[-1]
        assert spec(slot) == DIVIDED
        slot.assign(np.full((64, 64), 2.0))
        assert spec(slot) is None
    assert spec(slot) == DIVIDED
    np.testing.assert_array_equal(slot.numpy(), np.full((64, 64), 2))


def test_dtypes_do_not_change_where_a_layer_is_built_in_the_midst_of_another(strategy: Any) -> None:
    class Outer(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__(dtype="mixed_bfloat16")
            self.parts = [keras.layers.Dense(64, kernel_initializer=keras.initializers.Constant(0.3)) for _ in range(4)]

        def build(self, input_shape: Any) -> None:
            self.built = True

        def call(self, x: Any) -> Any:
            for part in self.parts:
                x = part(x)
            return x

    with strategy.scope():
        outer = Outer()
        outer(np.ones((1, 64), "float32"))
    kernels = [part.kernel for part in outer.parts]
    assert [str(stored_value(each).dtype) for each in kernels] == ["float32"] * 4
    assert {float(np.asarray(each)[0, 0]) for each in kernels} == {float(np.float32(0.3))}


def test_an_exception_leaves_what_was_made(strategy: Any) -> None:
    made = []

    def fails() -> None:
        with strategy.scope():
            made.append(kernel())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert spec(made[0]) is None


def test_within_another_and_while_whole_it_does_nothing(strategy: Any) -> None:
    with dividing(strategy, strategy.sharding, "outer"):
        outer = current_division()
        with dividing(strategy, strategy.sharding, "inner"):
            assert current_division() is outer
        with whole():
            assert current_division() is None
        with keras.StatelessScope():
            assert current_division() is None
        assert current_division() is outer


def test_workers_compare_what_they_divide() -> None:
    class Compared:
        def __init__(self) -> None:
            self.mesh = stratagem.MirroredStrategy(["cpu:0", "cpu:1"]).mesh
            self.seen: list[Any] = []

        def check_agreement(self, name: str, fields: Any) -> None:
            self.seen.append((name, dict(fields)))

    sharding = stratagem.MirroredStrategy(["cpu:0", "cpu:1"], shard="parameters", shard_min_size=64).sharding
    compared = Compared()
    variables = [kernel(name=f"k{number}") for number in range(3)]
    with dividing(compared, sharding, "reading"):
        for variable in variables:
            variable.shard_axis = 0
            variable.assign(np.ones((64, 64)))
    paths = [f"variable {i} k{i}" for i in range(3)]
    fact = "float32[64, 64]"
    assert compared.seen == [
        ("reading", {"group": 1, "is the last": "False", paths[0]: fact, paths[1]: fact}),
        ("reading", {"group": 2, "is the last": "True", "variable 0 k2": fact}),
    ]
    with dividing(compared, sharding, "nothing"):
        pass
    assert len(compared.seen) == 2


X, Y = np.random.RandomState(0).rand(16, 64).astype("float32"), np.arange(16) % 10


def sequential() -> Any:
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(64, activation="tanh") for _ in range(4)]
    model = keras.Sequential([keras.Input((64,)), *layers, keras.layers.Dense(10)])
    model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def called(model: Any) -> Any:
    return np.asarray(model(X))


def copied(model: Any) -> Any:
    model.layers[1].kernel.assign(model.layers[0].kernel)
    model.layers[2].set_weights([np.ones((64, 64)) / 64, np.zeros(64)])
    return model.get_weights()


def with_lora(model: Any) -> Any:
    model.layers[0].enable_lora(4)
    return called(model)


def quantized(model: Any) -> Any:
    model.layers[0].quantize("int8")
    return called(model)


def fitted(model: Any) -> Any:
    return model.fit(X, Y, batch_size=8, epochs=2, verbose=0, shuffle=False).history["loss"]


def in_a_loop(model: Any) -> Any:
    def step(x: Any, y: Any) -> Any:
        with stratagem.GradientTape() as tape:
            losses = keras.losses.sparse_categorical_crossentropy(y, model(x, training=True), from_logits=True)
            loss = keras.ops.sum(losses) / 16
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    strategy = stratagem.get_strategy()
    dataset = stratagem.data.Dataset.from_tensor_slices((X, Y)).batch(16)
    batches = strategy.experimental_distribute_dataset(dataset)
    return [float(strategy.reduce("SUM", strategy.run(step, args=batch), None)) for _ in range(2) for batch in batches]


USES: dict[str, Callable[[Any], Any]] = {
    "call": called,
    "copies": copied,
    "lora": with_lora,
    "int8": quantized,
    "fit": fitted,
    "loop": in_a_loop,
}


@pytest.mark.parametrize(
    "use", [use if use in ("fit", "loop") else pytest.param(use, marks=pytest.mark.thorough) for use in USES]
)
def test_a_model_is_used_in_the_scope_as_without_shards(strategy: Any, use: str) -> None:
    found = []
    for chosen in (stratagem.MirroredStrategy([f"cpu:{i}" for i in range(4)]), strategy):
        with chosen.scope():
            model = sequential()
            used = USES[use](model)
        again = fitted(model)
        found.append((jax.tree.leaves(used), again))
    for plain, sharded in zip(found[0][0], found[1][0], strict=True):
        np.testing.assert_allclose(sharded, plain, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=1e-5)
