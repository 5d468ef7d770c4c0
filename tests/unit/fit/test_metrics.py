"""Which entries of a step's logs are results of metrics, and what they are after the replicas' states are summed."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import jax.numpy as jnp
import keras
import pytest

from stratagem.fit.metrics import Entry, ResultWatch, as_returned, global_results


def test_results_are_known_by_the_values_that_a_step_returns() -> None:
    mean: Any = keras.metrics.Mean(name="mean")
    mean.update_state([1.0, 2.0])
    watch = ResultWatch([mean])
    with watch.watching():
        result, other = mean.result(), jnp.float32(1.5)
        with watch.watching():  # traced again within
            again = mean.result()
    assert (watch.entry(result), watch.entry(again), watch.entry(other)) == (Entry(mean, 0), Entry(mean, 0), None)
    assert "result" not in vars(mean)
    assert watch.entry(mean.result()) is None  # nobody watches any more


def test_each_leaf_of_a_result_has_its_number() -> None:
    class Both(keras.metrics.Metric):
        def update_state(self, *_: Any) -> None: ...

        def result(self) -> dict[str, Any]:
            return {"one": jnp.float32(1.0), "two": jnp.float32(2.0)}

    both: Any = Both()
    watch = ResultWatch([both])
    with watch.watching():
        result = both.result()
    entries: Any = [watch.entry(result["two"]), watch.entry(result["one"])]
    assert [entry.index for entry in entries] == [1, 0]
    assert [float(value) for value in global_results(entries)] == [2.0, 1.0]


def test_global_results_come_of_the_summed_state() -> None:
    mean: Any = keras.metrics.Mean()
    total, count = mean.variables
    with keras.StatelessScope(state_mapping=[(total, jnp.float32(6.0)), (count, jnp.float32(4.0))]):
        assert [float(value) for value in global_results([Entry(mean, 0)])] == [1.5]
    assert float(mean.result()) == 0.0


@pytest.mark.parametrize(("own", "kind"), [(False, dict), (True, MappingProxyType)])
def test_logs_with_values_of_their_own_are_no_dictionary(own: bool, kind: type) -> None:
    assert type(as_returned({"loss": 1.0}, own)) is kind
    assert as_returned(2.0, own) == 2.0
