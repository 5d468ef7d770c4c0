"""Real workers that combine values through the memory of their host: against Gloo, and where they differ."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stratagem
from stratagem.core import exits
from stratagem.testing import run_workers

pytestmark = pytest.mark.multiprocess


def everything() -> dict[str, list[Any]]:
    """Return what each way makes of the same values, with both in turns: each keeps its order."""
    implementation = stratagem.CommunicationImplementation
    ways = {
        way.name: stratagem.MultiWorkerMirroredStrategy(None, stratagem.CommunicationOptions(implementation=way))
        for way in (implementation.AUTO, implementation.RING)
    }

    def step(x: jax.Array) -> Any:
        context: Any = stratagem.get_replica_context()
        own = x * (1 + context.replica_id_in_sync_group.astype(x.dtype))
        values = [own, own.astype(jnp.int32), own.astype(jnp.bfloat16), own[:3] > 4, own.astype(jnp.float16)]
        with stratagem.GradientTape() as tape:
            tape.watch(own)
            loss = jnp.sum(context.all_reduce("mean", own) ** 2) + jnp.sum(context.all_reduce("max", own[:4]))
        return (
            [context.all_reduce("sum", value) for value in values],
            context.all_reduce("min", values[:2]),
            context.all_gather(own[:2, None], axis=1),
            tape.gradient(loss, own),
            own[:5],
        )

    found: dict[str, list[Any]] = {name: [] for name in ways}
    for size in (7, 40_000):
        x = np.linspace(-1, 5, size, dtype=np.float32)
        for name, strategy in ways.items():
            result = strategy.run(step, args=(x,))
            flat = jax.tree.leaves(result, is_leaf=lambda leaf: isinstance(leaf, stratagem.DistributedValues))
            local = [strategy.experimental_local_results(leaf)[0] for leaf in flat]
            reduced = [strategy.reduce(op, result[-1], axis=None) for op in ("SUM", "MEAN", "MIN", "MAX")]
            gathered = strategy.gather(result[-1], axis=0)
            found[name].append(jax.tree.map(np.asarray, jax.tree.leaves((local, reduced, gathered))))
    found["memory"] = [strategy.mesh.memory is not None for strategy in ways.values()]
    return found


@pytest.mark.parametrize("workers", [2, 3])
def test_memory_gives_what_gloo_gives(workers: int) -> None:
    results = [result.value for result in run_workers(everything, workers)]
    for result in results:
        assert result["memory"] == [True, False]
        for by_memory, by_gloo in zip(result["AUTO"], result["RING"], strict=True):
            assert len(by_memory) == 15
            for own, wanted in zip(by_memory, by_gloo, strict=True):
                assert (own.dtype, own.shape) == (wanted.dtype, wanted.shape)
                # Two workers add in one order only; of three, Gloo adds in another.
                tolerance = 0 if workers == 2 else 1e-2 if own.dtype.itemsize == 2 else 1e-6
                np.testing.assert_allclose(own.astype(float), wanted.astype(float), rtol=tolerance, atol=tolerance)
    for one, other in zip(results[0]["AUTO"], results[-1]["AUTO"], strict=True):
        assert all(np.array_equal(a, b) for a, b in zip([*one[:8], *one[10:]], [*other[:8], *other[10:]], strict=True))


def different_programs() -> None:
    strategy = stratagem.MultiWorkerMirroredStrategy()
    rows = 3 + strategy.worker_index

    def step() -> Any:
        context: Any = stratagem.get_replica_context()
        return context.all_reduce("sum", jnp.full(rows, context.replica_id_in_sync_group))

    strategy.run(step)


def test_workers_that_combine_different_values_are_told_which() -> None:
    for result in run_workers(different_programs, 2, check=False):
        assert result.returncode in (exits.FAILED, exits.PEER_LOST)
        assert "The workers combine different values in the same step:" in result.output
        for index in range(2):
            assert f"worker {index} (host " in result.output
            assert f"sum int32[{3 + index}]" in result.output


def in_which_way() -> str | None:
    memory = stratagem.MultiWorkerMirroredStrategy().mesh.memory
    return None if memory is None else "memory"


def test_several_devices_on_a_worker_stay_with_xla() -> None:
    assert [result.value for result in run_workers(in_which_way, 2, devices_per_worker=2)] == [None, None]
