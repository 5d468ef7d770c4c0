"""Hooks that write checkpoints and summaries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tensorboardX.proto.event_pb2 import Event
from tests.clock import HandClock
from tests.unit.estimator.hooks.models import dataset, estimator

from stratagem.core.errors import InputError
from stratagem.estimator import (
    CheckpointSaverHook,
    CheckpointSaverListener,
    SessionRunHook,
)


class Listener(CheckpointSaverListener):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def begin(self) -> None:
        self.seen.append("begin")

    def before_save(self, session: Any, global_step_value: int) -> None:
        self.seen.append(("before", global_step_value))

    def after_save(self, session: Any, global_step_value: int) -> bool:
        self.seen.append(("after", global_step_value))
        return global_step_value == 3

    def end(self, session: Any, global_step_value: int) -> None:
        self.seen.append(("end", global_step_value))


def test_checkpoints_by_seconds_and_listeners(tmp_path: Path) -> None:
    clock, listener = HandClock(), Listener()

    class Time(SessionRunHook):
        def before_run(self, run_context: Any) -> None:
            clock.time += 4.0

    saver = CheckpointSaverHook(tmp_path, save_secs=10, listeners=[listener], keep=2, clock=clock)
    estimator(tmp_path).train(dataset, hooks=[Time(), saver])
    moments = [("before", 0), ("after", 0), ("before", 3), ("after", 3)]
    assert listener.seen == ["begin", *moments, ("end", 3)]
    assert sorted(file.name for file in tmp_path.glob("model*")) == [
        "model.ckpt-0.index",
        "model.ckpt-0.safetensors",
        "model.ckpt-3.index",
        "model.ckpt-3.safetensors",
    ]
    with pytest.raises(InputError, match="saving_listeners has 1 of type int"):
        estimator(tmp_path).train(dataset, saving_listeners=[1])


def events(folder: Path) -> list[tuple[int, str, float]]:
    found = []
    for file in sorted(folder.glob("events.*")):
        data = file.read_bytes()
        while data:
            length = int.from_bytes(data[:8], "little")
            event = Event.FromString(data[12 : 12 + length])
            found += [(event.step, value.tag, value.simple_value) for value in event.summary.value]
            data = data[16 + length :]
    return found


def test_event_files(tmp_path: Path) -> None:
    trained = estimator(tmp_path, save_summary_steps=2, log_step_count_steps=2).train(dataset)
    written = events(tmp_path)
    assert [event for event in written if event[1] == "loss"] == [(1, "loss", 20.0), (3, "loss", 64.0)]
    assert [event for event in written if event[1] == "mean"] == [(1, "mean", 2.0), (3, "mean", 8.0)]
    assert [step for step, name, _ in written if name == "global_step/sec"] == [3]
    trained.evaluate(dataset, steps=1, name="test")
    found = {name: (step, value) for step, name, value in events(tmp_path / "eval_test")}
    assert found["loss"] == (4, 12.0)
    assert "checkpoint_path/text_summary" in found
