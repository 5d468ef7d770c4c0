"""Following checkpoints, and evaluating each of them."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event

from stratagem.cluster.chief_alive import GONE_SECONDS, ChiefWatch
from stratagem.cluster.spec import ClusterSpec
from stratagem.core.clock import Clock
from stratagem.core.errors import InputError, UnmatchedError
from stratagem.train import Checkpoint, CheckpointManager, SidecarEvaluator, checkpoints_iterator

X = np.ones((4, 2), "float32")
Y = np.zeros((4, 1), "float32")


class BusyClock(Clock):
    """A clock that does the next thing whenever somebody waits."""

    def __init__(self, *things: Callable[[], Any]) -> None:
        self.time = 0.0
        self.things = list(things)

    def now(self) -> float:
        return self.time

    def wait(self, seconds: float) -> None:
        self.time += seconds
        if self.things:
            self.things.pop(0)()


def nothing() -> None:
    pass


def make_model(weight: float = 0.0) -> keras.Model:
    constant = keras.initializers.Constant(weight)
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1, kernel_initializer=constant)])
    model.compile("sgd", loss="mse", metrics=["mae"])
    return model


def saver(folder: Path) -> tuple[keras.Model, Callable[[float], Callable[[], Any]]]:
    """Return a model, and what makes something that saves it with a weight and ten more iterations."""
    model = make_model()
    manager = CheckpointManager(Checkpoint(model=model, optimizer=model.optimizer), folder, max_to_keep=None)

    def save(weight: float) -> None:
        model.layers[0].kernel.assign(np.full((2, 1), weight))
        model.optimizer.iterations.assign_add(10)
        manager.save()

    return model, lambda weight: lambda: save(weight)


def test_iterator_leaves_out_what_was_followed_by_another(tmp_path: Path) -> None:
    _, saving = saver(tmp_path)
    clock = BusyClock(nothing, saving(1.0), nothing, saving(3.0), nothing, nothing, nothing, nothing, nothing)
    checkpoints = checkpoints_iterator(tmp_path, timeout=4, clock=clock)

    first = next(checkpoints)
    saving(2.0)()
    assert [Path(path).name for path in (first, *checkpoints)] == ["ckpt-1", "ckpt-2", "ckpt-3"]
    assert clock.time == 2 + 2 + 4  # until the first, until the third, and the timeout

    clock = BusyClock(saving(4.0), saving(5.0))
    spaced = checkpoints_iterator(tmp_path, min_interval_secs=60, timeout=1, clock=clock)
    assert [(Path(path).name, clock.time) for path in spaced] == [("ckpt-3", 0), ("ckpt-4", 60), ("ckpt-5", 120)]


def test_timeout_function_decides_whether_to_wait_on(tmp_path: Path) -> None:
    asked: list[float] = []
    clock = BusyClock()

    def enough() -> bool:
        asked.append(clock.time)
        return len(asked) == 3

    assert list(checkpoints_iterator(tmp_path / "later", timeout=2.5, timeout_fn=enough, clock=clock)) == []
    assert asked == [2.5, 5.0, 7.5]


@pytest.fixture
def chief(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Yield the port of a chief; this process is the evaluator of its cluster."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        cluster = {"chief": [f"127.0.0.1:{listener.getsockname()[1]}"], "worker": ["127.0.0.1:9"]}
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "evaluator", "index": 0}}))
        yield listener


def test_evaluator_ends_after_the_last_checkpoint_of_the_chief(
    chief: socket.socket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, saving = saver(tmp_path)

    def leave() -> None:
        saving(3.0)()
        chief.close()

    clock = BusyClock(nothing, saving(1.0), saving(2.0), nothing, nothing, nothing, leave)
    model = make_model()
    results = SidecarEvaluator(model, (X, Y), tmp_path, log_dir=tmp_path / "log", clock=clock).start()

    assert {Path(path).name: logs for path, logs in results.items()} == {
        "ckpt-1": {"loss": 4.0, "mae": 2.0},
        "ckpt-2": {"loss": 16.0, "mae": 4.0},
        "ckpt-3": {"loss": 36.0, "mae": 6.0},
    }
    assert int(model.optimizer.iterations) == 30
    said = capsys.readouterr().err
    assert "End of evaluation: ckpt-2, iteration 20, loss = 16, mae = 4" in said
    assert said.count("End of evaluation") == 3
    loss = [(step, value) for step, name, value in scalars(tmp_path / "log") if "loss" in name]
    assert loss == [(10, 4.0), (20, 16.0), (30, 36.0)]
    assert clock.time < 7 + GONE_SECONDS + 10


def scalars(folder: Path) -> list[tuple[int, str, float]]:
    """Return (step, name, value) of a folder's one event file: records of length, CRC, message, CRC."""
    (file,) = folder.iterdir()
    data, found = file.read_bytes(), []
    while data:
        length = int.from_bytes(data[:8], "little")
        event = Event.FromString(data[12 : 12 + length])
        found += [(event.step, value.tag, value.simple_value) for value in event.summary.value]
        data = data[16 + length :]
    assert {name for _, name, _ in found} == {"evaluation_loss_vs_iterations", "evaluation_mae_vs_iterations"}
    return found


