"""Rounds and bounded staleness on a cluster in this process: the numbers of one process, what is dropped."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import pytest
from tests.unit.ps import servers
from tests.unit.ps.servers import small_cluster

import stratagem
from stratagem.coordinator import ClusterCoordinator, experimental_get_current_worker_index
from stratagem.core.errors import InputError, UsageError
from stratagem.ps.partitioners import FixedShardsPartitioner
from stratagem.ps.synchronous.contributions import Contributions

X = np.random.default_rng(1).integers(0, 12, size=(44, 3)).astype("int32")
Y = np.random.default_rng(2).normal(size=(44, 3)).astype("float32")


def make_model() -> Any:
    keras.utils.set_random_seed(7)
    layers = [
        keras.Input((3,), dtype="int32"),
        keras.layers.Embedding(12, 4),  # workers send rows of its gradient
        keras.layers.Flatten(),
        keras.layers.Dense(7, activation="tanh", kernel_regularizer="l2"),
        keras.layers.Dense(3, kernel_constraint=keras.constraints.MaxNorm(0.9)),
    ]
    model = keras.Sequential(layers)
    rate = keras.optimizers.schedules.ExponentialDecay(0.05, 2, 0.5)
    model.compile(keras.optimizers.AdamW(rate, weight_decay=0.1), "mse", metrics=["mae"])
    return model


@pytest.mark.thorough
def test_fit_has_the_numbers_of_one_process_with_the_batches_of_all_workers() -> None:
    options = {"epochs": 2, "shuffle": False, "verbose": 0}
    plain = make_model()
    expected = plain.fit(X, Y, batch_size=16, **options).history  # 16, 16 and 12 rows
    with small_cluster(workers=2) as resolver:
        strategy = stratagem.ParameterServerStrategy(resolver, FixedShardsPartitioner(2), synchronous=True)
        with strategy.scope():
            model = make_model()
        history = model.fit(X, Y, batch_size=8, **options).history  # two of 8, two of 8, 8 and 4
        for name, values in expected.items():
            np.testing.assert_allclose(history[name], values, rtol=2e-4, err_msg=name)
        for ours, theirs in zip(model.optimizer.variables, plain.optimizer.variables, strict=True):
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-3, atol=1e-5, err_msg=ours.path)
        for ours, theirs in zip(model.get_weights(), plain.get_weights(), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
        found = model.evaluate(X, Y, batch_size=22, verbose=0, return_dict=True)
        for name, value in plain.evaluate(X, Y, verbose=0, return_dict=True).items():
            assert found[name] == pytest.approx(value, rel=2e-4), name
        counts = ClusterCoordinator(strategy).metrics()
        assert (counts["rounds"], counts["dropped"], int(model.optimizer.iterations)) == (6, 0, 6)
        assert counts["max staleness"] == 0
        strategy.close()


class Squares:
    """A loop of one's own: a weight moves towards the mean of what the functions of a round are given."""

    def __init__(self, strategy: Any) -> None:
        self.coordinator = ClusterCoordinator(strategy)
        with strategy.scope():
            weight = self.weight = keras.Variable(np.zeros(4, "float32"))
            optimizer = self.optimizer = keras.optimizers.SGD(0.5)
            mean = self.mean = keras.metrics.Mean()
            seen = self.seen = keras.Variable(0.0, trainable=False)

        def step(target: Any) -> Any:
            with stratagem.GradientTape() as tape:
                loss = keras.ops.sum((weight - target) ** 2) / 2
            optimizer.apply_gradients(zip(tape.gradient(loss, [weight]), [weight], strict=True))
            mean.update_state(target)
            return loss

        def as_python(target: Any) -> None:  # not compiled: what is sent without gradients is done at once
            optimizer.apply([weight.numpy() - target], [weight])
            seen.assign_add(1.0)

        def blocked(target: Any, first: bool) -> int:
            if first and experimental_get_current_worker_index() == 0:
                servers.gates["begun"].set()
                servers.gates["release"].wait(50)
            program(target)
            return experimental_get_current_worker_index()

        program = self.step = stratagem.function(step)
        self.as_python, self.blocked = as_python, blocked

    def schedule(self, targets: Sequence[float]) -> list[Any]:
        return [self.coordinator.schedule(self.step, args=(target,)) for target in targets]


