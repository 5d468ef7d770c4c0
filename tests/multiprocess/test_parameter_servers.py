"""Chief, workers and parameter servers as processes of their own: they train, survive losses, and end by themselves."""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import stratagem
import stratagem.tf as tf
from stratagem.coordinator import ClusterCoordinator, experimental_get_current_worker_index
from stratagem.core.clock import Clock
from stratagem.core.errors import UnavailableError
from stratagem.testing import run_workers, start_workers
from stratagem.testing.points import block_point

pytestmark = pytest.mark.multiprocess

ROOT = Path(__file__).parents[2]


def make_dataset(context: stratagem.InputContext) -> Any:
    rng = np.random.default_rng(experimental_get_current_worker_index())
    x = rng.normal(size=(256, 4)).astype("float32")
    return stratagem.data.Dataset.from_tensor_slices((x, x @ np.ones((4, 1), "float32"))).repeat().batch(16)


def train() -> dict[str, Any]:
    """The same program in every task: workers and servers do not come past the strategy."""
    strategy = stratagem.ParameterServerStrategy(
        variable_partitioner=stratagem.experimental.partitioners.FixedShardsPartitioner(2)
    )
    coordinator = ClusterCoordinator(strategy)
    with strategy.scope():
        begin = keras.initializers.Constant(-1.0)  # as far from the solution in every run
        dense = keras.layers.Dense(1, kernel_initializer=begin)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dropout(0.01), dense])
        optimizer = keras.optimizers.Adam(0.05)
        mean = keras.metrics.Mean()

    @stratagem.function
    def step(iterator: Any) -> Any:
        def replica_fn(x: Any, y: Any) -> Any:
            with stratagem.GradientTape() as tape:
                loss = stratagem.nn.compute_average_loss(keras.ops.mean((model(x, training=True) - y) ** 2, axis=-1))
            weights = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            mean.update_state(loss)
            return loss

        return strategy.run(replica_fn, args=next(iterator))

    def dataset_fn() -> Any:
        return strategy.distribute_datasets_from_function(make_dataset)

    iterator = iter(coordinator.create_per_worker_dataset(dataset_fn))
    losses = []
    for _ in range(3):
        mean.reset_state()
        for _ in range(60):
            coordinator.schedule(step, args=(iterator,))
        coordinator.join()
        losses.append(float(mean.result()))
    workers = coordinator.fetch([coordinator.schedule(os.getpid) for _ in range(20)])
    return {
        "losses": losses,
        "iterations": int(optimizer.iterations),
        "kernel": model.layers[-1].kernel.numpy().ravel().tolist(),
        "pids": len({os.getpid(), *workers}),
    }


def add_from_everywhere() -> dict[str, Any]:
    """Three workers do the same things to the same variables, hundreds of times."""
    strategy = stratagem.ParameterServerStrategy()
    coordinator = ClusterCoordinator(strategy)
    assert strategy.workers.wait_for(lambda: strategy.workers.counts()["workers up"] == 3, 60)
    with strategy.scope():
        count, table, weight = tf.Variable(0), tf.Variable(tf.zeros([5, 2])), tf.Variable(tf.zeros([3]))
        optimizer, mean = keras.optimizers.SGD(1.0), keras.metrics.Mean()
        optimizer.build([weight])
        generator = tf.random.Generator.from_seed(7)

    @tf.function
    def step() -> Any:
        table.scatter_add(tf.IndexedSlices(tf.ones([3, 2]), tf.constant([0, 2, 2])))
        optimizer.apply_gradients([(tf.ones([3]), weight)])
        mean.update_state(2.0)
        return count.assign_add(1), generator.normal([]), experimental_get_current_worker_index()

    results = coordinator.fetch([coordinator.schedule(step) for _ in range(300)])
    alone = tf.random.Generator.from_seed(7)
    return {
        "counts": sorted(int(number) for number, _, _ in results),
        "count": int(count.value),
        "table": np.asarray(table.value)[:, 0].tolist(),
        "weight": [*np.asarray(weight.value).tolist(), int(optimizer.iterations.value)],
        "mean": [float(mean.result()), float(mean.count.value)],
        "drawn as one process": sorted(float(each) for _, each, _ in results)
        == sorted(float(alone.normal([])) for _ in range(300)),
        "workers": sorted({int(worker) for _, _, worker in results}),
    }


