"""Variables on parameter servers train as in one process, and additions of several tasks are not lost."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
from tests.unit.ps.servers import running_servers

import stratagem
from stratagem.core.errors import InputError, UnavailableError, UsageError
from stratagem.ps.changes import Change, Location
from stratagem.ps.client import Servers
from stratagem.ps.optimizers import apply_remotely
from stratagem.ps.partitioners import FixedShardsPartitioner
from stratagem.ps.placement import Placement
from stratagem.ps.variables import RemoteVariable, Residence

X = np.random.default_rng(1).normal(size=(16, 5)).astype("float32")
Y = np.random.default_rng(2).normal(size=(16, 3)).astype("float32")


@pytest.fixture
def servers() -> Iterator[Servers]:
    with running_servers() as servers:
        yield servers


def make_model() -> Any:
    keras.utils.set_random_seed(7)
    layers = [
        keras.Input((5,)),
        keras.layers.Dense(7, activation="relu"),
        keras.layers.BatchNormalization(momentum=0.9),
        keras.layers.Dense(3, kernel_constraint=keras.constraints.MaxNorm(0.5)),
    ]
    return keras.Sequential(layers)


def sent_to_servers(optimizer: Any, placement: Placement) -> Any:
    """Make an optimizer what it is on a worker."""
    optimizer.remote_name = placement.name_of(optimizer)
    optimizer.residence, optimizer.companions = placement.residence, {}
    placement.place([v for v in (optimizer.iterations, optimizer._learning_rate) if isinstance(v, keras.Variable)])
    optimizer.apply = functools.partial(apply_remotely, optimizer)
    return optimizer


def train(model: Any, optimizer: Any, steps: int) -> list[float]:
    strategy = stratagem.OneDeviceStrategy("cpu:0")
    mean = keras.metrics.Mean()

    def step(x: Any, y: Any) -> Any:
        with stratagem.GradientTape() as tape:
            loss = keras.ops.mean((model(x, training=True) - y) ** 2)
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        mean.update_state(loss)
        return loss

    losses = [float(strategy.run(step, (X, Y))) for _ in range(steps)]
    assert float(mean.result()) == pytest.approx(np.mean(losses), rel=1e-5)
    return losses


HALVES = FixedShardsPartitioner(2)
CASES = [
    (lambda: keras.optimizers.Adam(0.05), None),
    (lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True, global_clipnorm=0.3), HALVES),
    (
        lambda: keras.optimizers.AdamW(keras.optimizers.schedules.ExponentialDecay(0.05, 2, 0.5), weight_decay=0.1),
        HALVES,
    ),
    (lambda: keras.optimizers.RMSprop(0.01, clipnorm=0.1, loss_scale_factor=4.0), HALVES),
]


@pytest.mark.parametrize(
    ("make_optimizer", "partitioner"),
    [*CASES[:2], *(pytest.param(*case, marks=pytest.mark.thorough) for case in CASES[2:])],
)
def test_training_is_that_of_one_process(servers: Servers, make_optimizer: Any, partitioner: Any) -> None:
    expected_model, model = make_model(), make_model()
    expected = train(expected_model, make_optimizer(), 4)
    placement = Placement(servers, partitioner)
    placement.place(model.variables)
    optimizer = sent_to_servers(make_optimizer(), placement)
    np.testing.assert_allclose(train(model, optimizer, 4), expected, rtol=2e-5)
    for ours, theirs in zip(model.get_weights(), expected_model.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    assert int(optimizer.iterations) == 4
    kernel, constrained = model.variables[0], model.layers[-1].kernel
    assert len(kernel.parts) == (1 if partitioner is None else 2)
    assert len(constrained.parts) == 1  # its norm is that of the whole


def test_a_variable_is_read_and_written_where_it_lives(servers: Servers) -> None:
    placement = Placement(servers, FixedShardsPartitioner(2))
    value = np.arange(10, dtype="float32").reshape(5, 2)
    variable = keras.Variable(value.copy(), name="table")
    placement.place([variable])
    placement.place([variable])
    assert isinstance(variable, RemoteVariable)
    assert [(part.server, part.rows) for part in variable.parts] == [(0, 3), (1, 2)]
    np.testing.assert_array_equal(variable.numpy(), value)
    variable.assign(value * 2)
    variable.assign_add(value)
    variable.assign_sub(1.0)
    np.testing.assert_array_equal(np.asarray(variable * 1), value * 3 - 1)
    with pytest.raises(ValueError, match="shape"):
        variable.assign(np.zeros((5, 3)))


def test_the_parts_of_a_variable_are_variables_too(servers: Servers) -> None:
    placement = Placement(servers, FixedShardsPartitioner(4))
    whole, single = keras.Variable(np.arange(10.0).reshape(5, 2), name="table"), keras.Variable(1.0)
    placement.place([whole, single])
    parts = whole.variables
    assert parts is whole.variables
    assert [part.numpy().tolist() for part in parts] == [[[0, 1], [2, 3]], [[4, 5]], [[6, 7]], [[8, 9]]]
    parts[1].assign([[40.0, 50.0]])
    parts[3].assign_add([[1.0, 1.0]])
    assert whole.numpy().tolist() == [[0, 1], [2, 3], [40, 50], [6, 7], [9, 10]]
    assert single.variables == [single]


def test_programs_send_what_was_done(servers: Servers) -> None:
    placement = Placement(servers)
    total, flag, mean = keras.Variable(1.0, trainable=False), keras.Variable(0.0), keras.metrics.Mean()
    placement.place([total, flag, *mean.variables])

    @stratagem.function
    def step(x: Any) -> Any:
        total.assign_add(x)
        total.assign_sub(1.0)
        seen = total * 1.0
        flag.assign(x)
        mean.update_state(x)
        return seen

    # What another task does between reading and writing is not lost.
    class Between(Residence):
        def read(self, variables: Any) -> list[Any]:
            values = super().read(variables)
            if not between:
                between.append(True)
                total.assign_add(100.0)
                mean.update_state(50.0)
            return values

    between: list[bool] = [True]
    residence = Between(servers)
    for variable in (total, flag, *mean.variables):
        variable.residence = residence
    assert float(step(3.0)) == 3.0
    between.clear()
    assert float(step(5.0)) == 7.0  # as of the reading
    assert float(total.value) == 107.0
    assert float(flag.value) == 5.0
    assert float(mean.result()) == pytest.approx((3 + 5 + 50) / 3)

    @stratagem.function
    def resets() -> Any:
        total.assign_add(9.0)
        total.assign(2.0)
        total.assign_add(0.5)
        return total * 1.0

    assert (float(resets()), float(total.value)) == (2.5, 2.5)


def test_a_program_inside_another_one_sends_nothing_itself(servers: Servers) -> None:
    """`strategy.run` in a compiled function, which has no iterator to leave its trace for."""
    strategy = stratagem.OneDeviceStrategy("cpu:0")
    placement = Placement(servers)
    total, mean, weight = keras.Variable(5.0, trainable=False), keras.metrics.Mean(), keras.Variable(2.0)
    placement.place([total, weight, *mean.variables])
    optimizer = sent_to_servers(keras.optimizers.SGD(0.5), placement)

    def inner(x: Any) -> Any:
        total.assign_add(x)
        mean.update_state(x)
        return total * 1.0

    @stratagem.function
    def outer(x: Any) -> Any:
        total.assign_add(1.0)
        first = strategy.run(inner, args=(x,))
        total.assign(first * 2.0)
        total.assign_sub(3.0)
        return first, strategy.run(inner, args=(x,))

    assert [float(value) for value in outer(4.0)] == [10.0, 21.0]
    assert (float(total.value), float(mean.result()), float(mean.count)) == (21.0, 4.0, 2.0)

    def update() -> None:
        optimizer.apply([1.0], [weight])

    stratagem.function(lambda: strategy.run(update))()
    assert (float(weight.value), int(optimizer.iterations)) == (1.5, 1)

    @stratagem.function
    def twice() -> None:
        strategy.run(update)
        strategy.run(update)

    with pytest.raises(UsageError, match="twice"):
        twice()
    assert (float(weight.value), int(optimizer.iterations)) == (1.5, 1)


def test_additions_of_many_threads_are_all_counted(servers: Servers) -> None:
    count = keras.Variable(0, dtype="int32", trainable=False)
    Placement(servers).place([count])

    def add() -> None:
        for _ in range(50):
            count.residence.write([(count.companions["add"], np.int32(1))])

    count.assign_add(0)
    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert int(count.value) == 200


def test_mistakes_are_explained(servers: Servers) -> None:
    placement = Placement(servers)
    weight, elsewhere = keras.Variable(1.0), keras.Variable(1.0)
    placement.place([weight])
    optimizer = sent_to_servers(keras.optimizers.SGD(0.1), placement)
    with pytest.raises(UsageError, match="which is not a variable of the chief"):
        optimizer.apply([1.0], [elsewhere])
    with pytest.raises(UsageError, match="no gradient"):
        optimizer.apply([None], [weight])

    @stratagem.function
    def twice() -> None:
        optimizer.apply([1.0], [weight])
        optimizer.apply([1.0], [weight])

    with pytest.raises(UsageError, match="twice"):
        twice()
    with pytest.raises(InputError, match="shape"):
        servers.change([Change("set", weight.parts, np.zeros(3))])
    with pytest.raises(UnavailableError, match="no variable 'gone'"):
        servers.read([[Location(1, "gone")]])
    assert float(weight.value) == 1.0