def test_a_result_is_there_once_its_round_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what the program reads next would be new on one server and old on another."""
    applying, release, apply = threading.Event(), threading.Event(), Contributions.apply

    def held(self: Contributions, round: int, names: Sequence[str]) -> None:
        applying.set()
        release.wait(50)
        apply(self, round, names)

    with small_cluster(workers=1) as resolver:
        strategy = stratagem.ParameterServerStrategy(resolver, FixedShardsPartitioner(2), synchronous=True)
        squares = Squares(strategy)
        monkeypatch.setattr(Contributions, "apply", held)
        (loss,) = squares.schedule([1.0])
        assert applying.wait(50)
        with pytest.raises(TimeoutError):
            loss.fetch(0.2)
        release.set()
        assert loss.fetch() == pytest.approx(2.0)
        np.testing.assert_allclose(squares.weight.numpy(), np.full(4, 0.5))
        strategy.close()


def test_a_loop_updates_once_for_each_round() -> None:
    with small_cluster(workers=3) as resolver:
        strategy = stratagem.ParameterServerStrategy(resolver, FixedShardsPartitioner(2), synchronous=True)
        squares = Squares(strategy)
        losses = squares.coordinator.fetch(squares.schedule([1.0, 2.0, 6.0, 4.0, 4.0, 4.0, 8.0]))
        assert losses[0] == pytest.approx(2.0)  # three at 0, three at 1.5, one at 2.75
        assert losses[3:] == pytest.approx([12.5, 12.5, 12.5, 55.125])
        while not squares.coordinator.done():  # it asks for the round of one, too
            pass
        np.testing.assert_allclose(squares.weight.numpy(), np.full(4, 5.375))
        assert int(squares.optimizer.iterations) == 3
        assert float(squares.mean.result()) == pytest.approx(29 / 7)
        assert squares.coordinator.metrics()["rounds"] == 3

        for target in (1.0, 2.0, 3.0, 9.0):
            squares.coordinator.schedule(squares.as_python, args=(target,))
        squares.coordinator.join()
        np.testing.assert_allclose(squares.weight.numpy(), np.full(4, (5.375 / 2 + 1 + 9) / 2), rtol=1e-6)
        assert (int(squares.optimizer.iterations), float(squares.seen.value)) == (5, 4.0)

        step = squares.step

        def twice(target: float) -> None:
            step(target)
            step(target)

        squares.coordinator.schedule(twice, args=(100.0,))
        with pytest.raises(UsageError, match="twice, in the synchronous mode"):
            squares.coordinator.join()
        assert int(squares.optimizer.iterations) == 5
        strategy.close()


def meet() -> None:
    """Wait until both workers are here: neither gets all functions that come next."""
    servers.gates["met"].wait(50)


def test_a_straggler_does_not_hold_a_round_that_has_a_backup() -> None:
    servers.gates |= {"met": threading.Barrier(2), "begun": threading.Event(), "release": threading.Event()}
    strategy = stratagem.ParameterServerStrategy(synchronous=True, backup_workers=1)
    squares, coordinator = Squares(strategy), ClusterCoordinator(strategy)
    coordinator.fetch([coordinator.schedule(meet) for _ in range(2)])
    values = [coordinator.schedule(squares.blocked, args=(2.0, True)) for _ in range(2)]
    servers.gates["begun"].wait(50)
    values += [coordinator.schedule(squares.blocked, args=(2.0, False)) for _ in range(3)]
    assert coordinator.fetch(values[2:]) == [1, 1, 1]
    assert not coordinator.done()  # the straggler runs
    servers.gates["release"].set()
    coordinator.join()
    assert sorted(coordinator.fetch(values)) == [0, 1, 1, 1, 1]
    counts = coordinator.metrics()
    assert (counts["rounds"], counts["dropped"], counts["finished"]) == (4, 1, 7)
    np.testing.assert_allclose(squares.weight.numpy(), np.full(4, 2 * (1 - 0.5**4)))
    assert (int(squares.optimizer.iterations), float(squares.mean.count)) == (4, 4.0)
    assert counts["max staleness"] == 0
    strategy.close()


class Refusing(keras.constraints.Constraint):
    def __call__(self, w: Any) -> Any:
        raise ArithmeticError("no value will do")


def test_a_round_that_cannot_be_applied_ends_training() -> None:
    strategy = stratagem.ParameterServerStrategy(synchronous=True)
    coordinator = ClusterCoordinator(strategy)
    with strategy.scope():
        weight, optimizer = keras.Variable(1.0), keras.optimizers.SGD(0.5)
        weight.constraint = Refusing()
    values = [coordinator.schedule(lambda: optimizer.apply([1.0], [weight])) for _ in range(3)]
    for _ in range(2):
        with pytest.raises(ArithmeticError, match="no value will do") as caught:
            coordinator.join()
        assert caught.value.__notes__[0] == "On ps 0, which was to apply a round."
    assert coordinator.fetch(values[:2]) == [None, None]
    with pytest.raises(ArithmeticError, match="no value will do"):
        values[2].fetch()
    strategy.close()


@pytest.mark.parametrize("bound", [0, 1])
def test_staleness_is_bounded(bound: int) -> None:
    with small_cluster(workers=3) as resolver:
        strategy = stratagem.ParameterServerStrategy(resolver, max_staleness=bound)
        squares = Squares(strategy)
        squares.schedule([4.0] * 30)
        squares.coordinator.join()
        assert squares.coordinator.metrics()["max staleness"] <= bound
        assert int(squares.optimizer.iterations) == 30
        if bound == 0:  # one after another: the numbers of one process
            values = squares.coordinator.fetch(squares.schedule([0.0, 8.0]))
            np.testing.assert_allclose(values, [32.0, 72.0], rtol=1e-5)
        strategy.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_staleness": -1}, "max_staleness=-1"),
        ({"max_staleness": True}, "max_staleness=True"),
        ({"max_staleness": 2, "synchronous": True}, "no gradient is ever stale"),
        ({"backup_workers": 1}, "or synchronous=True"),
        ({"backup_workers": 2, "synchronous": True}, r"2 worker\(s\).*\n.*\n.*from 0 to 1"),
        ({"backup_workers": 0.5, "synchronous": True}, "backup_workers=0.5"),
    ],
)
def test_arguments_that_cannot_be_are_explained(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        stratagem.ParameterServerStrategy(**arguments)