def test_nothing_that_workers_add_is_lost() -> None:
    found = run_workers(add_from_everywhere, 3, servers=2)[0].value
    assert found == {
        "counts": list(range(1, 301)),
        "count": 300,
        "table": [300.0, 0.0, 600.0, 0.0, 0.0],
        "weight": [-300.0, -300.0, -300.0, 300],
        "mean": [2.0, 300.0],
        "drawn as one process": True,
        "workers": [0, 1, 2],
    }


@pytest.mark.quick
def test_a_cluster_trains_and_ends_by_itself() -> None:
    results = run_workers(train, 2, servers=2)
    assert [result.returncode for result in results] == [0] * 5
    value = results[0].value
    assert value["losses"][-1] < 0.1 * value["losses"][0]
    assert value["iterations"] == 180
    np.testing.assert_allclose(value["kernel"], np.ones(4), atol=0.15)
    assert value["pids"] >= 2
    assert "ps 1 serves at" in results[-1].output
    assert [result.value for result in results[1:]] == [None] * 4


def fit_a_loss_for_each_row() -> tuple[float, float]:
    """Take one step of slope 2 with a loss that has a number for each row."""
    with stratagem.ParameterServerStrategy().scope():
        layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        model = keras.Sequential([keras.Input((1,)), layer])
        model.compile(keras.optimizers.SGD(0.5), keras.losses.MeanSquaredError(reduction=None))
    x = np.array([[1.0], [2.0], [3.0]], "float32")
    dataset = stratagem.data.Dataset.from_tensor_slices((x, x - 1)).repeat().batch(3)
    history = model.fit(dataset, steps_per_epoch=1, verbose=0).history
    return float(history["loss"][0]), float(model.get_weights()[0][0, 0])


def test_a_loss_for_each_row_trains_with_their_sum() -> None:
    """The process of a worker has made no strategy, by which Keras's step would take one number alone."""
    loss, weight = run_workers(fit_a_loss_for_each_row, 1, servers=1)[0].value
    assert loss == pytest.approx(1.0)
    assert weight == pytest.approx(1.0 - 0.5 * 2 * (1 + 2 + 3))


def lose_a_worker() -> dict[str, Any]:
    """Count to 30 while worker 0 is killed in its first function, and taken back later; two may overlap."""
    strategy = stratagem.ParameterServerStrategy(max_staleness=1)
    coordinator = ClusterCoordinator(strategy)
    with strategy.scope():
        count = keras.Variable(0, dtype="int32", trainable=False)
        weight, optimizer = keras.Variable(0.0), keras.optimizers.SGD(1.0)

    def work(first: bool) -> int:
        index = experimental_get_current_worker_index()
        if first and index == 0:
            block_point("in the function")
        count.assign_add(1)
        optimizer.apply([0 * weight.value - 1.0], [weight])
        return index

    values = [coordinator.schedule(work, args=(True,)) for _ in range(30)]
    coordinator.join()
    alone = set(coordinator.fetch(values))
    print("counted", flush=True)
    seen: set[int] = set()
    while seen != {0, 1}:
        seen |= set(coordinator.fetch([coordinator.schedule(work, args=(False,)) for _ in range(8)]))
        Clock().wait(0.05)
    return {
        "count": int(count.value),
        "weight": float(weight.value),
        "alone": alone,
        "metrics": coordinator.metrics(),
    }


def test_a_lost_worker_is_replaced_by_the_others_and_taken_back() -> None:
    with start_workers(lose_a_worker, 2, servers=1) as (chief, first, second, server):
        first.wait_for_point("in the function")
        first.kill()
        chief.wait_for("counted")
        returned = first.start_again()
        ended = chief.wait()
        assert [task.wait().returncode for task in (returned, second, server)] == [0, 0, 0]
    value = ended.value
    assert value["alone"] == {1}
    assert value["metrics"]["retried"] == 1
    assert value["metrics"]["workers lost"] == 1
    assert value["count"] == value["weight"] == value["metrics"]["finished"]
    assert value["metrics"]["max staleness"] <= 1
    assert "worker 0 was lost" in ended.output


