"""Input functions, and what becomes of what they return."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorboardX  # noqa: F401 - sets an environment variable, once; no test should be blamed for it

import stratagem
from stratagem.core.errors import InputError, UsageError
from stratagem.estimator import (
    Estimator,
    EstimatorSpec,
    RunConfig,
    numpy_input_fn,
    pandas_input_fn,
)


def config(replicas: int = 1, **options: Any) -> RunConfig:
    strategy = stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)])
    return RunConfig(train_distribute=strategy, save_summary_steps=None, tf_random_seed=3, **options)


def test_an_iterator_of_the_old_kind_gives_every_batch() -> None:
    def input_fn() -> Any:
        iterator = stratagem.data.Dataset.from_tensor_slices((np.arange(6.0), np.arange(6))).batch(2)
        x, y = iterator.make_one_shot_iterator().get_next()
        return {"x": x}, y

    def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        return EstimatorSpec(mode, predictions={"x": features["x"], "twice": 2 * features["x"]})

    found = [row["twice"] for row in Estimator(model_fn, config=config()).predict(input_fn)]
    assert found == [0, 2, 4, 6, 8, 10]

    eager = stratagem.data.Dataset.range(2).make_one_shot_iterator()
    assert [int(eager.get_next()), *map(int, eager)] == [0, 1]

    def computing() -> Any:
        return 2 * np.asarray(stratagem.data.Dataset.range(3).batch(1).make_one_shot_iterator().get_next())

    with pytest.raises(UsageError, match=r"computed with the result of get_next\(\)"):
        list(Estimator(model_fn, config=config()).predict(computing))


def test_arrays_in_batches_and_epochs() -> None:
    x = np.arange(5.0)
    batches = list(numpy_input_fn({"x": x}, x * 2, batch_size=2, num_epochs=2, shuffle=False)())
    assert [labels.tolist() for _, labels in batches] == [[0, 2], [4, 6], [8, 0], [2, 4], [6, 8]]
    assert batches[0][0]["x"].tolist() == [0, 1]
    (mixed,) = numpy_input_fn(x, batch_size=5, shuffle=True)()
    assert sorted(mixed.tolist()) == x.tolist()
    with pytest.raises(InputError, match="numpy_input_fn was given shuffle=None"):
        numpy_input_fn(x)


class Table(dict):
    """Stands for a pandas table."""

    def __init__(self, index: list[int], **columns: Any) -> None:
        super().__init__(columns)
        self.index = self
        self.rows = index

    def equals(self, other: Any) -> bool:
        return self.rows == other.rows


def test_the_index_of_a_table_and_its_labels() -> None:
    table, labels = Table([1, 2], x=[3.0, 4.0]), Table([2, 1])
    ((features, found),) = pandas_input_fn(table, np.array([0, 1]), shuffle=False)()
    assert (features["x"].tolist(), found.tolist()) == ([3.0, 4.0], [0, 1])
    with pytest.raises(InputError, match="with different indices"):
        pandas_input_fn(table, labels, shuffle=False)
