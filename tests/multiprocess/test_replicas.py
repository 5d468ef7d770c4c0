"""Two workers: what replicas tell each other, on a batch that leaves one of four without rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stratagem.testing import run_workers

pytestmark = pytest.mark.multiprocess


def told() -> dict[str, Any]:
    import keras

    import stratagem
    from stratagem.data import Dataset

    strategy = stratagem.MultiWorkerMirroredStrategy()
    with strategy.scope():
        weight = keras.Variable(1.0)
    rows = Dataset.from_tensor_slices(np.array([-3.0, -1.0, -2.0], "float32")).batch(3)
    (batch,) = strategy.experimental_distribute_dataset(rows)
    traces = []

    def apply(strategy: Any, gradient: Any, rate: Any) -> Any:
        total, rate = strategy.extended.batch_reduce_to("SUM", [(gradient, weight), (rate, weight)])
        strategy.extended.update(weight, lambda v, g: v.assign_sub(g * rate / 4.0), args=(total,))
        return total

    def step(x: Any, rate: float) -> Any:
        traces.append(1)
        context: Any = stratagem.get_replica_context()
        with stratagem.GradientTape() as tape:
            everyone = context.all_gather(x * weight, axis=0)
            loss = keras.ops.sum(keras.ops.cumsum(everyone)) * keras.ops.sum(x)
        total = context.merge_call(apply, args=(tape.gradient(loss, weight), rate))
        return total, keras.ops.sum(x), everyone

    found, counts = [], []
    for rate in (1.5, 0.75, 0.375):
        total, own, everyone = strategy.run(step, args=(batch, rate))
        found.append([float(strategy.reduce("MEAN", total, axis=None)), float(weight.value)])
        counts.append(len(traces))
    strategy.extended.update(weight, lambda v, x: v.assign(x), args=(strategy.reduce("MIN", own, axis=None),))
    return {
        "found": found,
        "traced again": counts[-1] - counts[0],
        "most": float(strategy.reduce("MAX", own, axis=None)),
        "own": [float(component) for component in strategy.experimental_local_results(own)],
        "everyone": strategy.experimental_local_results(everyone)[0].tolist(),
        "gathered": strategy.gather(everyone, axis=0).tolist(),
        "weight": float(weight.value),
    }


def test_replicas_of_two_workers() -> None:
    first, second = (result.value for result in run_workers(told, 2, devices_per_worker=2))
    # The sum of the losses is w * (-3 - 4 - 6) * (-6); its slope does not depend on w.
    slope = 13.0 * 6
    weights = [1.0 - slope * 1.5, 1.0 - slope * 2.25, 1.0 - slope * 2.625]
    assert first["found"] == second["found"] == [[slope, weight] for weight in weights]
    assert first["traced again"] == second["traced again"] == 0
    assert (first["own"], second["own"]) == ([-3.0, -1.0], [-2.0, 0.0])
    assert first["most"] == second["most"] == 0.0  # the sum of no rows
    for worker in (first, second):
        np.testing.assert_allclose(worker["everyone"], np.array([-3.0, -1.0, -2.0]) * weights[1], rtol=1e-6)
        np.testing.assert_allclose(worker["gathered"], worker["everyone"] * 4, rtol=1e-6)
        assert worker["weight"] == -3.0


def plain_and_captured() -> dict[str, Any]:
    import stratagem
    import stratagem.tf as tf

    strategy = stratagem.MultiWorkerMirroredStrategy()
    own = strategy.cluster_resolver.task_id + 1
    value = strategy.run(lambda: stratagem.get_replica_context().replica_id_in_sync_group + 1.0)

    @stratagem.function
    def total() -> Any:
        return strategy.reduce("SUM", value, axis=None), strategy.gather(strategy.run(lambda v: v[None], (value,)), 0)

    @stratagem.function
    def made_inside() -> Any:
        own = strategy.experimental_distribute_values_from_function(
            lambda c: np.float32(c.replica_id_in_sync_group + 2)
        )
        return strategy.reduce("SUM", strategy.run(lambda x: x * x, args=(own,)), axis=None)

    def slices_of() -> Any:
        return tf.IndexedSlices(values=tf.constant([own, 1.0]), indices=tf.constant([0, 0]), dense_shape=[2])

    summed, gathered = total()
    (component,) = stratagem.function(lambda: strategy.experimental_local_results(strategy.run(lambda: value + 1.0)))()
    try:
        stratagem.function(lambda v: strategy.experimental_local_results(v)[0] + 1)(value)
        refused = "no"
    except stratagem.errors.UsageError as error:
        refused = str(error)
    return {
        "captured": [float(summed), gathered.tolist()],
        "made inside": float(made_inside()),
        "slices": np.asarray(tf.convert_to_tensor(strategy.run(slices_of))).tolist(),
        "one of its own": [
            value.numpy().tolist(),
            float(value),
            int(value),
            f"{value:.1f}",
            np.asarray(value).tolist(),
        ],
        "of each worker": [
            float(strategy.reduce("SUM", own, axis=None)),
            float(strategy.reduce("MEAN", np.float32(own), axis=None)),
            strategy.gather(np.full(own, own), axis=0).tolist(),
        ],
        "of a function": component.numpy().tolist(),
        "refused": refused,
    }


def test_values_where_each_worker_has_one_replica() -> None:
    """In TensorFlow these are plain tensors, of which each worker has its own."""
    for number, result in enumerate(run_workers(plain_and_captured, 2), 1):
        assert result.value["captured"] == [3.0, [1.0, 2.0]]
        assert result.value["made inside"] == 2.0**2 + 3.0**2
        assert result.value["slices"] == [number + 1, 0]
        assert result.value["one of its own"] == [number, number, number, f"{number}.0", number]
        assert result.value["of each worker"] == [3.0, 1.5, [1, 2, 2]]
        assert result.value["of a function"] == number + 1
        assert "in a function that is being compiled" in result.value["refused"]


def first_values() -> dict[str, Any]:
    import keras

    import stratagem
    import stratagem.tf as tf

    strategy = stratagem.MultiWorkerMirroredStrategy()
    own = strategy.cluster_resolver.task_id + 1.0
    keras.utils.set_random_seed(int(own))
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3), keras.layers.Dropout(0.5)])
        model.compile(keras.optimizers.SGD(own), "mse")
        model.build((None, 2))
        made = {
            "weights": model.weights[0],
            "rate": model.optimizer.learning_rate,
            "seeds": model.layers[1].seed_generator.state,
            "number": tf.Variable(own),
            "drawn": tf.Variable(lambda: tf.random.normal([2])),
            "sum": tf.Variable(own, synchronization="on_read", aggregation="sum"),
            "module": tf.keras.layers.Dense(1).add_weight(shape=(2,), initializer="random_normal"),
        }
        assigned = tf.Variable(own)
        assigned.assign(-own)
        for _ in range(int(own)):  # freed at once, or not: each worker's own affair
            tf.Variable(own)
        with strategy.scope():
            inner = float(tf.Variable(own))
    values = {name: np.asarray(variable).tolist() for name, variable in made.items()}
    with strategy.scope():
        pass
    return {"made": values, "inner": inner, "assigned": float(assigned), "dtype": str(made["seeds"].dtype)}


def test_variables_of_a_scope_have_the_chiefs_first_values() -> None:
    chief, other = (result.value for result in run_workers(first_values, 2))
    assert chief["made"] == other["made"]
    assert (chief["made"]["number"], chief["made"]["sum"], chief["made"]["rate"]) == (1.0, 2.0, 1.0)
    assert (chief["inner"], other["inner"]) == (1.0, 2.0)
    assert (chief["assigned"], other["assigned"]) == (-1.0, -2.0)


def unlike_variables() -> str:
    import keras

    import stratagem

    strategy = stratagem.MultiWorkerMirroredStrategy()
    with strategy.scope():
        variable = keras.Variable(np.zeros(strategy.cluster_resolver.task_id + 1), name="counts")
    try:
        strategy.run(lambda: variable + 1.0)
    except stratagem.errors.PeerError as error:
        return str(error)
    return f"none: {variable}"


def test_variables_of_a_scope_that_differ_are_named_where_they_are_used() -> None:
    for result in run_workers(unlike_variables, 2):
        assert "counts" in result.value
        assert "float32[1]" in result.value
        assert "float32[2]" in result.value
