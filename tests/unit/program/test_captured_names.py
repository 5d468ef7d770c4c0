"""Names of a step mean what they mean at the call: for each way in which a captured thing can change."""

from __future__ import annotations

import dataclasses
import functools
import gc
import importlib
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import keras
import numpy as np
import pytest

import stratagem

ENTRIES = ["run", "function", "run in a function"]


@pytest.fixture
def strategy() -> stratagem.Strategy:
    return stratagem.MirroredStrategy(["cpu:0", "cpu:1"])


def entry_of(kind: str, strategy: stratagem.Strategy) -> Callable[[Callable[..., Any]], Callable[..., float]]:
    """Return what makes a caller of a function: its result, as a number, by one of the ways to compile it."""

    def number(result: Any) -> float:
        return float(strategy.experimental_local_results(result)[0])

    def entry(fn: Callable[..., Any]) -> Callable[..., float]:
        if kind == "run":
            return lambda *args: number(strategy.run(fn, args=args))
        if kind == "function":
            compiled = stratagem.function(fn)
            return lambda *args: number(compiled(*args))
        outer = stratagem.function(lambda *args: strategy.run(fn, args=args))
        return lambda *args: number(outer(*args))

    return entry


@pytest.fixture(params=ENTRIES)
def compiled(request: pytest.FixtureRequest, strategy: stratagem.Strategy) -> Callable[..., Any]:
    return entry_of(request.param, strategy)


def counter(value: float) -> keras.Variable:
    return keras.Variable(value, trainable=False, aggregation="only_first_replica")


total: Any = None
settings: Any = None
flag: Any = None
word: Any = None
helper: Any = None


def add_to_global() -> Any:
    total.assign_add(1.0)
    return total.value


def test_a_global_that_is_another_variable(compiled: Any, strategy: stratagem.Strategy) -> None:
    """The issue's loop: the second variable is updated, not the first one again."""
    global total
    call = compiled(add_to_global)
    made = []
    for i in range(3):
        with strategy.scope():
            total = counter(10.0 * i)
        made.append(total)
        assert call() == 10 * i + 1
    assert [float(variable.value) for variable in made] == [1.0, 11.0, 21.0]
    total = made[0]  # an old object behind the new name
    assert call() == 2.0
    assert [float(variable.value) for variable in made] == [2.0, 11.0, 21.0]


def test_a_function_written_again_in_a_loop(strategy: stratagem.Strategy) -> None:
    found = []
    for i in range(3):
        with strategy.scope():
            inner = counter(10.0 * i)

        def step() -> None:
            inner.assign_add(1.0)  # noqa: B023

        strategy.run(step)
        found.append(float(inner.value))
    assert found == [1.0, 11.0, 21.0]


class Holder:
    """A namespace, a trainer, a configuration: an object with attributes."""

    shared = 1.0

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def step(self) -> Any:
        return self.variable.value * self.rate

    def through_another_method(self) -> Any:
        return self.step() + self.offset()

    def offset(self) -> Any:
        return keras.ops.convert_to_tensor(100.0) if self.shifted else keras.ops.convert_to_tensor(0.0)

    @property
    def doubled(self) -> Any:
        return self.variable.value * 2

    @staticmethod
    def constant() -> Any:
        return keras.ops.convert_to_tensor(3.0)


def test_attributes_of_a_global(compiled: Any) -> None:
    global settings
    settings = Holder(inner=Holder(variable=counter(2.0)), rate=3.0, mode="times")

    def step() -> Any:
        value = settings.inner.variable.value
        return value * settings.rate if settings.mode == "times" else value + settings.rate

    call = compiled(step)
    assert call() == 6.0
    settings.rate = 4.0
    assert call() == 8.0
    settings.mode = "plus"
    assert call() == 6.0
    settings.inner.variable = counter(5.0)
    assert call() == 9.0
    settings.inner = Holder(variable=counter(7.0))
    assert call() == 11.0
    settings = Holder(inner=settings.inner, rate=1.0, mode="times")
    assert call() == 7.0
    del settings.mode
    settings.mode = "plus"
    assert call() == 8.0


