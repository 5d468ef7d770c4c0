"""One process that is told to end saves, leaves with code 42, and goes on where it was."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import pytest

from stratagem.checkpoint import preemption
from stratagem.checkpoint.preemption import Due, PreemptionWatch
from stratagem.core.errors import InputError, UnsupportedError
from stratagem.train import Checkpoint, CheckpointManager, PreemptionCheckpointHandler, TerminationConfig

STEPS = 10


def train(folder: Path, sigterm_at: int | None) -> list[int]:
    """Add up the numbers of the steps; return [runs, sum]."""
    total = keras.Variable(0, dtype="int32", trainable=False)
    handler = PreemptionCheckpointHandler(None, Checkpoint(total=total), folder)
    try:
        while handler.total_run_calls < STEPS:
            if handler.total_run_calls == sigterm_at:
                os.kill(os.getpid(), signal.SIGTERM)
                while True:  # the stop is known a moment later
                    with handler.watch_preemption_scope():
                        pass
            handler.run(total.assign_add, handler.total_run_calls)
    finally:
        handler.close()
    return [handler.total_run_calls, int(total)]


def test_every_step_is_done_once(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    for at in (3, 7):
        with pytest.raises(SystemExit) as ended:
            train(tmp_path, at)
        assert ended.value.code == 42
    assert train(tmp_path, None) == [STEPS, sum(range(STEPS))]
    assert signal.getsignal(signal.SIGTERM) is before
    assert len(list(tmp_path.glob("*.safetensors"))) == 1


def test_steps_that_run_does_not_make_count_too(tmp_path: Path) -> None:
    def train_without_run(sigterm_at: int | None) -> list[int]:
        total = keras.Variable(0, dtype="int32", trainable=False)
        handler = PreemptionCheckpointHandler(None, Checkpoint(total=total), tmp_path)
        try:
            while handler.total_run_calls < STEPS:
                done = handler.total_run_calls
                if done == sigterm_at:
                    os.kill(os.getpid(), signal.SIGTERM)
                    while True:  # the stop is known a moment later
                        with handler.watch_preemption_scope():
                            pass
                handler.save_checkpoint_if_preempted()
                total.assign_add(done)
        finally:
            handler.close()
        return [handler.total_run_calls, int(total)]

    with pytest.raises(SystemExit):
        train_without_run(4)
    assert train_without_run(None) == [STEPS, sum(range(STEPS))]


def test_a_grace_period_begins_and_ends_with_a_checkpoint(tmp_path: Path) -> None:
    total = keras.Variable(0, dtype="int32", trainable=False)
    manager = CheckpointManager(Checkpoint(total=total), tmp_path, max_to_keep=None)
    handler = PreemptionCheckpointHandler(
        None, manager, termination_config=TerminationConfig(grace_period=0.5, exit_fn=lambda: None)
    )
    os.kill(os.getpid(), signal.SIGTERM)
    while len(manager.checkpoints) < 2:
        handler.run(total.assign_add, 1)
    done = handler.total_run_calls

    def restored(path: str) -> list[int]:
        other = keras.Variable(0, dtype="int32", trainable=False)
        runs = keras.Variable(0, dtype="int32", trainable=False)
        Checkpoint(total=other, total_run_calls=runs).restore(path)
        return [int(other), int(runs)]

    first, last = map(restored, manager.checkpoints)
    assert first[0] == first[1] < done
    assert last == [done, done]


def test_a_notice_within_the_grace_period_of_another_worker_does_not_shorten_it(tmp_path: Path) -> None:
    watch = PreemptionWatch(TerminationConfig(grace_period=1000.0))
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        while watch.due() is Due.NOTHING:  # the stop is known a moment later
            pass
        watch._notice("told again")
        assert not watch._last._asked.is_set()
        watch.train_on()
        assert watch.due() is Due.NOTHING
    finally:
        watch.close()


def test_what_the_program_says(tmp_path: Path) -> None:
    told, said = threading.Event(), []
    config = TerminationConfig(told.is_set, lambda: said.append("left"), save_fn=lambda *args: said.append(args))
    manager = CheckpointManager(Checkpoint(step=keras.Variable(0)), tmp_path, max_to_keep=3)
    handler = PreemptionCheckpointHandler(None, manager, termination_config=config)
    handler.save_checkpoint_if_preempted("early")
    told.set()
    while not said:  # it is asked once a second
        handler.save_checkpoint_if_preempted("late", 1)
    assert said == [("late", 1), "left"]
    handler.close()


@pytest.mark.parametrize("hand_on", [True, False])
def test_a_signal_behind_the_last_step_is_handed_on_by_who_goes_on(hand_on: bool) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        watch = PreemptionWatch(TerminationConfig())
        assert watch.may_begin_step()
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard == []
        for _ in range(2):
            watch.close(hand_on=hand_on)
        assert heard == [signal.SIGTERM] * hand_on
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_signal_that_stopped_training_is_not_handed_on() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        watch = PreemptionWatch(TerminationConfig())
        os.kill(os.getpid(), signal.SIGTERM)
        while watch.may_begin_step():  # the stop is known a moment later
            pass
        watch.close(hand_on=True)
        assert heard == []
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_block_is_watched(tmp_path: Path) -> None:
    told = threading.Event()
    told.set()
    saved = threading.Event()
    config = TerminationConfig(told.is_set, lambda: None, save_fn=saved.set)
    handler = PreemptionCheckpointHandler(None, Checkpoint(step=keras.Variable(0)), tmp_path, config)
    while not saved.is_set():
        with handler.watch_preemption_scope():
            pass
    handler.close()
    assert handler.total_run_calls == 0


@pytest.mark.parametrize("given", [None, "checkpoint"])
def test_nothing_to_save(given: Any) -> None:
    with pytest.raises(InputError, match="The object to save, or the folder"):
        PreemptionCheckpointHandler(None, given, "folder")
    with pytest.raises(InputError, match="checkpoint_dir=None"):
        PreemptionCheckpointHandler(None, Checkpoint(step=keras.Variable(0)))


def test_workers_that_may_change_do_not_stop_together(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(preemption, "current_peers", lambda: SimpleNamespace(may_change=True))
    with pytest.raises(UnsupportedError, match=r"PreemptionCheckpointHandler was made under .* --spares or --elastic"):
        PreemptionWatch(TerminationConfig())
    assert signal.getsignal(signal.SIGTERM) is before
