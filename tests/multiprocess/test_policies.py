"""`fit`, `evaluate` and `predict` on real workers that read files, under every auto-shard policy.

Plain Keras is given the very batches that the workers saw together, and must end with the same weights.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from stratagem.data import AutoShardPolicy, Dataset, Options, TFRecordDataset, write_tfrecord
from stratagem.data.experimental import SHARD_HINT
from stratagem.testing import run_workers

pytestmark = pytest.mark.multiprocess

BATCH = 6
EPOCHS = 2
UNEQUAL = (11, 2, 7, 4, 1)
EQUAL = (8, 8, 8)

Batches = list[list[int]]


def _example(record: bytes) -> tuple[np.ndarray, np.ndarray, np.int32]:
    """Return input, target, and the row's number."""
    row = int(record)
    x = np.sin(np.arange(4) * (row + 1)).astype("float32")
    return x, x[:1] * 2 - x[1:2], np.int32(row)


def _write(folder: Path, counts: tuple[int, ...]) -> list[str]:
    paths = [str(folder / f"{len(counts)}-{number}") for number in range(len(counts))]
    ends = np.cumsum(counts).tolist()
    for path, count, end in zip(paths, counts, ends, strict=True):
        write_tfrecord(path, [str(row).encode() for row in range(end - count, end)])
    return paths


def _with_policy(dataset: Dataset, policy: AutoShardPolicy) -> Dataset:
    options = Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


def _files(folder: Path) -> Dataset:
    return TFRecordDataset(_write(folder, UNEQUAL)).map(_example)


def _in_turn(folder: Path) -> Dataset:
    names = Dataset.list_files(_write(folder, EQUAL), shuffle=False)
    return names.interleave(TFRecordDataset).map(_example)


INPUTS: dict[str, Callable[[Path], Dataset]] = {
    "AUTO, by files": lambda folder: _in_turn(folder).batch(BATCH),
    "AUTO, by rows": lambda folder: _files(folder).shuffle(30, seed=3).batch(BATCH),
    "FILE": lambda folder: _with_policy(_files(folder).shuffle(5, seed=1).batch(BATCH), AutoShardPolicy.FILE),
    "HINT": lambda folder: _with_policy(
        _files(folder).shard(SHARD_HINT, SHARD_HINT).batch(BATCH), AutoShardPolicy.HINT
    ),
    "OFF": lambda folder: _with_policy(_files(folder).batch(BATCH), AutoShardPolicy.OFF),
}


def _compiled() -> keras.Model:
    glorot = [keras.initializers.GlorotUniform(seed) for seed in (1, 2)]
    hidden, out = layers.Dense(5, "tanh", kernel_initializer=glorot[0]), layers.Dense(1, kernel_initializer=glorot[1])
    model = keras.Sequential([keras.Input((4,)), hidden, out])
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse", metrics=["mae"])
    return model


def _without_number(x: Any, y: Any, number: Any) -> Any:
    return x, y


def train(folder: str) -> dict[str, Any]:
    """Train on every input as one worker."""
    import stratagem
    from stratagem.feed.dataset_source import DatasetSource

    strategy = stratagem.MultiWorkerMirroredStrategy()
    own = Path(folder) / f"worker{strategy.worker_index}"
    own.mkdir()
    found: dict[str, Any] = {}
    for name, make in INPUTS.items():
        source = DatasetSource(make(own), strategy)
        epochs = []
        for _ in range(EPOCHS):
            steps = [strategy.from_all("rows", [int(row) for row in step.local[2]]) for step in source.open()]
            epochs.append([list(itertools.chain(*told)) for told in steps])
        data, validation, evaluated = (make(own).map(_without_number) for _ in range(3))
        with strategy.scope():
            model = _compiled()
        history = model.fit(data, epochs=EPOCHS, validation_data=validation, verbose=0).history
        prediction = model.predict(make(own).map(lambda x, y, number: x), verbose=0)
        evaluation = model.evaluate(evaluated, verbose=0, return_dict=True)
        found[name] = {
            "batches": epochs,
            "num_batches": source.num_batches,
            "history": history,
            "weights": [np.asarray(value) for value in model.get_weights()],
            "prediction": prediction,
            "evaluation": evaluation,
        }
    return found