def test_self_of_a_method(compiled: Any) -> None:
    holder = Holder(variable=counter(2.0), rate=3.0, shifted=False)
    call = compiled(holder.through_another_method)
    assert call() == 6.0
    holder.rate = 5.0
    assert call() == 10.0
    holder.shifted = True
    assert call() == 110.0
    holder.variable = counter(4.0)
    assert call() == 120.0
    assert compiled(Holder(variable=counter(1.0), rate=1.0, shifted=False).through_another_method)() == 1.0


def test_a_method_of_another_object_each_time(strategy: stratagem.Strategy) -> None:
    holders = [Holder(variable=counter(float(i)), rate=2.0) for i in range(3)]
    found = [strategy.experimental_local_results(strategy.run(holder.step))[0] for holder in [*holders, *holders]]
    assert [float(value) for value in found] == [0.0, 2.0, 4.0, 0.0, 2.0, 4.0]


def test_properties_and_attributes_of_classes(compiled: Any) -> None:
    holder = Holder(variable=counter(2.0))
    call = compiled(lambda: holder.doubled + holder.shared + holder.constant())
    assert call() == 8.0
    holder.variable = counter(3.0)
    assert call() == 10.0
    try:
        Holder.shared = 11.0
        assert call() == 20.0
    finally:
        Holder.shared = 1.0
    assert call() == 10.0


def test_a_method_that_is_replaced(compiled: Any) -> None:
    class Model:
        def scale(self) -> float:
            return 2.0

    model, one = Model(), counter(1.0)
    call = compiled(lambda: one.value * model.scale())
    assert call() == 2.0
    Model.scale = lambda self: 3.0
    assert call() == 3.0
    model.scale = lambda: 4.0
    assert call() == 4.0


@pytest.mark.parametrize(
    "values", [(False, True, False), ("a", "b", "a"), (None, 1, None)], ids=["bool", "str", "None"]
)
def test_what_python_decides_by(compiled: Any, values: tuple[Any, ...]) -> None:
    global flag
    one, first = counter(1.0), values[0]
    call = compiled(lambda: one.value if flag == first else one.value * 10)
    found = []
    for flag in values:  # noqa: B007 - read by the function
        found.append(call())
    assert found == [1.0, 10.0, 1.0]


def test_containers(compiled: Any) -> None:
    table = {"model": counter(1.0), "rates": [1.0, 2.0], "names": ("a", "b"), "chosen": {"a"}}

    def step() -> Any:
        value = table["model"].value * sum(table["rates"])
        return value * 100 if table["names"][0] in table["chosen"] else value

    call = compiled(step)
    assert call() == 300.0
    table["rates"][1] = 3.0
    assert call() == 400.0
    table["rates"].append(1.0)
    assert call() == 500.0
    table["names"] = ("b", "a")
    assert call() == 5.0
    table["chosen"].add("b")
    assert call() == 500.0
    table["model"] = counter(2.0)
    assert call() == 1000.0


def test_items_of_a_list_and_their_attributes(compiled: Any) -> None:
    blocks = [Holder(scale=2.0, on=True), Holder(scale=3.0, on=True)]
    one = counter(1.0)

    def step() -> Any:
        value = one.value
        for block in blocks:
            value = value * block.scale if block.on else value
        return value + blocks[0].scale

    call = compiled(step)
    assert call() == 8.0
    blocks[1].scale = 5.0
    assert call() == 12.0
    blocks[1].on = False
    assert call() == 4.0
    blocks.append(Holder(scale=10.0, on=True))
    assert call() == 22.0
    blocks[0], blocks[2] = blocks[2], blocks[0]
    assert call() == 30.0


def test_a_large_container_counts_by_its_items(compiled: Any) -> None:
    many = [float(i) for i in range(2000)]
    one = counter(1.0)
    call = compiled(lambda: one.value * many[7])
    assert call() == 7.0
    many[7] = 70.0
    assert call() == 70.0