def lose_a_straggler() -> dict[str, Any]:
    """Train in rounds while worker 0 stands still in its first function, and is killed there."""
    strategy = stratagem.ParameterServerStrategy(synchronous=True, backup_workers=1)
    coordinator = ClusterCoordinator(strategy)
    with strategy.scope():
        weight, optimizer = keras.Variable(0.0), keras.optimizers.SGD(0.5)
        mean = keras.metrics.Mean()

    @stratagem.function
    def train_step() -> None:
        mean.update_state(weight.value)
        optimizer.apply([weight.value - 1.0], [weight])

    def step() -> int:
        if experimental_get_current_worker_index() == 0:
            block_point("in the round")
        train_step()
        return experimental_get_current_worker_index()

    values = [coordinator.schedule(step) for _ in range(8)]
    while coordinator.metrics()["finished"] < 7:
        Clock().wait(0.05)
    print("went on", flush=True)
    coordinator.join()
    return {
        "workers": coordinator.fetch(values),
        "weight": float(weight.value),
        "count": float(mean.count),
        "iterations": int(optimizer.iterations),
        "metrics": coordinator.metrics(),
    }


def test_a_straggler_holds_no_round_and_may_be_lost() -> None:
    with start_workers(lose_a_straggler, 2, servers=1) as (chief, first, second, server):
        first.wait_for_point("in the round")
        chief.wait_for("went on")
        first.kill()
        value = chief.wait().value
        assert [task.wait().returncode for task in (second, server)] == [0, 0]
    assert value["workers"] == [1] * 8
    assert (value["count"], value["iterations"]) == (8.0, 8)
    assert value["weight"] == 1 - 0.5**8
    counts = value["metrics"]
    assert (counts["rounds"], counts["retried"], counts["dropped"]) == (8, 1, 0)


def lose_a_server() -> str:
    """Go on until a parameter server is gone."""
    strategy = stratagem.ParameterServerStrategy()
    coordinator = ClusterCoordinator(strategy)
    with strategy.scope():
        first, second = keras.Variable(0.0), keras.Variable(0.0)  # one on each server

    @stratagem.function
    def add() -> None:
        first.assign_add(1.0)
        second.assign_add(1.0)

    coordinator.schedule(add).fetch()
    print("trains", flush=True)
    try:
        while True:
            coordinator.schedule(add)
    except UnavailableError as error:
        return str(error)


def test_a_lost_server_is_named_and_all_end() -> None:
    with start_workers(lose_a_server, 1, servers=2) as (chief, worker, first, second):
        chief.wait_for("trains")
        second.kill()
        value = chief.wait().value
        assert [task.wait().returncode for task in (worker, first)] == [0, 0]
    assert "ps 1 at" in value


def test_the_resnet_of_all_strategies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, saved = ROOT / "examples" / "resnet.py", tmp_path / "resnet.keras"
    # A batch size that divides the digits to evaluate on: each shape is compiled by each worker.
    sizes = ["--epochs", "1", "--filters", "4", "--blocks", "1", "--batch-size", "20"]
    arguments = ["1", program, "--strategy", "parameter_server", *sizes, "--save", saved]
    results = run_workers(ROOT / "tests" / "seeded.py", 2, servers=2, args=arguments, env={"STRATAGEM_DATA": ""})

    assert [result.returncode for result in results] == [0] * 5
    chief = results[0].output
    # Rates are of the last second that was counted: the last line has none where that was spent in the evaluation.
    assert re.search(r"71/71.*step \(2/2 workers[,)]", chief) is not None, chief
    assert re.search(r"\d/71.*step \(2/2 workers, \d+\.\d steps/s, staleness \d+\.\d\)", chief) is not None, chief
    ((loss, accuracy),) = re.findall(r"On digits it has not seen: loss (\d+\.\d+), accuracy (\d+\.\d)%", chief)
    assert float(loss) < 2.2
    assert float(accuracy) > 25
    assert all("On digits" not in result.output for result in results[1:])
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    _, (images, labels) = importlib.import_module("digits").load()
    model: Any = keras.models.load_model(saved)  # an ordinary Keras model
    resized = np.repeat(np.asarray(keras.ops.image.resize(images[..., None], (32, 32))), 3, axis=-1)
    outputs = model.predict(resized, batch_size=90, verbose=0)
    assert np.mean(outputs.argmax(axis=-1) == labels) == pytest.approx(float(accuracy) / 100, abs=1e-3)
    assert -np.log(outputs[np.arange(len(labels)), labels]).mean() == pytest.approx(float(loss), abs=1e-3)
