"""Random streams on the servers: what all workers draw together is what one process draws.

TensorFlow 2.21, with two workers and two servers: 20 functions that drew from a generator, made in the scope or
outside, drew the 20 numbers of one process, each once; a checkpoint brought the position back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from tests.unit.ps import servers as in_process
from tests.unit.ps.servers import Cluster, small_cluster, until_lost

import stratagem
import stratagem.tf as tf
from stratagem.coordinator import ClusterCoordinator
from stratagem.ps.streams import RemoteStream

DRAWS = 24


@pytest.fixture
def coordinator() -> Iterator[ClusterCoordinator]:
    with small_cluster(3) as resolver:
        strategy = stratagem.ParameterServerStrategy(
            resolver, stratagem.experimental.partitioners.FixedShardsPartitioner(2)
        )
        yield ClusterCoordinator(strategy)
        strategy.close()


def fetched(coordinator: ClusterCoordinator, function: Any, *arguments: Any, times: int = DRAWS) -> list[Any]:
    results = [coordinator.schedule(function, args=arguments) for _ in range(times)]
    coordinator.join()
    return [result.fetch() for result in results]


def of_one_process(seed: int, count: int = DRAWS) -> list[float]:
    generator = tf.random.Generator.from_seed(seed)
    return sorted(float(generator.normal([])) for _ in range(count))


def position(generator: Any) -> list[int]:
    return np.asarray(generator.state.value).tolist()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("way", ["run", "compiled", "eager"])
@pytest.mark.parametrize("in_scope", [True, False])
def test_workers_draw_together_what_one_process_draws(
    coordinator: ClusterCoordinator, way: str, in_scope: bool
) -> None:
    strategy = coordinator.strategy
    if in_scope:
        with strategy.scope():
            generator = tf.random.Generator.from_seed(7)
    else:
        generator = tf.random.Generator.from_seed(7)

    def draw() -> Any:
        return generator.normal([])

    function = {"run": tf.function(lambda: strategy.run(draw)), "compiled": tf.function(draw), "eager": draw}[way]
    assert sorted(map(float, fetched(coordinator, function))) == of_one_process(7)
    assert position(generator) == [7, DRAWS]
    # The chief goes on in the same stream.
    assert float(generator.normal([])) in of_one_process(7, DRAWS + 1)
    assert position(generator) == [7, DRAWS + 1]


def test_no_two_workers_take_the_same(coordinator: ClusterCoordinator) -> None:
    """All three stand at the same point before any of them draws."""
    generator = tf.random.Generator.from_seed(3)
    in_process.gates["drawing"] = threading.Barrier(3)

    def draw() -> list[Any]:
        drawn = []
        for _ in range(10):
            in_process.gates["drawing"].wait(60)
            drawn.append(compiled())
        return drawn

    compiled = stratagem.function(lambda: generator.normal([]))
    drawn = sorted(float(each) for worker in fetched(coordinator, draw, times=3) for each in worker)
    assert drawn == of_one_process(3, 30)


@pytest.mark.thorough
def test_a_function_draws_as_often_as_it_needs(coordinator: ClusterCoordinator) -> None:
    generator, other = tf.random.Generator.from_seed(7), tf.random.Generator.from_seed(9)

    @tf.function
    def several(count: Any) -> Any:
        total = other.uniform([]) * 0.0
        for _ in tf.range(count):
            total += generator.normal([])
        return total

    counts = [tf.constant(n) for n in (3, 0, 1, 2) * 3]
    results = [coordinator.schedule(several, args=(count,)) for count in counts]
    coordinator.join()
    assert (position(generator), position(other)) == ([7, 18], [9, 12])
    total = sum(float(result.fetch()) for result in results)
    assert total == pytest.approx(sum(of_one_process(7, 18)), rel=1e-5)

    @tf.function
    def above(least: Any) -> Any:
        number = generator.normal([])
        while number < least:
            number = generator.normal([])
        return number

    generator.reset_from_seed(8)
    drawn = sorted(map(float, fetched(coordinator, above, tf.constant(0.5), times=12)))
    number = position(generator)[1]
    assert number > 12
    assert drawn == [each for each in of_one_process(8, number) if each >= 0.5]


def test_a_step_draws_once_for_its_loss_and_its_gradient(
    coordinator: ClusterCoordinator, capfd: pytest.CaptureFixture[str]
) -> None:
    with coordinator.strategy.scope():
        weight, generator = tf.Variable(2.0), tf.random.Generator.from_seed(5)

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = weight * generator.normal([])
            tf.print("once")
        return loss, tape.gradient(loss, weight)

    results = fetched(coordinator, step, times=6)
    assert [float(loss) for loss, _ in results] == [2.0 * float(gradient) for _, gradient in results]
    assert sorted(float(gradient) for _, gradient in results) == of_one_process(5, 6)
    captured = capfd.readouterr()
    assert (captured.out + captured.err).count("once") == 6


def test_rows_that_are_drawn_are_looked_up(coordinator: ClusterCoordinator) -> None:
    """The ids are drawn before the rows are read, and the program computes with the same numbers."""
    with coordinator.strategy.scope():
        table = tf.Variable(np.arange(1000, dtype="float32")[:, None] * np.ones((1, 3), "float32"))
        generator = tf.random.Generator.from_seed(5)

    @tf.function
    def negatives() -> Any:
        ids = generator.uniform([4], maxval=1000, dtype=tf.int32)
        return ids, tf.gather(table, ids) + 0.0 * generator.normal([])

    alone = tf.random.Generator.from_seed(5)
    expected = []
    for _ in range(8):
        expected.append(np.asarray(alone.uniform([4], maxval=1000, dtype=tf.int32)).tolist())
        alone.normal([])
    results = fetched(coordinator, negatives, times=8)
    assert sorted(ids.tolist() for ids, _ in results) == sorted(expected)
    assert all(rows[:, 0].tolist() == ids.tolist() for ids, rows in results)


def test_positions_are_assigned_skipped_and_restored(coordinator: ClusterCoordinator, tmp_path: Path) -> None:
    generator = tf.random.Generator.from_seed(11)

    @tf.function
    def begin_anew() -> None:
        generator.reset_from_seed(12)

    @tf.function
    def leave_out() -> None:
        generator.skip(5)

    draw = tf.function(lambda: generator.normal([]))
    fetched(coordinator, begin_anew, times=1)
    fetched(coordinator, leave_out, times=4)
    assert position(generator) == [12, 20]
    checkpoint = tf.train.Checkpoint(generator=generator)
    path = checkpoint.save(str(tmp_path / "ckpt"))
    first = sorted(map(float, fetched(coordinator, draw)))
    checkpoint.restore(path)
    assert position(generator) == [12, 20]
    assert sorted(map(float, fetched(coordinator, draw))) == first
    alone = tf.random.Generator.from_seed(0)
    tf.train.Checkpoint(generator=alone).restore(path)  # in a process without servers
    assert sorted(float(alone.normal([])) for _ in range(DRAWS)) == first


def test_the_seeds_of_layers_are_such_streams() -> None:
    """With one worker dropout is that of one process; it was the worker's own."""
    x = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
    fit = {"batch_size": 8, "epochs": 2, "shuffle": False, "verbose": 0}

    def trained() -> tuple[Any, Any]:
        keras.utils.set_random_seed(4)
        layers = [keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dropout(0.5, seed=6), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        model.compile(keras.optimizers.SGD(0.05), "mse")
        history = model.fit(x, x.sum(axis=1), **fit).history["loss"]
        return model, [*history, *map(np.asarray, model.get_weights())]

    plain, expected = trained()
    with small_cluster() as resolver:
        strategy = stratagem.ParameterServerStrategy(resolver)
        with strategy.scope():
            model, found = trained()
        seeds = [each.layers[1].seed_generator.state for each in (plain, model)]
        assert isinstance(seeds[1], RemoteStream)
        assert np.asarray(seeds[1].value).tolist() == np.asarray(seeds[0].value).tolist() == [6, 8]
        strategy.close()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_stream_whose_server_was_lost_draws_what_it_never_drew(tmp_path: Path) -> None:
    cluster = Cluster()
    strategy = stratagem.ParameterServerStrategy(cluster.resolver)
    coordinator = ClusterCoordinator(strategy)
    generator = tf.random.Generator.from_seed(7)
    draw = tf.function(lambda: generator.normal([]))
    before = list(map(float, fetched(coordinator, draw, times=4)))
    path = tf.train.Checkpoint(generator=generator).save(str(tmp_path / "ckpt"))
    for index in range(2):
        cluster.lose(index)
    until_lost(lambda: coordinator.schedule(draw))
    until_lost(coordinator.join)
    for index in range(2):
        cluster.start_again(index)
    generator.skip(0)  # waits for them
    meanwhile = list(map(float, fetched(coordinator, draw, times=4)))
    assert not set(meanwhile) & set(of_one_process(7, 100))
    tf.train.Checkpoint(generator=generator).restore(path)
    assert sorted([*before, *map(float, fetched(coordinator, draw, times=4))]) == of_one_process(7, 8)
    strategy.close()
    cluster.close()
