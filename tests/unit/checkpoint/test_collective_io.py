"""One worker's part in a save and a restore, with what the others say written down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratagem.checkpoint import collective_io, file_names, storage
from stratagem.checkpoint.blocks import Blocks, as_json
from stratagem.checkpoint.collective_io import (
    Attempt,
    Turn,
    all_see,
    contents_together,
    finish_together,
    read_together,
    take_turn,
)
from stratagem.cluster.hello import Peer
from stratagem.cluster.spec import Task
from stratagem.core.errors import CheckpointError, PeerError

PEERS = [Peer(Task("worker", index), "node", 100 + index) for index in range(2)]


class Others:
    """Stands for `Peers` of two: what this worker says is kept, what the other says is given."""

    def __init__(self, own: int, says: object, sends: list[bytes] | None = None) -> None:
        self.peers, self.own = tuple(PEERS), PEERS[own]
        self._index = own
        self._says = says
        self._sends = list(sends or [])
        self.said: list[Any] = []

    def from_all(self, name: str, value: object) -> list[Any]:
        self.said.append(value)
        notes = [self._says, self._says]
        notes[self._index] = value
        return notes

    def from_chief(self, name: str, value: bytes) -> bytes:
        self.said.append(value)
        return value if self._index == 0 else self._sends.pop(0)


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> Any:
    def set_up(own: int, says: object, sends: list[bytes] | None = None) -> Others:
        others = Others(own, says, sends)
        monkeypatch.setattr(collective_io, "current_peers", lambda: others)
        return others

    return set_up


def note(place: str, failure: str | None = None) -> dict[str, str | None]:
    return {"place": place, "path": f"{place}-1", "failure": failure}


@pytest.mark.parametrize(
    ("own", "place", "turn"),
    [
        (0, "/same", Turn(True, "/same-1")),
        (1, "/same", Turn(False, "/same-1")),
        (1, "/own", Turn(True, "/own-1")),
    ],
)
def test_the_chief_writes_and_who_saves_elsewhere(together: Any, own: int, place: str, turn: Turn) -> None:
    together(own, note("/same"))
    assert take_turn(place, f"{place}-1", None) == turn


def test_alone_everything_is_this_workers() -> None:
    assert take_turn("a", "a-1", None) == Turn(True, "a-1")
    with pytest.raises(OSError, match="full"):
        take_turn("a", "a-1", OSError("full"))
    with pytest.raises(OSError, match="full"):
        finish_together(OSError("full"))


def test_a_failure_of_one_is_an_error_on_all(together: Any) -> None:
    own = CheckpointError("no room")
    assert together(0, None) is not None
    with pytest.raises(CheckpointError, match="no room") as error:
        finish_together(own)
    assert error.value is own
    together(0, "disk gone")
    with pytest.raises(CheckpointError, match=r"^worker 1 .* has no checkpoint, so worker 0 .*: disk gone"):
        finish_together(None)
    together(1, note("/same", "disk gone"))
    with pytest.raises(CheckpointError, match=r"^worker 0 .*: disk gone"):
        take_turn("/same", "/same-1", None)


def test_a_worker_that_sees_another_file_gets_the_chiefs(
    together: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collective_io, "CHUNK_BYTES", 100)
    paths = [str(tmp_path / f"disk{index}" / "ckpt-1") for index in range(2)]
    for index, path in enumerate(paths):
        storage.write(path, "{}", {"x": np.full(50, index)})
    blobs = [storage.read(path) for path in paths]
    chunks = [blobs[0][start : start + 100] for start in range(0, len(blobs[0]), 100)]
    notes = [
        {"path": path, "failure": None, "checksum": blob[-4:].hex()} for path, blob in zip(paths, blobs, strict=True)
    ]

    together(1, notes[0], [b"%d" % len(blobs[0]), *chunks])
    assert read_together(paths[1]) == (blobs[0], paths[0])
    together(1, {**notes[0], "checksum": notes[1]["checksum"]})
    assert read_together(paths[1]) == (blobs[1], paths[0])
    chief = together(0, notes[1])
    assert read_together(paths[0]) == (blobs[0], paths[0])
    assert chief.said == [notes[0], b"%d" % len(blobs[0]), *chunks]


def test_only_the_chiefs_checkpoint_counts(together: Any, tmp_path: Path) -> None:
    together(1, {"path": None, "failure": None, "checksum": None})
    assert read_together(str(tmp_path / "ckpt-1")) is None
    together(1, {"path": "ckpt-1", "failure": "it is damaged", "checksum": None})
    with pytest.raises(CheckpointError, match=r"^worker 0 .*: it is damaged"):
        read_together(None)


class Scripted:
    """Stands for `Peers` of two: for each meeting, what the other worker says."""

    may_change = False

    def __init__(self, own: int, says: dict[str, Any], sends: dict[str, bytes] | None = None) -> None:
        self.peers, self.own, self.own_index = tuple(PEERS), PEERS[own], own
        self._says, self._sends = says, sends or {}
        self.said: dict[str, Any] = {}

    def from_all(self, name: str, value: Any) -> list[Any]:
        self.said[name] = value
        other = self._says[name]
        other = {**value, **other} if isinstance(other, dict) else other
        return [value, other] if self.own_index == 0 else [other, value]

    def from_chief(self, name: str, value: bytes) -> bytes:
        return value if self.own_index == 0 else self._sends[name]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(collective_io, "shared_folders", {})

    def set_up(own: int, says: dict[str, Any], sends: dict[str, bytes] | None = None) -> Scripted:
        peers = Scripted(own, says, sends)
        monkeypatch.setattr(collective_io, "current_peers", lambda: peers)
        return peers

    return set_up


SAVE, SHARDS = "save a checkpoint", "shards of a checkpoint"


def test_workers_that_see_the_chiefs_folder_write_their_shards(scripted: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "run" / "ckpt-1")
    chief = scripted(0, {SAVE: {}, SHARDS: {"sees": True}})
    turn = take_turn("p", path, None, in_shards=True)
    assert turn.attempt is not None
    assert Path(turn.attempt.probe or "").read_text() == turn.attempt.name
    told = chief.said[SAVE]["attempt"]
    scripted(1, {SAVE: {"attempt": told, "path": path, "place": None}, SHARDS: {"sees": True}})
    other = take_turn(None, "", None, in_shards=True)
    assert other == Turn(False, path, turn.attempt)
    assert all_see(turn.attempt, "same")
    scripted(0, {SAVE: {}, SHARDS: {"sees": True}})
    assert all_see(turn.attempt, "same")
    assert list((tmp_path / "run").iterdir()) == []
    again = take_turn("p", path, None, in_shards=True)
    assert again.attempt is not None
    assert again.attempt.name != turn.attempt.name
    assert again.attempt.probe is None  # it is known now


def test_workers_that_may_change_let_all_be_put_together(scripted: Any, tmp_path: Path) -> None:
    """One that dies would leave its shards out."""
    chief = scripted(0, {SAVE: {}})
    chief.may_change = True
    assert take_turn("p", str(tmp_path / "ckpt-1"), None, in_shards=True).attempt is None


def test_a_worker_that_does_not_see_it_lets_all_be_put_together(
    scripted: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "ckpt-1")
    scripted(0, {SAVE: {}, SHARDS: {"sees": False}})
    turn = take_turn("p", path, None, in_shards=True)
    assert turn.attempt is not None
    assert not all_see(turn.attempt, "same")
    assert list(tmp_path.iterdir()) == []
    assert take_turn("p", path, None, in_shards=True) == Turn(True, path)
    # The other worker: there is no such file, or another one of that name.
    scripted(1, {SHARDS: {"sees": True}})
    assert not all_see(Attempt("00aa", path, f"{path}.probe"), "same")
    Path(f"{path}.probe").write_text("11bb")
    assert not all_see(Attempt("00aa", path, f"{path}.probe"), "same")


def test_places_of_their_own_and_failures_leave_nothing_of_an_attempt(scripted: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "ckpt-1")
    scripted(0, {SAVE: {"place": "/elsewhere"}})
    assert take_turn("p", path, None, in_shards=True) == Turn(True, path)
    scripted(0, {SAVE: {"failure": "disk gone"}})
    with pytest.raises(CheckpointError, match="disk gone"):
        take_turn("p", path, None, in_shards=True)
    assert list(tmp_path.iterdir()) == []


def test_workers_with_other_variables_in_shards_are_told(scripted: Any, tmp_path: Path) -> None:
    scripted(1, {SHARDS: {"divided": "else"}})
    with pytest.raises(PeerError, match=r"worker 1 .* does not have the same variables in shards as worker 0"):
        all_see(Attempt("00aa", str(tmp_path / "ckpt-1"), None), "own")


FILES = "files of shards"


@pytest.fixture
def in_shards(tmp_path: Path) -> str:
    """A checkpoint with an array on two workers."""
    path = str(tmp_path / "chief" / "ckpt-1")
    blocks = Blocks(np.dtype("int64"), (4,), (2,), (0, 1))
    for number in range(2):
        file, said = file_names.shard_file(path, "00aa", number, 2), {"attempt": "00aa", "number": number, "files": 2}
        storage.write_shard(file, said, {f"x/{number}": np.arange(2) + 2 * number})
    storage.write(path, "{}", {}, as_json("00aa", 2, {"x": blocks}))
    return path


def restoring(path: str, own: int, lacks: bool) -> dict[str, Any]:
    """Return what the other worker says where one may not see the files."""
    checksum = storage.read(path)[-4:].hex()
    other = {"path": path, "failure": None, "checksum": checksum if own or not lacks else "other"}
    return {"restore a checkpoint": other, FILES: {"lacks": lacks}, "checkpoint written": None}


def test_each_worker_checks_some_files_and_reads_what_it_needs(scripted: Any, in_shards: str) -> None:
    scripted(1, restoring(in_shards, 1, lacks=False), {"place of a checkpoint": in_shards.encode()})
    file_names.shard_file(in_shards, "00aa", 0, 2).write_bytes(b"damaged: the other worker would tell")
    found = contents_together(in_shards)
    assert found is not None
    assert found[0].arrays["x"][(slice(2, 4),)].tolist() == [2, 3]
    scripted(0, restoring(in_shards, 0, lacks=False))
    with pytest.raises(CheckpointError, match=r"shard-00001-of-00002-00aa.safetensors, .* is damaged"):
        contents_together(in_shards)


def test_a_file_of_shards_that_is_gone_is_named_on_all(scripted: Any, in_shards: str) -> None:
    file = file_names.shard_file(in_shards, "00aa", 1, 2)
    file.unlink()
    scripted(0, restoring(in_shards, 0, lacks=False))
    with pytest.raises(CheckpointError, match=rf"{file.name}, one worker's part of a checkpoint, cannot be read"):
        contents_together(in_shards)


def test_the_chief_sends_files_that_a_worker_does_not_see(
    scripted: Any, in_shards: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = [file_names.shard_file(in_shards, "00aa", number, 2).read_bytes() for number in range(2)]
    own = str(tmp_path / "other" / "ckpt-1")
    storage.write(own, "{}", {})  # another one of that name, which does not count
    main = storage.read(in_shards)
    sent = iter([main, *blobs])
    monkeypatch.setattr(collective_io, "_from_chief", lambda peers, blob: next(sent))
    says = {**restoring(in_shards, 1, lacks=False), FILES: {"lacks": False, "failure": None}}
    scripted(1, says, {"place of a checkpoint": b"/nowhere/ckpt-1"})
    found = contents_together(own)
    assert found is not None
    assert np.asarray(found[0].arrays["x"]).tolist() == [0, 1, 2, 3]
    assert found[1] == in_shards
    scripted(0, restoring(in_shards, 0, lacks=True))
    sent = iter([main, *blobs])
    found = contents_together(in_shards)
    assert found is not None
    assert found[0].arrays["x"][(slice(1, 3),)].tolist() == [1, 2]
    assert next(sent, None) is None
