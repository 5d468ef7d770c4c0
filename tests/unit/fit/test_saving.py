"""`model.save` called by all workers: one file, written once, whole."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import stratagem
from stratagem.core.errors import CheckpointError, PeerError
from stratagem.fit import saving
from stratagem.fit.saving import saving_once
from stratagem.mesh.mesh import spec_of


class Peers:
    """Notes of one worker to the others, in this process."""

    peers = ("worker 0", "worker 1")

    def __init__(self, own_index: int, notes: dict[str, Any]) -> None:
        self.own_index, self.own, self._notes = own_index, self.peers[own_index], notes

    def post(self, name: str, note: Any) -> None:
        self._notes[name.partition(" ")[0]] = note  # the number differs, as all workers are in one process

    def wait_for(self, name: str) -> Any:
        try:
            return self._notes[name.partition(" ")[0]]
        except KeyError:
            raise TimeoutError from None


def write(model: Any, filepath: str, text: str = "whole") -> str:
    """Stand for Keras's `save`."""
    Path(filepath).write_text(text)
    if text == "half":
        raise OSError("the disk is full")
    return text


class Workers:
    """Two workers of one program, of which each saves in turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, in_fit: bool = False) -> None:
        self._monkeypatch = monkeypatch
        self._notes: dict[str, Any] = {}
        self._save = saving_once(write, lambda model: True, lambda model: [], lambda: in_fit)

    def save(self, worker: int, path: Path, *text: str) -> Any:
        self._monkeypatch.setattr(saving, "current_peers", lambda: Peers(worker, self._notes))
        return self._save(None, path, *text)


def test_the_chief_writes_and_the_other_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workers, path = Workers(monkeypatch), tmp_path / "model.keras"
    assert workers.save(0, path) == "whole"
    assert workers.save(1, path, "again") is None
    assert path.read_text() == "whole"


def test_another_path_is_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Workers(monkeypatch)
    workers.save(0, tmp_path / "chief.keras")
    assert workers.save(1, tmp_path / "other.keras", "its own") == "its own"
    assert (tmp_path / "other.keras").read_text() == "its own"


def test_in_fit_every_worker_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workers, path = Workers(monkeypatch, in_fit=True), tmp_path / "model.keras"
    assert workers.save(1, path) == "whole"


def test_the_chief_says_what_went_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workers, path = Workers(monkeypatch), tmp_path / "model.keras"
    with pytest.raises(OSError, match="disk is full"):
        workers.save(0, path, "half")
    assert list(tmp_path.iterdir()) == []  # whole or not at all
    with pytest.raises(CheckpointError, match=r"worker 0 could not save .*model\.keras.*OSError: the disk is full"):
        workers.save(1, path)


def test_a_chief_that_saves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PeerError, match=r"worker 1 saved .*model\.keras', and worker 0 saved nothing"):
        Workers(monkeypatch).save(1, tmp_path / "model.keras")


def test_a_file_keeps_its_old_content_until_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "model.weights.h5"
    path.write_text("old")
    save = saving_once(write, lambda model: False, lambda model: [], lambda: False)
    with pytest.raises(OSError, match="disk is full"):
        save(None, path, "half")
    assert path.read_text() == "old"
    assert save(None, path, "new") == "new"
    assert [file.name for file in tmp_path.iterdir()] == ["model.weights.h5"]
    assert path.read_text() == "new"


@pytest.mark.usefixtures("plain_keras")  # Keras 2's models take any name
def test_an_error_names_the_file_of_the_program(tmp_path: Path) -> None:
    stratagem.OneDeviceStrategy("cpu:0")
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="Invalid filepath extension") as caught:
        model.save(tmp_path / "model")
    assert str(tmp_path / "model") in str(caught.value)
    assert ".tmp" not in str(caught.value)


def network(shard: str | None) -> tuple[stratagem.MirroredStrategy, keras.Model]:
    strategy = stratagem.MirroredStrategy(["cpu:0", "cpu:1"], shard=shard, shard_min_size=shard and 8)
    with strategy.scope():
        return strategy, keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(2)])


def test_weights_in_shards_are_read_into_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "it.weights.h5")
    source = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(2)])
    source.save_weights(path)
    strategy, model = network("parameters")
    agreed: list[str] = []
    monkeypatch.setattr(strategy, "check_agreement", lambda name, fields: agreed.append(name))
    model.load_weights(path)
    assert [strategy.mesh.rests(each.value, spec_of(0)) for each in model.weights] == [True, True, True, False]
    for own, wanted in zip(model.get_weights(), source.get_weights(), strict=True):
        np.testing.assert_array_equal(own, wanted)
    assert agreed == ["load_weights", f"values that load_weights of model {model.name!r} reads"]


def test_a_callback_reads_a_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "it.weights.h5")
    strategy, model = network("parameters")
    x, y = np.ones((4, 4), "float32"), np.ones((4, 2), "float32")
    model.compile("sgd", "mse")
    model.fit(x, y, verbose=0)
    model.save_weights(path)
    expected = model.get_weights()
    agreed: list[str] = []

    class Reads(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            monkeypatch.setattr(strategy, "check_agreement", lambda name, fields: agreed.append(name))
            model.load_weights(path)
            monkeypatch.undo()

    model.fit(x, y, verbose=0, callbacks=[Reads()])
    assert agreed == []
    for own, wanted in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_array_equal(own, wanted)


@pytest.mark.usefixtures("plain_keras")  # those of Keras 2 have one that takes any name
def test_only_models_in_shards_have_a_load_weights_of_their_own() -> None:
    _, whole = network(None)
    assert "load_weights" not in vars(whole)
    _, model = network("parameters")
    assert "load_weights" in vars(model)
    for same in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), keras.models.clone_model(model)):
        for own, wanted in zip(same.get_weights(), model.get_weights(), strict=True):
            assert own.shape == wanted.shape
        assert getattr(same.load_weights, "__self__", None) is same