@pytest.mark.parametrize("suffix", [".weights.h5", ".keras"])
def test_files_of_keras_are_followed(chief: socket.socket, tmp_path: Path, suffix: str) -> None:
    model = make_model()
    save = model.save_weights if suffix == ".weights.h5" else model.save

    def saving(weight: float) -> Callable[[], None]:
        def act() -> None:
            model.layers[0].kernel.assign(np.full((2, 1), weight))
            save(str(tmp_path / f"epoch-{int(weight)}{suffix}"))

        return act

    def cut() -> None:
        (tmp_path / f"cut{suffix}").write_bytes(b"half a file")
        chief.close()

    saving(1.0)()
    clock = BusyClock(nothing, saving(2.0), nothing, cut)
    with pytest.warns(UserWarning, match="cut.* cannot be read"):
        results = SidecarEvaluator(make_model(), (X, Y), tmp_path, clock=clock).start()
    assert {Path(path).name: logs["loss"] for path, logs in results.items()} == {
        f"epoch-1{suffix}": 4.0,
        f"epoch-2{suffix}": 16.0,
    }


def test_evaluator_ends_at_the_number_asked_for(tmp_path: Path) -> None:
    _, saving = saver(tmp_path)
    clock = BusyClock(saving(1.0), nothing, saving(2.0), saving(3.0))
    results = SidecarEvaluator(make_model(), (X, Y), tmp_path, max_evaluations=2, clock=clock).start()
    assert [Path(path).name for path in results] == ["ckpt-1", "ckpt-2"]


def test_what_cannot_be_evaluated_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not compiled"):
        SidecarEvaluator(keras.Sequential([keras.layers.Dense(1)]), (X, Y), tmp_path)

    Checkpoint(net=make_model()).save(tmp_path / "ckpt")
    with pytest.raises(UnmatchedError, match="has nothing for model/"):
        SidecarEvaluator(make_model(), (X, Y), tmp_path, clock=BusyClock()).start()


@pytest.mark.parametrize("servers", [False, True])
def test_chief_has_left_only_after_it_was_there(chief: socket.socket, servers: bool) -> None:
    port = chief.getsockname()[1]
    clock = BusyClock()
    cluster = {"worker": [f"127.0.0.1:{port}"]}
    if servers:  # one that is away, to be started again, and a chief that does not listen
        cluster = {"chief": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"], **cluster}
    watch = ChiefWatch(ClusterSpec(cluster), clock)
    chief.close()
    clock.wait(100)
    assert not watch.has_left()  # nobody was there yet

    with socket.create_server(("127.0.0.1", port)):
        assert not watch.has_left()
        clock.wait(100)
        assert not watch.has_left()
    clock.wait(GONE_SECONDS / 2)
    assert not watch.has_left()
    clock.wait(GONE_SECONDS)
    assert watch.has_left()
