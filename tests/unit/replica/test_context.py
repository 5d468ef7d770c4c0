"""The context of a replica: its collectives, and where the program stands."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import stratagem
from stratagem.core.errors import UsageError
from stratagem.replica.context import (
    current_replica_context,
    experimental_set_strategy,
    in_cross_replica_context,
    inside_step,
    merging_context,
    strategy_scope,
)

PACKAGE = str(Path(stratagem.__file__).parent)


@pytest.fixture(scope="module")
def strategy() -> stratagem.Strategy:
    return stratagem.MirroredStrategy(["cpu:0", "cpu:1"])


def on_replicas(strategy: stratagem.Strategy, function: Any) -> list[Any]:
    """Return what a function of the context and the replica's number returns on each replica."""

    def step() -> Any:
        context: Any = stratagem.get_replica_context()
        return function(context, context.replica_id_in_sync_group.astype(jnp.float32))

    results = strategy.experimental_local_results(strategy.run(step))
    return [jax.tree.map(float, result) for result in results]


@pytest.mark.parametrize("op", ["sum", "mean"])
def test_few_calls_between_all_reduce_and_psum(
    strategy: stratagem.Strategy, op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`all_reduce` itself is the first frame; two calls later it is JAX's turn."""
    stacks: list[list[str]] = []
    psum = lax.psum

    def counting(*args: Any, **kwargs: Any) -> Any:
        names, frame = [], sys._getframe(1)
        while frame is not None and (not names or names[-1] != "all_reduce"):
            if frame.f_code.co_filename.startswith(PACKAGE):
                names.append(frame.f_code.co_name)
            frame = frame.f_back
        stacks.append(names)
        return psum(*args, **kwargs)

    monkeypatch.setattr(lax, "psum", counting)
    assert on_replicas(strategy, lambda context, i: context.all_reduce(op, i + 1)) == [3 if op == "sum" else 1.5] * 2
    lengths = [len(names) for names in stacks if names[-1] == "all_reduce"]
    assert lengths
    assert max(lengths) <= 3


def test_numbers_of_all_reduce(strategy: stratagem.Strategy) -> None:
    ops = ("SUM", "MEAN", "MIN", "MAX")
    found = on_replicas(strategy, lambda context, i: [context.all_reduce(op, {"x": 3 * i + 1}) for op in ops])
    assert found == [[{"x": 5.0}, {"x": 2.5}, {"x": 1.0}, {"x": 4.0}]] * 2


def test_a_mean_of_integers(strategy: stratagem.Strategy) -> None:
    assert on_replicas(strategy, lambda context, i: context.all_reduce("mean", i.astype(int))) == [0.5, 0.5]


def test_derivatives_reach_all_replicas(strategy: stratagem.Strategy) -> None:
    def slope(context: Any, i: Any) -> Any:
        # loss of replica i: (i + 1) * (x_0 + x_1)**2; its derivative by x counts on both
        return jax.grad(lambda x: (i + 1) * context.all_reduce("sum", x) ** 2)(i + 1.0)

    assert on_replicas(strategy, slope) == [18.0, 18.0]  # (1 + 2) * 2 * (1 + 2)


def test_sum_and_the_replicas_that_count(strategy: stratagem.Strategy) -> None:
    def step(context: Any, i: Any) -> Any:
        return context.sum([i, i + 1])[1], context.replicas_counted(i), context.num_replicas_in_sync

    assert on_replicas(strategy, step) == [(3.0, 2.0, 2.0)] * 2


def test_where_the_program_stands(strategy: stratagem.Strategy) -> None:
    seen: list[Any] = []

    def merge(strategy: Any) -> float:
        seen.append((inside_step(), in_cross_replica_context(), merging_context() is seen[0]))
        return 1.0

    def step() -> Any:
        context: Any = current_replica_context()
        seen[:] = [context]
        return context.merge_call(merge)

    assert not inside_step()
    with strategy.scope():
        assert in_cross_replica_context()
    strategy.run(step)
    assert seen[1] == (True, True, True)
    assert current_replica_context() is None
    assert merging_context() is None


def test_scopes_do_not_mix(strategy: stratagem.Strategy) -> None:
    other: Any = stratagem.OneDeviceStrategy("cpu:0")
    with strategy.scope(), strategy.scope():
        with pytest.raises(UsageError, match="OneDeviceStrategy was entered inside the scope of MirroredStrategy"):
            strategy_scope(other).__enter__()
        with pytest.raises(UsageError, match="use only the block"):
            experimental_set_strategy(other)
    assert not in_cross_replica_context()
