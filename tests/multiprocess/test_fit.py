"""`fit` on two workers that do not get on: unequal data, unequal programs, an exception on one of them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from stratagem.core.errors import PeerError
from stratagem.testing import run_workers

pytestmark = pytest.mark.multiprocess


def _worker() -> int:
    import json

    return json.loads(os.environ["TF_CONFIG"])["task"]["index"]


def _compiled_model(units: int = 1) -> Any:
    import keras

    import stratagem

    with stratagem.MultiWorkerMirroredStrategy().scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(units)])
        model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    return model


def _batches(count: int, rows: int = 4) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    for _ in range(count):
        yield rng.normal(size=(rows, 3)).astype("float32"), rng.normal(size=(rows, 1)).astype("float32")


def one_generator_is_shorter() -> tuple[int, list[str], list[float]]:
    model = _compiled_model()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(_batches(5 if _worker() == 0 else 3), shuffle=False, verbose=0)
    said = [str(warning.message) for warning in caught if "ended first" in str(warning.message)]
    return int(model.optimizer.iterations), said, model.get_weights()[0].ravel().tolist()


def test_workers_end_together_when_one_runs_dry() -> None:
    first, second = (result.value for result in run_workers(one_generator_is_shorter, 2))
    assert first[0] == second[0] == 3
    assert first[1] == second[1] == ["The data of worker 1 ended first, so all workers end the pass here."]
    assert first[2] == second[2]


def compiled_in_each_epoch(accumulated: int) -> list[int]:
    import jax
    import keras

    import stratagem

    compiled: list[int] = []
    epochs: list[int] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: compiled.append(1) if event.endswith("/jaxpr_trace_duration") else None
    )
    with stratagem.MultiWorkerMirroredStrategy().scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1, gradient_accumulation_steps=accumulated), "mse", metrics=["mae"])
    note = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: epochs.append(len(compiled)))
    x, y = np.ones((12, 3), np.float32), np.ones((12, 1), np.float32)
    model.fit(x, y, batch_size=4, epochs=5, verbose=0, validation_data=(x, y), callbacks=[note])
    return np.diff(epochs).tolist()


@pytest.mark.parametrize("accumulated", [None, 2])
def test_nothing_is_compiled_once_an_epoch_has_run(accumulated: int | None) -> None:
    """Values that Keras resets at each epoch, and accumulated gradients, are put in place by programs that are kept."""
    for worker in run_workers(compiled_in_each_epoch, 2, args=[accumulated]):
        assert worker.value[1:] == [0, 0, 0]


def batches_of_different_sizes() -> None:
    _compiled_model().fit(_batches(2, rows=4 + 2 * _worker()), shuffle=False, verbose=0)


def models_of_different_shapes() -> None:
    _compiled_model(units=1 + _worker()).evaluate(np.zeros((4, 3), "float32"), np.zeros((4, 1), "float32"), verbose=0)


def different_numbers_of_batches() -> None:
    rows = 8 + 8 * _worker()
    _compiled_model().evaluate(np.zeros((rows, 3), "float32"), np.zeros((rows, 1), "float32"), batch_size=4, verbose=0)


@pytest.mark.parametrize(
    ("program", "found"),
    [
        (batches_of_different_sizes, r"\[4, 6\] rows on workers 0 to 1"),
        (models_of_different_shapes, "layer 1, Dense, units is "),
        (different_numbers_of_batches, "argument x is "),
    ],
)
def test_different_programs_are_named(program: Any, found: str) -> None:
    with pytest.raises(PeerError, match=found):
        run_workers(program, 2)


def written_by_callbacks(folder: str) -> tuple[dict[str, list[float]], list[float], float]:
    import keras

    model = _compiled_model()
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(10, 3)).astype("float32"), rng.normal(size=(10, 1)).astype("float32")
    history = model.fit(
        x,
        y,
        batch_size=4,
        epochs=6,
        verbose=0,
        validation_data=(x, y),
        callbacks=[
            keras.callbacks.CSVLogger(f"{folder}/log.csv"),
            keras.callbacks.ModelCheckpoint(f"{folder}/best.keras", save_best_only=True),
            keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=0, min_delta=10.0),
            keras.callbacks.EarlyStopping(monitor="val_loss", patience=3, min_delta=10.0),
        ],
    )
    return history.history, model.get_weights()[0].ravel().tolist(), float(model.optimizer.learning_rate)


@pytest.mark.quick
def test_callbacks_decide_alike_and_only_the_chief_writes(tmp_path: Any) -> None:
    (first, second) = (result.value for result in run_workers(written_by_callbacks, 2, args=(str(tmp_path),)))
    assert first == second
    history, _, rate = first
    assert len(history["loss"]) == 4  # stopped early, together
    assert rate == pytest.approx(0.1 * 0.5**3)
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 5
    assert (tmp_path / "best.keras").exists()


def differs_on_worker_1(what: str) -> str:
    import keras

    import stratagem

    strategy = stratagem.MultiWorkerMirroredStrategy()
    other = not strategy.is_chief
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dropout(0.6 if other and what == "rate" else 0.2)])
        model.add(keras.layers.Dense(1))
        clipnorm = 0.01 if other and what == "clipnorm" else None
        model.compile(keras.optimizers.Adam(0.1, clipnorm=clipnorm), "mae" if other and what == "loss" else "mse")
    x = np.arange(96, dtype="float32").reshape(32, 3) / 96
    x = x[int(other) :: 2] if what == "x" else x
    try:
        model.fit(x, x[:, :1], batch_size=16 if other and what == "batch_size" else 8, verbose=0)
    except stratagem.errors.PeerError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("what", ["rate", "clipnorm", "loss", "x", "batch_size", ""])
def test_workers_that_train_otherwise_are_told_before_the_first_step(what: str) -> None:
    said = [result.value for result in run_workers(differs_on_worker_1, 2, args=[what])]
    if not what:
        assert said == ["", ""]
        return
    name = {"rate": "layer 1, Dropout, rate", "clipnorm": "optimizer Adam, clipnorm", "loss": "compile, loss"}
    for message in said:
        assert f"{name.get(what, f'argument {what}')} is " in message
        assert "on worker 0" in message
        assert "on worker 1" in message