def test_defaults_and_keyword_defaults(strategy: stratagem.Strategy) -> None:
    def made(value: float) -> Callable[..., Any]:
        first, second = counter(value), counter(value + 1)

        def step(x: Any, a: Any = first, *, b: Any = second, scale: float = value) -> Any:
            return (x + a.value + b.value) * scale

        return step

    steps = [made(1.0), made(2.0)]
    found = [strategy.experimental_local_results(strategy.run(step, args=(np.float32(0),)))[0] for step in steps]
    assert [float(value) for value in found] == [3.0, 10.0]


def test_partial_functions_and_callable_objects(strategy: stratagem.Strategy) -> None:
    class Adds:
        def __init__(self, variable: Any) -> None:
            self.variable, self.by = variable, 1.0

        def __call__(self, x: Any) -> Any:
            return self.variable.value + x * self.by

    def add(variable: Any, x: Any) -> Any:
        return variable.value + x

    def result(fn: Any) -> float:
        return float(strategy.experimental_local_results(strategy.run(fn, args=(np.float32(1),)))[0])

    assert [result(functools.partial(add, counter(v))) for v in (1.0, 5.0)] == [2.0, 6.0]
    adds = Adds(counter(1.0))
    assert [result(adds), result(Adds(counter(5.0)))] == [2.0, 6.0]
    adds.by = 2.0
    assert result(adds) == 3.0
    adds.variable = counter(7.0)
    assert result(adds) == 9.0
    assert result(lambda x: adds(x) * 2) == 18.0


def test_functions_within_functions(compiled: Any) -> None:
    global settings, helper
    settings = Holder(variable=counter(2.0), rate=1.0)
    helper = lambda: settings.variable.value  # noqa: E731 - a cell that is run again

    def step() -> Any:
        def inner() -> Any:
            return helper() * settings.rate

        return inner() + sum(item.value for item in [settings.variable])

    call = compiled(step)
    assert call() == 4.0
    settings.rate = 3.0
    assert call() == 8.0
    settings.variable = counter(1.0)
    assert call() == 4.0
    helper = lambda: settings.variable.value * 100  # noqa: E731
    assert call() == 301.0


def test_an_attribute_by_its_name(compiled: Any) -> None:
    holder = Holder(variable=counter(1.0), scale=2.0)
    call = compiled(lambda: holder.variable.value * getattr(holder, "scale", 1.0))
    assert call() == 2.0
    holder.scale = 3.0
    assert call() == 3.0
    del holder.scale
    assert call() == 1.0


