"""`shard=` of a strategy: every optimizer, every way of training, on devices of one process, against whole state."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import keras
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import stratagem
from stratagem.core.errors import UnsupportedError
from stratagem.fit.step_function import StepFunction

STAGES = ("optimizer", "gradients", "parameters")
X = np.random.RandomState(0).rand(66, 16).astype("float32")  # of batches of 16 the last has two rows
Y = np.random.RandomState(1).randint(0, 10, 66)
DIVIDED, WHOLE = PartitionSpec("replica"), PartitionSpec()


@functools.cache
def strategy(stage: str | None, replicas: int = 4) -> stratagem.MirroredStrategy:
    size = None if stage is None else 64
    return stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)], shard=stage, shard_min_size=size)


def loss() -> keras.losses.Loss:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def layers() -> list[Any]:
    return [keras.layers.Dense(64, activation="relu"), keras.layers.Dense(32), keras.layers.Dense(10)]


def sequential() -> keras.Sequential:
    return keras.Sequential([keras.Input((16,)), *layers()])


def fitted(
    stage: str | None,
    optimizer: Callable[[], Any] = keras.optimizers.Adam,
    make: Callable[[], keras.Model] = sequential,
    **options: Any,
) -> tuple[list[float], keras.Model]:
    keras.utils.set_random_seed(1)
    with strategy(stage).scope():
        model = make()
        model.compile(optimizer(), loss(), **options)
    history = model.fit(X, Y, batch_size=16, epochs=2, verbose=0)
    return history.history["loss"], model


def values(variables: Any) -> list[np.ndarray]:
    return [np.asarray(variable.value) for variable in variables]


def check_equal(found: Any, expected: Any, tolerance: float = 0.0) -> None:
    losses, model = found
    np.testing.assert_allclose(losses, expected[0], rtol=tolerance)
    for group in ("variables", "optimizer.variables"):
        own, wanted = (functools.reduce(getattr, group.split("."), each) for each in (model, expected[1]))
        for one, other in zip(values(own), values(wanted), strict=True):
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance / 10)


def test_slots_and_weights_rest_where_the_stage_says() -> None:
    for stage, of_weights in (("optimizer", WHOLE), ("gradients", WHOLE), ("parameters", DIVIDED)):
        _, model = fitted(stage)
        kernel, bias, _, _, _, small = model.weights
        slots = {variable.path.rsplit("/", 1)[1]: variable for variable in model.optimizer.variables}
        assert kernel.value.sharding.spec == of_weights
        assert bias.value.sharding.spec == of_weights
        assert small.value.sharding.spec == WHOLE  # ten numbers
        assert [each.value.sharding.spec for name, each in slots.items() if "kernel" in name] == [DIVIDED] * 6


_O = keras.optimizers
EXACT: dict[str, Callable[[], Any]] = {
    "sgd": lambda: _O.SGD(0.1),
    "momentum": lambda: _O.SGD(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: _O.Adam(0.01, amsgrad=True),
    "adamw": lambda: _O.AdamW(0.01),
    "adamax": lambda: _O.Adamax(0.01),
    "nadam": lambda: _O.Nadam(0.01),
    "ftrl": lambda: _O.Ftrl(0.1),
    "lion": lambda: _O.Lion(0.01),
    "rmsprop": lambda: _O.RMSprop(0.01, momentum=0.5, centered=True),
    "adagrad": lambda: _O.Adagrad(0.1),
    "adadelta": lambda: _O.Adadelta(0.1),
    "clipvalue": lambda: _O.Adam(0.01, clipvalue=0.001),
    "averages": lambda: _O.Adam(0.01, use_ema=True, ema_overwrite_frequency=3),
    "loss scale": lambda: _O.LossScaleOptimizer(_O.Adam(0.01)),
    "schedule": lambda: _O.Adam(_O.schedules.CosineDecay(0.01, 100)),
}
CLOSE: dict[str, Callable[[], Any]] = {
    "lamb": lambda: _O.Lamb(0.01),
    "adafactor": lambda: _O.Adafactor(0.01, epsilon_1=1e-6),
    "muon": lambda: _O.Muon(0.01),
    "clipnorm": lambda: _O.Adam(0.01, clipnorm=0.1),
    "global_clipnorm": lambda: _O.Adam(0.01, global_clipnorm=0.1),
    "accumulation": lambda: _O.Adam(0.01, gradient_accumulation_steps=3),
}
_QUICK = ("adam",)


@pytest.mark.parametrize(
    "name", [name if name in _QUICK else pytest.param(name, marks=pytest.mark.thorough) for name in (*EXACT, *CLOSE)]
)
def test_every_optimizer_computes_the_numbers_of_whole_state(name: str) -> None:
    optimizer, tolerance = (EXACT[name], 0.0) if name in EXACT else (CLOSE[name], 1e-5)
    expected = fitted(None, optimizer)
    assert np.isfinite(expected[0]).all()
    for stage in STAGES:
        check_equal(fitted(stage, optimizer), expected, tolerance)


class Clipped(keras.Model):
    """A step of (data) that changes weights after the update, as in a WGAN."""

    def __init__(self) -> None:
        super().__init__()
        self.of_model = layers()

    def call(self, x: Any) -> Any:
        return functools.reduce(lambda y, layer: layer(y), self.of_model, x)

    def train_step(self, data: Any) -> Any:
        x, y = data
        with stratagem.GradientTape() as tape:
            value: Any = self.compute_loss(x, y, self(x, training=True))
        gradients = tape.gradient(value, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        for weight in self.trainable_variables:
            weight.assign(keras.ops.clip(weight, -0.3, 0.3))
        return {"loss": value}


@pytest.mark.thorough
@pytest.mark.parametrize("every", [None, pytest.param(3, marks=pytest.mark.thorough)])
def test_a_step_of_ones_own_reads_and_changes_whole_weights(every: int | None) -> None:
    optimizer = functools.partial(_O.Adam, 0.01, gradient_accumulation_steps=every)
    expected = fitted(None, optimizer, Clipped)
    for stage in STAGES:
        check_equal(fitted(stage, optimizer, Clipped), expected)


@pytest.mark.thorough
def test_own_steps_accumulate_alike_on_all_replicas() -> None:
    """The replicas ended an epoch with slots that differ."""
    optimizer = functools.partial(_O.Adam, 0.01, gradient_accumulation_steps=3)
    losses, _ = fitted(None, optimizer, Clipped)
    keras.utils.set_random_seed(1)
    model = Clipped()
    with strategy(None, 1).scope():
        model.compile(optimizer(), loss())
    alone = model.fit(X, Y, batch_size=16, epochs=2, verbose=0).history["loss"]
    np.testing.assert_allclose(losses, alone, rtol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("stage", STAGES)
def test_operation_by_operation(stage: str) -> None:
    check_equal(fitted(stage, run_eagerly=True), fitted(None, run_eagerly=True))


def with_lora() -> keras.Model:
    model = sequential()
    for layer in model.layers[:2]:
        layer.enable_lora(4)
    return model


def quantized() -> keras.Model:
    model = sequential()
    model.layers[0].quantize("int8")
    model.layers[0].trainable = False
    return model


@pytest.mark.thorough
@pytest.mark.parametrize("make", [with_lora, quantized])
def test_frozen_weights_are_divided_too(make: Callable[[], keras.Model]) -> None:
    check_equal(fitted("parameters", make=make), fitted(None, make=make), 1e-6)
    frozen = [each for each in fitted("parameters", make=make)[1].non_trainable_variables if len(each.shape) == 2]
    assert frozen
    assert {each.value.sharding.spec for each in frozen} == {DIVIDED}


@pytest.mark.thorough
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_loops_of_ones_own(compiled: bool) -> None:
    def run(stage: str | None) -> tuple[list[float], Any, Any]:
        own = strategy(stage)
        keras.utils.set_random_seed(1)
        with own.scope():
            model, optimizer = sequential(), _O.Adam(0.01)
            each_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

        def step(x: Any, y: Any) -> Any:
            with stratagem.GradientTape() as tape:
                value = stratagem.nn.compute_average_loss(each_loss(y, model(x)), global_batch_size=16)
            gradients = tape.gradient(value, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return value

        def of_all(*batch: Any) -> Any:
            return own.reduce("sum", own.run(step, args=batch), axis=None)

        run_step = stratagem.function(of_all) if compiled else of_all
        dataset = own.experimental_distribute_dataset(stratagem.data.Dataset.from_tensor_slices((X, Y)).batch(16))
        return [float(run_step(*batch)) for batch in dataset], model, optimizer

    expected, plain, _ = run(None)
    for stage in STAGES:
        losses, model, optimizer = run(stage)
        assert losses == expected
        for one, other in zip(values(model.weights), values(plain.weights), strict=True):
            np.testing.assert_array_equal(one, other)
        assert optimizer.variables[2].value.sharding.spec == DIVIDED


def test_what_is_put_together_in_a_step() -> None:
    """Each weight once, new ones at the first stages, those of the step at the last; slots and gradients never."""
    for stage in ("optimizer", "parameters"):
        _, model = fitted(stage)
        step: Any = model.train_function
        assert isinstance(step, StepFunction)
        [program, *_] = [known for known, _, _ in step.step._programs.values()]
        variables = step.step.variables
        chosen = [step.step._rewritten, sorted(set(range(len(variables))) - set(step.step._rewritten))]
        args = [[variables[i].value for i in places] for places in chosen]
        rows = strategy(stage).mesh.shard_blocks
        text = str(jax.make_jaxpr(program)(*args, (rows(X[:16]), rows(Y[:16]), None)))
        assert (text.count("all_gather["), text.count("reduce_scatter[")) == (4, 4)  # two biases are small


@pytest.mark.thorough
def test_metrics_in_loops_of_ones_own_stay_whole() -> None:
    """As large as a weight, of which each replica counts a part."""
    own = strategy("parameters")
    with own.scope():
        metric = keras.metrics.MeanIoU(12)
    dataset = own.experimental_distribute_dataset(stratagem.data.Dataset.from_tensor_slices((Y, Y // 2)).batch(16))
    for batch in dataset:
        own.run(metric.update_state, args=batch)
    alone = keras.metrics.MeanIoU(12)
    alone.update_state(Y, Y // 2)
    assert float(metric.result()) == float(alone.result())
    assert metric.variables[0].value.sharding.spec == WHOLE


def test_compression_is_refused() -> None:
    options = stratagem.CommunicationOptions(compression="bf16")
    with pytest.raises(UnsupportedError, match=r"(?s)compression='bf16' and shard were.*Use one of the two"):
        stratagem.MultiWorkerMirroredStrategy(communication_options=options, shard="optimizer")
