"""`model.save` called by all workers: one file, written once, whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import pytest

import stratagem
from stratagem.core.errors import CheckpointError, PeerError
from stratagem.fit import saving
from stratagem.fit.saving import saving_once


class Peers:
    """Notes of one worker to the others, in this process."""

    peers = ("worker 0", "worker 1")
    timeout_seconds = 0.0
    renew: Any = None

    def __init__(self, own_index: int, notes: dict[str, Any]) -> None:
        self.own_index, self.own, self._notes = own_index, self.peers[own_index], notes

    def post(self, name: str, note: Any) -> None:
        self._notes[name.partition(" ")[0]] = note  # the number differs, as all workers are in one process

    def wait_for(self, name: str, timeout_seconds: float | None = None) -> Any:
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


def test_one_that_becomes_the_chief_while_it_waits_for_the_file_writes_it_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: dict[str, Any] = {}
    peers, path = Peers(1, notes), tmp_path / "model.keras"
    peers.renew = object()  # workers change

    def wait_for(name: str, timeout_seconds: float | None = None) -> Any:
        peers.own_index = 0
        raise TimeoutError

    monkeypatch.setattr(peers, "wait_for", wait_for)
    monkeypatch.setattr(saving, "current_peers", lambda: peers)
    save = saving_once(write, lambda model: True, lambda model: [], lambda: False)
    assert save(None, path) == "whole"
    assert notes == {"save": {"path": str(path), "failure": None}}


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