def test_a_local_name_for_a_captured_object(compiled: Any) -> None:
    holder = Holder(inner=Holder(variable=counter(1.0), scale=2.0))

    def step() -> Any:
        inner = holder.inner
        return inner.variable.value * inner.scale

    call = compiled(step)
    assert call() == 2.0
    holder.inner.scale = 3.0
    assert call() == 3.0
    holder.inner.variable = counter(5.0)
    assert call() == 15.0


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """A module of the program, which can be written anew and reloaded."""
    file = tmp_path / "own_settings.py"
    file.write_text("rate = 2.0\ndef scaled(x):\n    return x * rate\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield importlib.import_module("own_settings")
    del sys.modules["own_settings"]


def test_a_module_that_is_changed_and_reloaded(compiled: Any, module: types.ModuleType) -> None:
    one = counter(1.0)
    call = compiled(lambda: module.scaled(one.value) + module.rate)
    assert call() == 4.0
    module.rate = 3.0
    assert call() == 6.0
    Path(str(module.__file__)).write_text("rate = 5.0\ndef scaled(x):\n    return x * rate * 100\n")
    importlib.reload(module)
    assert call() == 505.0


def test_a_module_that_is_imported_inside(compiled: Any, module: types.ModuleType) -> None:
    one = counter(1.0)

    def step() -> Any:
        import own_settings  # type: ignore[import-not-found]
        from own_settings import rate  # type: ignore[import-not-found]

        return own_settings.scaled(one.value) + rate

    call = compiled(step)
    assert call() == 4.0
    module.rate = 3.0
    assert call() == 6.0


def test_arguments_that_are_objects(compiled: Any) -> None:
    holder = Holder(variable=counter(1.0), scale=2.0)

    def step(given: Any, table: Any) -> Any:
        return given.variable.value * given.scale + table["inner"].scale

    call, inner = compiled(step), Holder(scale=0.5)
    assert call(holder, {"inner": inner}) == 2.5
    holder.scale = 3.0
    assert call(holder, {"inner": inner}) == 3.5
    inner.scale = 10.0
    assert call(holder, {"inner": inner}) == 13.0
    assert call(Holder(variable=counter(4.0), scale=1.0), {"inner": inner}) == 14.0
    holder.variable = counter(2.0)
    assert call(holder, {"inner": inner}) == 16.0


@dataclasses.dataclass(frozen=True)
class Options:
    scale: float


def test_equal_value_objects_share_a_program(strategy: stratagem.Strategy) -> None:
    traces: list[int] = []

    def step(x: Any, options: Options) -> Any:
        traces.append(1)
        return x * options.scale

    for _ in range(3):
        strategy.run(step, args=(np.float32(1), Options(2.0)))
    once = len(traces)
    result = strategy.run(step, args=(np.float32(1), Options(3.0)))
    assert float(strategy.experimental_local_results(result)[0]) == 3.0
    assert len(traces) == 2 * once


# Arrays ----------------------------------------------------------------------------------------------


def test_an_array_behind_a_name(compiled: Any) -> None:
    """Found to change, it becomes an input: no tracing for each array."""
    traces: list[int] = []
    holder = Holder(batch=np.zeros(3, "float32"), variable=counter(1.0))

    def step() -> Any:
        traces.append(1)
        return keras.ops.sum(holder.batch) * holder.variable.value

    call = compiled(step)
    assert call() == 0.0
    holder.batch = np.ones(3, "float32")
    assert call() == 3.0
    count = len(traces)
    for i in range(4):
        holder.batch = np.full(3, i, "float32")
        assert call() == 3.0 * i
        holder.batch = jnp.full(3, i, "float32")
        assert call() == 3.0 * i
    assert len(traces) == count
    holder.batch = np.ones(5, "float32")
    assert call() == 5.0


def test_an_array_of_numpy_that_is_changed_in_place(compiled: Any) -> None:
    mask, one = np.ones(4, "float32"), counter(1.0)
    call = compiled(lambda: keras.ops.sum(mask) * one.value)
    assert call() == 4.0
    mask[:2] = 0.0
    assert call() == 2.0
    mask[2:] = 7.0
    assert call() == 14.0


def test_an_array_that_numpy_computes_with(compiled: Any) -> None:
    """It cannot be an input of the program; each of its contents has a program."""
    weights, one = np.ones(4, "float32"), counter(1.0)
    call = compiled(lambda: one.value * float(np.sum(weights)))
    found = []
    for i in (1.0, 2.0, 3.0, 1.0):
        weights[:] = i
        found.append(call())
    assert found == [4.0, 8.0, 12.0, 4.0]


# Keras's objects -------------------------------------------------------------------------------------


def small_model(units: int = 3) -> keras.Model:
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(units), keras.layers.Dense(1)])


model: Any = None
optimizer: Any = None


def train(x: Any) -> Any:
    with stratagem.GradientTape() as tape:
        loss = stratagem.nn.compute_average_loss(keras.ops.mean(keras.ops.square(model(x) - 1.0), axis=-1))
    variables = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    return loss


def trained_weights(strategy: stratagem.Strategy, make_optimizer: Callable[[], Any], seed: int) -> list[np.ndarray]:
    """Train the model and optimizer of the module by its step, made anew."""
    global model, optimizer
    keras.utils.set_random_seed(seed)
    with strategy.scope():
        model, optimizer = small_model(), make_optimizer()
    x = np.random.default_rng(0).normal(size=(6, 2)).astype("float32")
    for _ in range(3):
        strategy.run(train, args=(x,))
    return model.get_weights()