def _plain(epochs: list[Batches]) -> tuple[keras.Model, dict[str, list[float]]]:
    """Train plain Keras on these rows."""

    def rows(batches: Batches) -> Iterator[Any]:
        for batch in batches:
            x, y, _ = zip(*(_example(str(row).encode()) for row in batch), strict=True)
            yield np.stack(x), np.stack(y)

    model = _compiled()
    history: dict[str, list[float]] = {"loss": [], "mae": []}
    for batches in epochs:
        # A generator for each call: Keras 3.14 looks at one batch more than it trains on, and drops it.
        logs = model.fit(rows(batches), steps_per_epoch=len(batches), shuffle=False, verbose=0).history
        for name in history:
            history[name].extend(logs[name])
    return model, history


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("policies")
    return [result.value for result in run_workers(train, 3, args=[str(folder)])]


@pytest.mark.parametrize("name", INPUTS)
def test_every_worker_ends_with_the_weights_of_one_device(
    name: str, workers: list[dict[str, Any]], tmp_path: Path
) -> None:
    first, *others = [found[name] for found in workers]
    rows = sum(EQUAL) if name == "AUTO, by files" else sum(UNEQUAL)
    times = 3 if name == "OFF" else 1
    for epoch in first["batches"]:
        assert sorted(itertools.chain(*epoch)) == sorted([*range(rows)] * times)
        assert first["num_batches"] in (None, len(epoch))
    model, history = _plain(first["batches"])
    for weight, expected in zip(first["weights"], model.get_weights(), strict=True):
        np.testing.assert_allclose(weight, expected, rtol=1e-4, atol=1e-6)
    for metric, values in history.items():
        np.testing.assert_allclose(first["history"][metric], values, rtol=1e-5)
    for other in others:
        assert other["batches"] == first["batches"]
        assert other["history"] == first["history"]
        assert other["evaluation"] == first["evaluation"]
        np.testing.assert_array_equal(other["prediction"], first["prediction"])
        for weight, expected in zip(other["weights"], first["weights"], strict=True):
            np.testing.assert_array_equal(weight, expected)

    # Evaluation and prediction saw the rows of the last epoch's weights, each as often as the epoch did.
    x, y, _ = zip(*(_example(str(row).encode()) for row in itertools.chain(*first["batches"][0])), strict=True)
    expected = model.evaluate(np.stack(x), np.stack(y), verbose=0, return_dict=True)
    for metric, value in expected.items():
        np.testing.assert_allclose(first["evaluation"][metric], value, rtol=1e-4)
        np.testing.assert_allclose(first["history"][f"val_{metric}"][-1], value, rtol=1e-4)
    if name == "AUTO, by files":  # predict keeps the order of the rows
        x = [row for batch in INPUTS[name](tmp_path).as_numpy_iterator() for row in batch[0]]
    predicted = model.predict(np.stack(x), verbose=0)
    if name == "AUTO, by rows":  # shuffled anew in each pass; its rows are the same
        predicted, first["prediction"] = np.sort(predicted, axis=0), np.sort(first["prediction"], axis=0)
    if name != "FILE":  # whose workers shuffle their own rows
        np.testing.assert_allclose(first["prediction"], predicted, rtol=1e-3, atol=1e-5)


def test_what_auto_chose(workers: list[dict[str, Any]]) -> None:
    in_order = [list(range(start, start + 2)) for start in range(0, 8, 2)]
    by_files = [[row + 8 * file for file in range(3) for row in part] for part in in_order]
    assert workers[0]["AUTO, by files"]["batches"] == [by_files] * EPOCHS
