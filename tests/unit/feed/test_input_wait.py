"""How long `fit` stands still for input, what it says, and that nothing that reads is left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest
from tests.clock import HandClock

import stratagem
from stratagem.core.progress import Phase, Progress
from stratagem.data import Dataset, Options
from stratagem.feed.dataset_source import DatasetSource
from stratagem.feed.feed import Feed
from stratagem.feed.input_wait import InputWait


def _line(inputs: int = 1) -> keras.Model:
    model = keras.Sequential([keras.layers.Input((inputs,)), keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile("sgd", "mse")
    return model


class Running:
    """Stands for the result of a step that was begun."""

    def __init__(self) -> None:
        self.ready = False

    def is_ready(self) -> bool:
        return self.ready


def test_waits_count_where_no_step_runs() -> None:
    clock = HandClock(100.0)
    progress = Progress(clock)
    wait = InputWait(progress)

    def take(seconds: float) -> None:
        with progress.during(Phase.INPUT) as phase:
            clock.time += seconds
        wait.took(phase.seconds, 1)

    def step(seconds: float) -> None:
        with progress.during(Phase.STEP):
            clock.time += seconds
        wait.stepped({})

    for waited in (3.0, 1.0):
        take(waited)
        step(5.0)
    assert (wait.waited, wait.seconds, wait.steps, wait.is_bottleneck) == (4.0, 14.0, 2, True)
    wait._running = Running()
    take(2.0)
    assert wait.waited == 4.0, "the step ran on meanwhile"
    wait._running.ready = True
    take(2.0)
    assert (wait.waited, progress.waited_for_input) == (6.0, 6.0)
    wait.begin_epoch()
    take(2.0)
    step(9.0)
    assert (wait.waited, wait.seconds, wait.is_bottleneck) == (2.0, 11.0, False)
    assert progress.waited_for_input == 8.0
    wait.begin_epoch()
    take(0.5)
    step(0.0)
    assert not wait.is_bottleneck, "half a second is not worth a line"


def test_fit_says_once_that_it_waits_for_its_input(capsys: pytest.CaptureFixture[str]) -> None:
    clock = HandClock(100.0)
    strategy = stratagem.OneDeviceStrategy("cpu:0")
    strategy.mesh.progress = Progress(clock)

    cost = {"batch": 0.0, "step": 0.0}

    def slow_batches() -> Iterator[Any]:
        while True:
            clock.time += cost["batch"]
            yield np.ones((2, 1)), np.ones((2, 1))

    class SlowFromTheSecondEpochOn(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            cost.update(batch=0.75, step=0.25)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            jax.block_until_ready(logs)  # a wait beside a running step would not count
            clock.time += cost["step"]

    with strategy.scope():
        model = _line()
    capsys.readouterr()
    slow = SlowFromTheSecondEpochOn()
    model.fit(slow_batches(), steps_per_epoch=4, epochs=3, verbose=0, shuffle=False, callbacks=[slow])
    lines = [line for line in capsys.readouterr().err.splitlines() if "input:" in line]
    assert len(lines) == 1
    # Four waits of 0.75 seconds, and 0.25 behind three of the steps.
    assert "80% of epoch 2 was spent waiting for data (750.0 ms of 937.5 ms a step)" in lines[0]
    assert "asked for: a stratagem.data.Dataset reads ahead" in lines[0]


def test_fetching_ahead_changes_nothing_but_when() -> None:
    x = np.arange(24, dtype=np.float32).reshape(12, 2) / 24

    def trained(ahead: bool) -> tuple[list[np.ndarray], dict[str, list[float]]]:
        strategy = stratagem.MirroredStrategy(["cpu:0", "cpu:1"])
        strategy.mesh.fetches_ahead = ahead
        dataset = Dataset.from_tensor_slices((x, x.sum(axis=1))).shuffle(12, seed=5).batch(4).repeat()
        with strategy.scope():
            model = _line(2)
        history = model.fit(dataset, epochs=3, steps_per_epoch=5, verbose=0)
        return model.get_weights(), history.history

    (weights, history), (expected, expected_history) = trained(True), trained(False)
    assert history == expected_history
    for got, want in zip(weights, expected, strict=True):
        np.testing.assert_array_equal(got, want)


def test_position_does_not_count_what_was_fetched_ahead() -> None:
    strategy = stratagem.OneDeviceStrategy("cpu:0")
    strategy.mesh.fetches_ahead = True
    read: list[int] = []
    dataset = Dataset.from_tensor_slices(np.arange(6)).batch(2)
    noting = dataset.map(lambda rows: (read.append(int(rows[0])), rows)[1])
    batches = Feed(DatasetSource(noting, strategy, read_ahead=0), strategy.mesh)  # so that it is known what was read
    for expected in ([0, 1], [2, 3], [4, 5]):
        assert np.asarray(next(batches)).tolist() == expected
        place = batches.position()
        batches.fetch_ahead(1)
        batches.fetch_ahead(1)
        assert batches.position() == place
    assert place["batches"] == 3
    assert read == [0, 2, 4]
    with pytest.raises(StopIteration):
        next(batches)
    batches.fetch_ahead(1)
    assert batches.is_at_end()


class Fails(keras.callbacks.Callback):
    def __init__(self, error: type[BaseException]) -> None:
        super().__init__()
        self._error = error

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 1:
            raise self._error


@pytest.mark.quick
@pytest.mark.multiprocess
@pytest.mark.parametrize("error", [None, ZeroDivisionError, KeyboardInterrupt])
def test_readers_serve_all_epochs_and_end_with_fit(error: type[BaseException] | None, tmp_path: Path) -> None:
    note = tmp_path / "pids"

    def noting(x: Any) -> Any:
        with note.open("a") as file:
            file.write(f"{os.getpid()}\n")
        return x, 2 * x

    options = Options()
    options.reader_processes = 1
    dataset = Dataset.from_tensor_slices(np.ones((8, 1), np.float32)).repeat().map(noting, 2).batch(2)
    strategy = stratagem.OneDeviceStrategy("cpu:0")
    with strategy.scope():
        model = _line()
    model.build((None, 1))
    dataset = dataset.with_options(options)
    assert dataset.element_spec[0].shape == (None, 1)
    note.write_text("")
    if error is None:
        model.fit(dataset, epochs=3, steps_per_epoch=3, verbose=0)
    else:
        with pytest.raises(error):
            model.fit(dataset, epochs=3, steps_per_epoch=3, verbose=0, callbacks=[Fails(error)])
    pids = set(note.read_text().split())
    assert len(pids) == 1
    assert str(os.getpid()) not in pids
    # The fixture of all tests finds a process or thread that is left.