OPTIMIZERS: list[Callable[[], Any]] = [
    lambda: keras.optimizers.SGD(0.1),
    lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    lambda: keras.optimizers.Adam(0.05),
    lambda: keras.optimizers.RMSprop(0.01),
    lambda: keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5)),
]


@pytest.mark.thorough
def test_five_optimizers_with_a_model_each(strategy: stratagem.Strategy) -> None:
    """A search over optimizers: as if each were a program of its own."""
    together = [trained_weights(strategy, make, i) for i, make in enumerate(OPTIMIZERS)]
    for i, make in enumerate(OPTIMIZERS):
        alone = trained_weights(stratagem.MirroredStrategy(["cpu:0", "cpu:1"]), make, i)
        for ours, theirs in zip(together[i], alone, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_a_dropped_model_is_freed(strategy: stratagem.Strategy) -> None:
    global model, optimizer
    trained_weights(strategy, OPTIMIZERS[2], 0)
    kept = weakref.ref(model), weakref.ref(optimizer), weakref.ref(model.trainable_variables[0])
    model = optimizer = None
    gc.collect()
    assert all(reference() is None for reference in kept)


@pytest.mark.sampled(3)
def test_a_dropped_variable_is_freed(compiled: Any) -> None:
    global total
    total = counter(1.0)
    call, kept = compiled(add_to_global), weakref.ref(total)
    assert call() == 2.0
    total = counter(5.0)
    assert call() == 6.0
    gc.collect()
    assert kept() is None


def test_layers_that_are_frozen_and_thawed(strategy: stratagem.Strategy) -> None:
    """In TensorFlow `strategy.run` runs Python, so a layer that is frozen between two steps stays as it is."""
    global model, optimizer
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model, optimizer = small_model(), keras.optimizers.SGD(0.1)
    x = np.ones((4, 2), "float32")

    def changes() -> list[bool]:
        before = [variable.numpy() for variable in model.variables]
        strategy.run(train, args=(x,))
        return [bool((old != new.numpy()).any()) for old, new in zip(before, model.variables, strict=True)]

    assert changes() == [True, True, True, True]
    model.layers[0].trainable = False
    optimizer = keras.optimizers.SGD(0.1)
    assert changes() == [False, False, True, True]
    model.layers[0].trainable = True
    optimizer = keras.optimizers.SGD(0.1)
    assert changes() == [True, True, True, True]


class Scaling(keras.layers.Layer):
    """A layer of the user's own, which reads a number that the program changes."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 1.0
        self.mode = "times"

    def call(self, x: Any) -> Any:
        return x * self.scale if self.mode == "times" else x + self.scale


@pytest.mark.parametrize("around", ["alone", "sequential", "functional"])
def test_what_a_layer_reads(compiled: Any, around: str) -> None:
    layer = Scaling()
    net: Any = layer
    if around == "sequential":
        net = keras.Sequential([keras.Input((1,)), keras.layers.Flatten(), layer])
    elif around == "functional":
        inputs = keras.Input((1,))
        net = keras.Model(inputs, layer(keras.layers.Flatten()(inputs)))
    call = compiled(lambda x: keras.ops.sum(net(x)))
    x = np.full((1, 1), 3.0, "float32")
    assert call(x) == 3.0
    layer.scale = 5.0
    assert call(x) == 15.0
    layer.mode = "plus"
    assert call(x) == 8.0


def test_settings_of_keras_layers(compiled: Any) -> None:
    layer = keras.layers.Rescaling(2.0)
    dense = keras.layers.Dense(1, kernel_initializer="ones", activation=lambda x: x * word)
    dense.build((None, 1))
    call = compiled(lambda x: keras.ops.sum(dense(layer(x))))
    global word
    word = 1.0
    x = np.full((1, 1), 3.0, "float32")
    assert call(x) == 6.0
    layer.scale = 4.0
    assert call(x) == 12.0
    word = 10.0
    assert call(x) == 120.0
    dense.activation = keras.activations.relu
    assert call(-x) == 0.0


def test_a_learning_rate_that_becomes_a_schedule(strategy: stratagem.Strategy) -> None:
    with strategy.scope():
        weight, rule = keras.Variable(1.0), keras.optimizers.SGD(0.5)

    def step() -> None:
        rule.apply_gradients([(keras.ops.ones(()) / 2, weight)])

    strategy.run(step)
    assert float(weight.value) == 0.5
    rule.learning_rate = 1.0
    strategy.run(step)
    assert float(weight.value) == -0.5
    rule.learning_rate = keras.optimizers.schedules.PiecewiseConstantDecay([10], [2.0, 0.0])
    strategy.run(step)
    assert float(weight.value) == -2.5
    rule.global_clipnorm = 0.25
    strategy.run(step)
    assert float(weight.value) == pytest.approx(-2.5 - 2.0 * 0.25)


# What the function changes itself ----------------------------------------------------------------------


def test_a_variable_that_is_made_by_the_first_call(compiled: Any) -> None:
    class Lazy:
        def __init__(self) -> None:
            self.dense: Any = None
            self.traces = 0

        def step(self, x: Any) -> Any:
            self.traces += 1
            if self.dense is None:
                self.dense = keras.layers.Dense(1, kernel_initializer="ones")
            return keras.ops.sum(self.dense(x))

    lazy = Lazy()
    call, x = compiled(lazy.step), np.ones((1, 3), "float32")
    assert [call(x), call(x)] == [3.0, 3.0]
    count = lazy.traces
    assert call(x) == 3.0
    assert lazy.traces == count
    lazy.dense = keras.layers.Dense(1, kernel_initializer="zeros")
    assert call(x) == 0.0
    lazy.dense = None
    assert call(x) == 3.0


def test_a_list_that_the_function_appends_to_costs_no_tracing(compiled: Any) -> None:
    seen: list[Any] = []

    def step(x: Any) -> Any:
        seen.append(len(seen))
        return x * 2

    call = compiled(step)
    assert [call(np.float32(i)) for i in range(3)] == [0.0, 2.0, 4.0]
    count = len(seen)
    assert [call(np.float32(i)) for i in range(3)] == [0.0, 2.0, 4.0]
    assert len(seen) == count


def test_a_number_that_the_function_changes_is_told(strategy: stratagem.Strategy, capfd: Any) -> None:
    holder = Holder(steps=0, variable=counter(1.0))

    def counting_step() -> Any:
        holder.steps += 1
        return holder.variable.value

    strategy.run(counting_step)
    assert "counting_step changes 'steps'" in capfd.readouterr().err


def test_what_makes_each_call_a_tracing_is_told(strategy: stratagem.Strategy, capfd: Any) -> None:
    holder = Holder(tag="0", variable=counter(1.0))

    def tagged_step() -> Any:
        return holder.variable.value if holder.tag else None

    for i in range(8):
        holder.tag = str(i)
        strategy.run(tagged_step)
    said = capfd.readouterr().err
    assert "tagged_step again in 5 calls in a row: holder.tag changes" in said
    assert said.count("tagged_step again") == 1


def test_a_history_that_grows_costs_no_tracing(strategy: stratagem.Strategy) -> None:
    """An attribute of the same name elsewhere (`model.losses`) is not taken for the one of the trainer."""

    class Trainer:
        def __init__(self) -> None:
            self.model, self.losses, self.traces = small_model(), [], 0

        def step(self, x: Any) -> Any:
            self.traces += 1
            return keras.ops.sum(self.model(x)) + sum(self.model.losses)

    trainer, x = Trainer(), np.ones((2, 2), "float32")
    for _ in range(5):
        trainer.losses.append(strategy.run(trainer.step, args=(x,)))
    assert trainer.traces <= 2


def test_a_layer_made_in_each_call_is_refused(compiled: Any) -> None:
    """Its weights would be zeros: they get their values after the tracing in which they are used."""
    call = compiled(lambda x: keras.ops.sum(keras.layers.Dense(2, kernel_initializer="ones")(x)))
    with pytest.raises(stratagem.errors.UsageError, match="makes a variable each time"):
        call(np.ones((1, 3), "float32"))
