"""A parameter server is lost and comes back, or another chief begins: no number of an old term is ever used."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from tests.clock import HandClock
from tests.unit.ps.servers import Cluster, until_lost

import stratagem
from stratagem.coordinator import ClusterCoordinator
from stratagem.core.errors import UnavailableError, UsageError
from stratagem.ps.partitioners import FixedShardsPartitioner
from stratagem.ps.serving import CHIEF_SECONDS
from stratagem.train import Checkpoint

X = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with contextlib.closing(Cluster()) as cluster:
        yield cluster


class Program:
    """A model that trains step by step."""

    def __init__(self, cluster: Cluster, *inner: keras.layers.Layer, **options: Any) -> None:
        self.strategy = stratagem.ParameterServerStrategy(cluster.resolver, FixedShardsPartitioner(2), **options)
        self.coordinator = ClusterCoordinator(self.strategy)
        with self.strategy.scope():
            keras.utils.set_random_seed(3)
            model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), *inner, keras.layers.Dense(1)])
            optimizer = keras.optimizers.Adam(0.05)
            optimizer.build(model.trainable_variables)
            mean = keras.metrics.Mean(name="mean")
        self.model, self.optimizer, self.mean = model, optimizer, mean
        self.checkpoint = Checkpoint(model=model, optimizer=optimizer)

        @stratagem.function
        def step(x: Any) -> Any:
            with stratagem.GradientTape() as tape:
                loss = keras.ops.mean((model(x, training=True) - 1.0) ** 2)
            weights = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            mean.update_state(loss)
            return loss

        self.step = step

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.coordinator.schedule(self.step, args=(X,)).fetch()

    def numbers(self) -> list[np.ndarray]:
        return [variable.numpy() for variable in (*self.model.variables, *self.optimizer.variables)]


@pytest.fixture
def program(cluster: Cluster) -> Iterator[Program]:
    program = Program(cluster)
    yield program
    program.strategy.close()


@pytest.mark.thorough
@pytest.mark.parametrize("options", [{}, {"synchronous": True}, {"max_staleness": 0}], ids=str)
def test_a_program_restores_its_checkpoint_and_goes_on(
    cluster: Cluster, options: dict[str, Any], tmp_path: Path
) -> None:
    program = Program(cluster, **options)
    program.train(2)
    path = program.checkpoint.save(tmp_path / "ckpt")
    saved = program.numbers()
    program.train(2)
    expected = program.numbers()
    cluster.lose(1)
    assert "ps 1 at" in str(until_lost(lambda: program.coordinator.schedule(program.step, args=(X,))))
    assert "ps 1 at" in str(until_lost(program.coordinator.join)), "it stays lost"
    cluster.start_again(1)
    program.checkpoint.restore(path).assert_consumed()
    for number, value in zip(program.numbers(), saved, strict=True):
        np.testing.assert_array_equal(number, value)
    lost = r"No value for 'mean/(total|count)': a parameter server was lost"
    with pytest.raises(UsageError, match=lost):
        program.train(1)
    with pytest.raises(UsageError, match=lost):
        program.coordinator.join()
    with pytest.raises(UsageError, match=lost):
        program.mean.result()
    program.mean.reset_state()
    program.train(2)
    for number, value in zip(program.numbers(), expected, strict=True):
        np.testing.assert_array_equal(number, value)
    assert float(program.mean.count) == 2
    program.strategy.close()


def test_dropout_goes_on_where_the_checkpoint_was(cluster: Cluster, tmp_path: Path) -> None:
    program = Program(cluster, keras.layers.Dropout(0.5))
    program.train(2)
    path = program.checkpoint.save(tmp_path / "ckpt")
    program.train(2)
    expected = program.numbers()
    for index in range(2):
        cluster.lose(index)
    until_lost(lambda: program.coordinator.schedule(program.step, args=(X,)))
    for index in range(2):
        cluster.start_again(index)
    program.checkpoint.restore(path).assert_consumed()
    program.mean.reset_state()
    program.train(2)
    for number, value in zip(program.numbers(), expected, strict=True):
        np.testing.assert_array_equal(number, value)
    program.strategy.close()


def test_what_the_chief_reads_itself_tells_of_the_loss_too(cluster: Cluster, program: Program) -> None:
    program.train(1)
    before = program.model.get_weights()
    cluster.lose(0)
    until_lost(program.model.get_weights)
    cluster.start_again(0)
    with pytest.raises(UnavailableError, match="ps 0 has begun anew"):
        program.model.get_weights()
    program.model.set_weights(before)
    for value, own in zip(before, program.model.get_weights(), strict=True):
        np.testing.assert_array_equal(own, value)
    with pytest.raises(UsageError, match=r"No value for 'adam.*/iteration'"):
        program.optimizer.iterations.numpy()
    program.optimizer.iterations.assign(1)
    program.optimizer.learning_rate = 0.05
    program.mean.reset_state()
    with pytest.raises(UsageError, match=r"No value for the slots of '.*(kernel|bias)'"):
        program.train(1)


def test_another_chief_begins_with_its_own_numbers(cluster: Cluster, program: Program) -> None:
    """The first one is as good as dead: what it still sends, and its end, changes nothing."""
    begun = program.numbers()
    program.train(3)
    another = Program(cluster)
    for number, value in zip(another.numbers(), begun, strict=True):
        np.testing.assert_array_equal(number, value)
    another.train(1)
    with pytest.raises(UnavailableError, match=r"ps [01] has begun anew"):
        program.optimizer.iterations.assign(7)
    with pytest.raises(UnavailableError, match="made a second ParameterServerStrategy of the same cluster"):
        program.coordinator.schedule(int)
    program.strategy.close()
    another.train(1)
    assert int(another.optimizer.iterations) == 2
    another.strategy.close()
    cluster.servers[0].wait()
    cluster.worker.wait()


def test_a_strategy_that_another_has_followed_keeps_no_connection(cluster: Cluster) -> None:
    """Each kept 18 sockets and a thread: after some forty of them ZeroMQ had "Too many open files"."""

    def counted() -> tuple[int, int]:
        threads = sum(thread.name == "coordinator" for thread in threading.enumerate())
        return threads, len(os.listdir("/proc/self/fd"))

    Program(cluster).train(1)
    threads, files = counted()
    programs = [Program(cluster) for _ in range(3)]
    programs[-1].train(1)
    assert counted()[0] == threads == 1
    assert counted()[1] <= files + 3
    programs[-1].strategy.close()


class FlyingClock(HandClock):
    """Flies when told to: every look at it finds the chief's time run out, whatever was heard before."""

    flies = False
    _look = threading.Lock()

    def now(self) -> float:
        with self._look:
            if self.flies:
                self.time += 2 * CHIEF_SECONDS
        return super().now()

    def land(self) -> None:
        """Fly no more; no thread that has begun to look at it moves it afterwards."""
        with self._look:
            self.flies = False


def test_nobody_waits_for_ever_for_a_chief() -> None:
    """The chief's last words may be on their way when it falls silent: the clock flies, so they change nothing."""
    clock = FlyingClock()
    with contextlib.closing(Cluster(clock=clock)) as cluster:
        strategy = stratagem.ParameterServerStrategy(cluster.resolver)
        strategy.workers.close()  # it is silent from here on, as one that was killed
        clock.flies = True
        for serving in (cluster.worker, *cluster.servers):
            with pytest.raises(UnavailableError, match=f"{serving.task} has heard nothing from the chief for 300 s"):
                serving.wait()
        clock.land()
        another = stratagem.ParameterServerStrategy(cluster.resolver)
        another.close()
        for serving in (cluster.worker, *cluster.servers):
            serving.wait()
        strategy.close()
