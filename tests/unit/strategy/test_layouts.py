"""`layout_map=` and `model_parallel=` of a strategy: replicas of several devices, against one device."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import stratagem
from stratagem.core.errors import InputError

LETTERS = np.random.RandomState(0).randint(0, 32, (50, 8)).astype("int32")  # of batches of 16 the last has two rows
NEXT = np.random.RandomState(1).randint(0, 32, (50, 8))
OLD_JAX = jax.__version_info__ < (0, 8)
GRIDS = {"4x1": 1, "2x2": 2, "1x4": 4}


@functools.cache
def strategy(parallel: int | None, shard: str | None = None) -> stratagem.MirroredStrategy:
    """Return the strategy of four devices, `parallel` of them in each replica; None is one device."""
    if parallel is None:
        return stratagem.MirroredStrategy(["cpu:0"])
    size = 64 if shard is not None or parallel > 1 else None
    return stratagem.MirroredStrategy(
        [f"cpu:{i}" for i in range(4)], model_parallel=parallel, shard=shard, shard_min_size=size
    )


class Experts(keras.layers.Layer):
    """A mixture of experts, in which each row goes through all, weighted."""

    def __init__(self, experts: int, width: int) -> None:
        super().__init__(name="experts")
        self.experts, self.width = experts, width

    def build(self, input_shape: Any) -> None:
        self.gate = self.add_weight(shape=(input_shape[-1], self.experts), name="gate")
        self.inward = self.add_weight(shape=(self.experts, input_shape[-1], self.width), name="expert_in")
        self.outward = self.add_weight(shape=(self.experts, self.width, input_shape[-1]), name="expert_out")

    def call(self, x: Any) -> Any:
        gates = keras.ops.softmax(keras.ops.matmul(x, self.gate))
        inner = keras.ops.relu(keras.ops.einsum("btd,edf->btef", x, self.inward))
        return x + keras.ops.einsum("btef,efd,bte->btd", inner, self.outward, gates)


class Tied(keras.layers.Layer):
    """Scores of letters by the embeddings that the letters have at the beginning."""

    def __init__(self, embedding: keras.layers.Embedding) -> None:
        super().__init__(name="scores")
        self.embedding = embedding

    def call(self, x: Any) -> Any:
        return keras.ops.matmul(x, keras.ops.transpose(self.embedding.embeddings))


def attending(attention: Callable[[], keras.layers.Layer]) -> keras.Model:
    letters = keras.Input((8,), dtype="int32")
    embedding = keras.layers.Embedding(32, 16, name="letters")
    x = embedding(letters)
    normed = keras.layers.LayerNormalization()(x)
    x = x + attention()(normed, normed)
    x = x + keras.layers.Dense(16, name="down")(keras.layers.Dense(32, activation="gelu", name="up")(x))
    return keras.Model(letters, Tied(embedding)(x))


def heads() -> keras.layers.Layer:
    """Return attention without biases: that of keys has no gradient but rounding, of which Adam makes whole steps."""
    return keras.layers.MultiHeadAttention(4, 4, use_bias=False, name="attention")


def grouped_heads() -> keras.layers.Layer:
    """Return attention in which two heads share keys and values."""
    return keras.layers.GroupQueryAttention(4, 4, 2, use_bias=False, name="attention")


def experts() -> keras.Model:
    letters = keras.Input((8,), dtype="int32")
    x = Experts(4, 16)(keras.layers.Embedding(32, 16)(letters))
    return keras.Model(letters, keras.layers.Dense(32)(x))


MODELS: dict[str, Callable[[], keras.Model]] = {
    "heads": lambda: attending(heads),
    "grouped heads": lambda: attending(grouped_heads),
    "experts": experts,
}


def fitted(
    own: stratagem.MirroredStrategy, make: Callable[[], keras.Model], epochs: int = 2, **options: Any
) -> tuple[list[float], keras.Model]:
    keras.utils.set_random_seed(1)
    with own.scope():
        model = make()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"], **options)
    history = model.fit(LETTERS, NEXT, batch_size=16, epochs=epochs, verbose=0)
    return history.history["loss"], model


def values(model: keras.Model) -> list[np.ndarray]:
    return [np.asarray(variable.value) for variable in [*model.variables, *model.optimizer.variables]]


def check_equal(found: tuple[list[float], keras.Model], expected: tuple[list[float], keras.Model]) -> None:
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    for own, wanted in zip(values(found[1]), values(expected[1]), strict=True):
        np.testing.assert_allclose(own, wanted, rtol=1e-5, atol=1e-5)


@functools.cache
def on_one_device(name: str) -> tuple[list[float], keras.Model]:
    return fitted(strategy(None), MODELS[name])


def axes(model: keras.Model) -> dict[str, PartitionSpec]:
    return {variable.path: variable.value.sharding.spec for variable in model.weights if variable.shape}


@pytest.mark.parametrize(
    ("grid", "shard", "name"),
    [
        ("2x2", None, "heads"),
        *(pytest.param(grid, None, name, marks=pytest.mark.thorough) for grid in GRIDS for name in MODELS),
        *(pytest.param("2x2", "optimizer", name, marks=pytest.mark.thorough) for name in MODELS),
        *(pytest.param("2x2", "gradients", name, marks=pytest.mark.thorough) for name in MODELS),
        *(pytest.param("2x2", "parameters", name, marks=pytest.mark.thorough) for name in MODELS),
    ],
)
def test_all_grids_compute_the_numbers_of_one_device(grid: str, shard: str | None, name: str) -> None:
    check_equal(fitted(strategy(GRIDS[grid], shard), MODELS[name]), on_one_device(name))


def test_weights_and_slots_lie_on_the_devices_of_a_replica() -> None:
    _, model = fitted(strategy(2), MODELS["heads"])
    rows, columns, heads = PartitionSpec("model"), PartitionSpec(None, "model"), PartitionSpec(None, "model")
    found = axes(model)
    assert found["letters/embeddings"] == rows
    assert found["attention/query/kernel"] == heads
    assert found["attention/attention_output/kernel"] == rows
    assert (found["up/kernel"], found["down/kernel"]) == (columns, rows)
    slots = {variable.name: variable.value.sharding.spec for variable in model.optimizer.variables}
    assert (slots["up_kernel_momentum"], slots["down_kernel_velocity"]) == (columns, rows)
    kernel = model.get_layer("up").kernel.value
    assert {piece.data.shape for piece in kernel.addressable_shards} == {(16, 16)}


@pytest.mark.thorough
def test_shards_of_replicas_lie_on_another_axis() -> None:
    _, model = fitted(strategy(2, "parameters"), MODELS["heads"])
    assert axes(model)["up/kernel"] == PartitionSpec("replica", "model")
    kernel = model.get_layer("up").kernel.value
    assert {piece.data.shape for piece in kernel.addressable_shards} == {(8, 16)}


@pytest.mark.thorough
def test_a_map_of_the_users_says_it_for_weights_and_outputs(capsys: pytest.CaptureFixture[str]) -> None:
    layout_map = {
        ".*/query/kernel": (None, "model", None),
        "up/kernel": (None, "model"),
        "down/kernel": ("model", None),
        **({} if OLD_JAX else {"up/output": (None, None, "model")}),
        "nothing": ("model",),
    }
    own = stratagem.MirroredStrategy([f"cpu:{i}" for i in range(4)], layout_map=layout_map, model_parallel=2)
    found = fitted(own, MODELS["heads"])
    check_equal(found, on_one_device("heads"))
    assert axes(found[1])["up/kernel"] == PartitionSpec(None, "model")
    assert axes(found[1])["letters/embeddings"] == PartitionSpec()
    said = capsys.readouterr().err
    assert "no weight that the layout map calls 'nothing'" in said
    assert keras.distribution.distribution() is None


@pytest.mark.thorough
def test_evaluate_and_predict_give_the_rows_of_one_device() -> None:
    found, expected = fitted(strategy(2), MODELS["heads"])[1], on_one_device("heads")[1]
    np.testing.assert_allclose(
        found.predict(LETTERS, batch_size=16, verbose=0), expected.predict(LETTERS, batch_size=16, verbose=0), atol=1e-5
    )
    np.testing.assert_allclose(
        found.evaluate(LETTERS, NEXT, verbose=0), expected.evaluate(LETTERS, NEXT, verbose=0), rtol=1e-5
    )


@pytest.mark.thorough
@pytest.mark.parametrize("options", [{"run_eagerly": True}, {"steps_per_execution": 3}, {"jit_compile": False}])
def test_other_ways_of_running_steps(options: dict[str, Any]) -> None:
    check_equal(fitted(strategy(2), MODELS["heads"], **options), on_one_device("heads"))


@pytest.mark.parametrize(
    ("parallel", "shard"),
    [(2, None), *(pytest.param(*each, marks=pytest.mark.thorough) for each in [(4, None), (2, "parameters")])],
)
def test_a_loop_of_ones_own(parallel: int, shard: str | None) -> None:
    def trained(own: stratagem.MirroredStrategy) -> list[float]:
        keras.utils.set_random_seed(1)
        with own.scope():
            model, optimizer = MODELS["heads"](), keras.optimizers.Adam(0.01)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
        dataset = stratagem.data.Dataset.from_tensor_slices((LETTERS, NEXT)).batch(16)

        @stratagem.function
        def step(inputs: Any) -> Any:
            def replica(x: Any, y: Any) -> Any:
                with stratagem.GradientTape() as tape:
                    each = keras.ops.mean(loss(y, model(x, training=True)), axis=-1)
                    value = stratagem.nn.compute_average_loss(each, global_batch_size=16)
                gradients = tape.gradient(value, model.trainable_variables)
                optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
                return value

            return own.reduce("SUM", own.run(replica, args=inputs), axis=None)

        return [float(step(batch)) for batch in own.experimental_distribute_dataset(dataset)]

    np.testing.assert_allclose(trained(strategy(parallel, shard)), trained(strategy(None)), rtol=1e-5)


@pytest.mark.thorough
def test_what_was_trained_is_saved_and_resumed(tmp_path: Path) -> None:
    own = strategy(2, "optimizer")
    _, model = fitted(own, MODELS["heads"])
    model.save_weights(tmp_path / "model.weights.h5")
    again = MODELS["heads"]()
    again.load_weights(tmp_path / "model.weights.h5")
    for one, other in zip(again.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)

    def resumed(epochs: int, parallel: int) -> tuple[list[float], keras.Model]:
        keras.utils.set_random_seed(1)
        with strategy(parallel, "optimizer").scope():
            model = MODELS["heads"]()
            model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        backup = stratagem.callbacks.BackupAndRestore(tmp_path / "backup", delete_checkpoint=False)
        history = model.fit(LETTERS, NEXT, batch_size=16, epochs=epochs, verbose=0, callbacks=[backup])
        return history.history["loss"], model

    resumed(1, 2)
    losses, last = resumed(3, 2)
    keras.utils.set_random_seed(1)
    with own.scope():
        whole = MODELS["heads"]()
        whole.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    history = whole.fit(LETTERS, NEXT, batch_size=16, epochs=3, verbose=0).history["loss"]
    assert losses == history
    for one, other in zip(values(last), values(whole), strict=True):
        np.testing.assert_array_equal(one, other)


def test_devices_that_make_no_whole_groups_say_so() -> None:
    with pytest.raises(InputError, match=r"This machine has 4 CPU device\(s\); model_parallel is 3"):
        stratagem.MirroredStrategy([f"cpu:{i}" for i in range(4)], model_parallel=3)


def test_a_layout_that_does_not_divide_says_so_before_anything_is_trained() -> None:
    devices = [f"cpu:{i}" for i in range(4)]
    own = stratagem.MirroredStrategy(devices, layout_map={".*up/kernel": (None, "model")}, model_parallel=4)
    layers = [keras.Input((8,)), keras.layers.Dense(30, name="up")]
    with pytest.raises(InputError, match=r"up/kernel \[8, 30\].*30 does not divide among 4 devices"), own.scope():
        keras.Sequential(layers)


def test_a_replica_is_one_of_as_many_as_there_are_groups() -> None:
    own = strategy(2)
    assert own.num_replicas_in_sync == 2
    numbers = own.run(lambda: stratagem.get_replica_context().replica_id_in_sync_group)
    assert [int(number) for number in own.experimental_local_results(numbers)] == [0, 1]
    assert len(own.extended.worker_devices) == 2
