"""`merge_call` and `strategy.extended`: values of all replicas in the middle of a step and outside."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import keras
import numpy as np
import pytest

import stratagem
from stratagem.core.errors import InputError, UsageError

X = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")


def strategy_of(replicas: int) -> Any:
    return stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)])


def batch_of(strategy: Any, rows: Any) -> Any:
    rows = np.asarray(rows, "float32")
    (batch,) = strategy.experimental_distribute_dataset(stratagem.data.Dataset.from_tensor_slices(rows).batch(8))
    return batch


def merge(merge_fn: Any, *args: Any, **kwargs: Any) -> Any:
    context = stratagem.get_replica_context()
    assert context is not None
    return context.merge_call(merge_fn, args=args, kwargs=kwargs)


@pytest.mark.parametrize(
    ("replicas", "rows", "sums"),
    [(1, [1, 2, 3, 4], [10]), (2, [1, 2, 3, 4], [3, 7]), (2, [1, 2, 4], [3, 4]), (4, [1, 2, 4], [1, 2, 4, 0])],
    ids=["one", "even", "uneven", "a replica without rows"],
)
def test_values_of_all_replicas(replicas: int, rows: list[int], sums: list[int]) -> None:
    strategy = strategy_of(replicas)
    seen: list[Any] = []

    def merge_fn(strategy: Any, own: Any, by_name: Any, mode: str) -> Any:
        seen[:] = [stratagem.in_cross_replica_context(), stratagem.get_strategy(), mode]
        return {
            "sum": strategy.reduce("SUM", own, axis=None),
            "mean": strategy.extended.reduce_to("MEAN", own, destinations=own),
            "rows": strategy.reduce("MEAN", by_name["x"], axis=0),
            "both": strategy.extended.batch_reduce_to("MAX", [(own, None), (own, None)]),
            "gathered": strategy.gather(by_name["x"], axis=0),
            "own": own,
        }

    def step(x: Any) -> Any:
        own = keras.ops.sum(x)
        result = merge(merge_fn, own, by_name={"x": x}, mode="a")
        assert not stratagem.in_cross_replica_context()
        result["same"] = result.pop("own") - own
        return result

    result = strategy.run(step, args=(batch_of(strategy, rows),))
    first = {
        name: [strategy.experimental_local_results(v)[0] for v in value]
        if isinstance(value, list)
        else strategy.experimental_local_results(value)[0]
        for name, value in result.items()
    }
    assert seen == [replicas >= 1, strategy, "a"]
    assert float(first["sum"]) == sum(rows)
    np.testing.assert_allclose(first["mean"], np.mean(sums), rtol=1e-6)
    np.testing.assert_allclose(first["rows"], np.mean(rows), rtol=1e-6)
    assert [float(v) for v in first["both"]] == [max(sums)] * 2
    assert first["gathered"].tolist() == rows
    assert float(first["same"]) == 0.0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("compiled", [False, True], ids=["run", "function"])
@pytest.mark.parametrize(("replicas", "rows"), [(1, 6), (2, 6), (2, 5), (4, 3)])
def test_an_optimizer_written_with_merge_call(replicas: int, rows: int, compiled: bool) -> None:
    """As optimizers of TF 1 are: gradients of all replicas, then one update of each variable."""
    strategy = strategy_of(replicas)
    with strategy.scope():
        weight, bias = keras.Variable(np.full(3, 0.5, "float32")), keras.Variable(0.25)
        rate = keras.Variable(0.1, trainable=False)
        updates = keras.metrics.Sum()

    def apply(strategy: Any, pairs: Any) -> Any:
        sums = strategy.extended.batch_reduce_to("SUM", [(gradient, var) for gradient, var in pairs])
        for gradient, (_, variable) in zip(sums, pairs, strict=True):
            strategy.extended.update(variable, lambda v, g: v.assign_sub(rate * g), args=(gradient,))
        updates.update_state(1.0)  # one for all replicas

    def step(x: Any) -> Any:
        with stratagem.GradientTape() as tape:
            loss = stratagem.nn.compute_average_loss((keras.ops.matmul(x, weight) + bias) ** 2)
        gradients = tape.gradient(loss, [weight, bias])
        merge(apply, list(zip(gradients, [weight, bias], strict=True)))
        return loss

    def distributed(x: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(step, args=(x,)), axis=None)

    call = stratagem.function(distributed) if compiled else distributed
    batch = batch_of(strategy, X[:rows])
    losses = [float(call(batch)) for _ in range(3)]

    w, b, expected = np.full(3, 0.5), 0.25, []
    for _ in range(3):
        error = X[:rows] @ w + b
        expected.append((error**2).mean())
        w, b = w - 0.1 * 2 * (error[:, None] * X[:rows]).mean(axis=0), b - 0.1 * 2 * error.mean()
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    np.testing.assert_allclose(weight.value, w, rtol=1e-5)
    np.testing.assert_allclose(bias.value, b, rtol=1e-5)
    assert float(updates.result()) == 3.0


def test_a_gradient_through_merge_call() -> None:
    strategy = strategy_of(2)
    with strategy.scope():
        weight = keras.Variable(3.0)

    def step(x: Any) -> Any:
        with stratagem.GradientTape() as tape:
            total = merge(lambda strategy, v: strategy.reduce("SUM", v, axis=None), keras.ops.sum(x * weight))
            loss = total**2
        return tape.gradient(loss, weight)

    slopes = strategy.experimental_local_results(strategy.run(step, args=(batch_of(strategy, [1, 2, 4]),)))
    # The objective is 2 * (7 w)**2; the first replica's part of the total is 3 w, the second's 4 w.
    assert [float(slope) for slope in slopes] == [2 * 2 * 21 * 3, 2 * 2 * 21 * 4]


@pytest.mark.parametrize(("replicas", "rows"), [(1, [1, 2, 4]), (2, [1, 2, 3, 4]), (2, [1, 2, 4])])
def test_run_in_merge_call(replicas: int, rows: list[int]) -> None:
    """The replicas go on from there, each with its own values; what they assign is combined as in `run`."""
    strategy = strategy_of(replicas)
    with strategy.scope():
        seen = keras.metrics.Sum()
        alike = keras.Variable(0.0, trainable=False, aggregation="sum")

    def inner(own: Any, scale: float) -> Any:
        context = stratagem.get_replica_context()
        assert context is not None
        seen.update_state(own)
        return {"scaled": own * scale, "sum": context.all_reduce("SUM", own), "text": "a"}

    def merge_fn(strategy: Any, own: Any) -> Any:
        result = strategy.run(inner, args=(own,), kwargs={"scale": 10.0})
        assert result["text"] == "a"
        assert stratagem.in_cross_replica_context()
        alike.assign_add(1.0)
        return strategy.reduce("SUM", result["scaled"], axis=None), result["scaled"], result["sum"]

    def step(x: Any) -> Any:
        return merge(merge_fn, keras.ops.sum(x))

    total, scaled, again = strategy.run(step, args=(batch_of(strategy, rows),))
    first = [float(strategy.experimental_local_results(value)[0]) for value in (total, again)]
    assert first == [10 * sum(rows), sum(rows)]
    half = (len(rows) + 1) // 2
    sums = [sum(rows)] if replicas == 1 else [sum(rows[:half]), sum(rows[half:])]
    assert [float(value) for value in strategy.experimental_local_results(scaled)] == [10 * each for each in sums]
    assert float(seen.result()) == sum(rows)
    assert float(alike.value) == 1.0


def test_outside_every_scope_merge_call_calls() -> None:
    assert merge(lambda strategy, value: (strategy.num_replicas_in_sync, value * 2), 3.0) == (1, 6.0)


@pytest.mark.parametrize("replicas", [1, 2])
def test_extended_outside_run(replicas: int) -> None:
    strategy = strategy_of(replicas)
    with strategy.scope():
        variable = keras.Variable([1.0, 2.0])
    per_replica = strategy.run(lambda: jnp.array([1.0, 10.0]))
    total = strategy.extended.reduce_to("SUM", per_replica, destinations=variable)
    low, high = strategy.extended.batch_reduce_to("MIN", [(per_replica, variable), (per_replica, "cpu:0")])
    assert total.tolist() == [replicas * 1.0, replicas * 10.0]
    assert low.tolist() == high.tolist() == [1.0, 10.0]
    result = strategy.extended.update(variable, lambda v, x, scale: v.assign_add(x * scale), (total,), {"scale": 2.0})
    assert result.tolist() == variable.value.tolist() == [1.0 + 2 * replicas, 2.0 + 20 * replicas]
    each = strategy.extended.update(variable, lambda v: v * 2.0, group=False)
    assert [value.tolist() for value in each] == [[2.0 + 4 * replicas, 4.0 + 40 * replicas]] * replicas
    with strategy.extended.colocate_vars_with(variable):
        assert keras.Variable(1.0).shape == ()
    assert strategy.extended.worker_devices == tuple(
        f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(replicas)
    )
    assert strategy.extended.parameter_devices == strategy.extended.worker_devices
    extended = strategy.extended
    assert (extended.experimental_between_graph, extended.should_checkpoint, extended.should_save_summary) == (
        False,
        True,
        True,
    )


def test_misuse_is_explained() -> None:
    strategy = strategy_of(2)
    with strategy.scope():
        variable = keras.Variable(1.0)
    kept: list[Any] = []

    def step(merge_fn: Any) -> Any:
        kept[:] = [stratagem.get_replica_context()]
        return merge(merge_fn, jnp.ones(()), variable=variable)

    def refused(match: str, body: Any, error: Any = UsageError) -> None:
        with pytest.raises(error, match=match):
            strategy.run(step, args=(lambda strategy, value, variable: body(strategy, value, variable),))

    refused(
        "A replica cannot start all replicas again",
        lambda s, value, v: s.extended.update(v, lambda v: s.run(lambda: 1.0)),
    )
    refused("merge_call was called in cross-replica", lambda s, value, v: kept[0].merge_call(lambda s: 1.0))
    refused("used as one array inside merge_call", lambda s, value, v: keras.ops.sin(value))
    refused(
        r"in a function given to extended\.update",
        lambda s, value, v: s.extended.update(v, lambda v: v.assign(s.reduce("SUM", value, axis=None))),
    )
    refused("was given a per-replica value", lambda s, value, v: s.extended.update(v, v.assign, (value,)), InputError)
    refused("not a per-replica value", lambda s, value, v: s.extended.reduce_to("SUM", 2.0, v), InputError)
    with strategy.scope(), pytest.raises(UsageError, match="merge_call was called in cross-replica"):
        kept[0].merge_call(lambda s: 1.0)
    with pytest.raises(UsageError, match=r"(?s)update was called inside a function.*merge_call"), strategy.scope():
        strategy.run(lambda: strategy.extended.update(variable, lambda v: v))
    per_replica = strategy.run(lambda: 1.0)
    with pytest.raises(InputError, match="was given a per-replica value"):
        strategy.extended.update(variable, lambda v, x: v.assign(x), args=(per_replica,))


def test_names_of_a_merge_function_mean_what_they_mean_at_the_call() -> None:
    """New objects behind old names, and a function that is another one, in `merge_call` within `run`."""
    strategy = strategy_of(2)
    batch = batch_of(strategy, [1, 2])
    factor = 1.0
    with strategy.scope():
        total = keras.Variable(0.0)

    def added(strategy: Any, own: Any) -> Any:
        total.assign(total + factor * strategy.reduce("SUM", own, axis=None))

    def subtracted(strategy: Any, own: Any) -> Any:
        total.assign(total - factor * strategy.reduce("SUM", own, axis=None))

    merge_fn = added

    def step(x: Any) -> None:
        merge(merge_fn, keras.ops.sum(x))

    strategy.run(step, args=(batch,))
    first = total
    with strategy.scope():
        total = keras.Variable(10.0)
    strategy.run(step, args=(batch,))
    factor = 2.0
    strategy.run(step, args=(batch,))
    merge_fn = subtracted
    strategy.run(step, args=(batch,))
    assert (float(first.value), float(total.value)) == (3.0, 13.0)
    factor = 1.0
    strategy.run(step, args=(batch,))
    assert float(total.value) == 10.0


@pytest.mark.parametrize("rows", [[1, 2, 3, 4], [1, 2, 4]], ids=["even", "uneven"])
def test_results_of_all_reduce_update_a_variable(rows: list[int]) -> None:
    """The form of an optimizer of one's own; w = 5 - 0.5 * sum(rows), as in TensorFlow 2.21."""
    strategy = strategy_of(2)
    with strategy.scope():
        w: Any = keras.Variable(5.0)
    rate = jnp.float32(0.5)

    def update(strategy: Any, gradients: Any, rate: Any) -> Any:
        apply = lambda v, g, rate: v.assign_sub(rate * g["w"])  # noqa: E731
        return strategy.extended.update(w, apply, args=(gradients,), kwargs={"rate": rate})

    def step(x: Any) -> Any:
        context: Any = stratagem.get_replica_context()
        gradients = context.all_reduce("SUM", {"w": keras.ops.sum(x)})
        merge(update, gradients, rate=rate)
        merge(update, {"w": merge(lambda strategy, g: strategy.reduce("MEAN", g, axis=None), gradients["w"])}, rate=0.0)

    strategy.run(step, args=(batch_of(strategy, rows),))
    assert float(w.value) == 5 - 0.5 * sum(rows)


def test_what_is_computed_from_them_is_not_known_to_be_equal() -> None:
    strategy = strategy_of(2)
    with strategy.scope():
        w: Any = keras.Variable(1.0)

    def step() -> None:
        context: Any = stratagem.get_replica_context()
        total = context.all_reduce("SUM", 1.0) + context.replica_id_in_sync_group
        merge(lambda strategy, x: strategy.extended.update(w, lambda v, x: v.assign(x), args=(x,)), total)

    with pytest.raises(InputError, match="A result of all_reduce may be given as it is"):
        strategy.run(step)


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_loop_on_tensors_cannot_merge(replicas: int) -> None:
    """TensorFlow refuses it with these words."""
    strategy = strategy_of(replicas)

    def step() -> Any:
        def body(i: Any) -> Any:
            return (merge(lambda strategy, value: strategy.reduce("SUM", value, axis=None), i + 1),)

        return keras.ops.while_loop(lambda i: i < 2, body, (jnp.zeros((), "int32"),))

    with pytest.raises(RuntimeError, match="`merge_call` called while defining a new graph"):
        strategy.run(step)
