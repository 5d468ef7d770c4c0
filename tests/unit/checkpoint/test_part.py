"""One worker's part of a save, with what the other says written down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratagem.checkpoint import collective_io, file_names, part, shard_files
from stratagem.checkpoint.blocks import Blocks
from stratagem.checkpoint.collective_io import Attempt, Turn
from stratagem.checkpoint.part import Part
from stratagem.checkpoint.shard_files import load_whole
from stratagem.cluster.hello import Peer
from stratagem.cluster.spec import Task
from stratagem.core.errors import CheckpointError, PeerError

ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)
BLOCKS = {"rows": Blocks(np.dtype("float32"), (4, 3), (2, 1), (0, 1))}
NAME = "00aa11bb"


class Cluster:
    """Stands for `Peers` of two on one disk: posts are kept, and collected by the chief."""

    def __init__(self) -> None:
        self.peers = tuple(Peer(Task("worker", index), "node", 100 + index) for index in range(2))
        self.own_index = 0
        self.posted: dict[str, Any] = {}
        self.late: list[int] = []

    @property
    def own(self) -> Peer:
        return self.peers[self.own_index]

    def post(self, name: str, value: Any) -> None:
        self.posted[name] = json.loads(json.dumps(value))

    def collect(self, name: str) -> list[Any]:
        missing = [index for index in range(2) if f"{name}/{index}" not in self.posted]
        if missing:
            raise PeerError(f"missing: {self.peers[missing[0]]}", "It is late.", "Look at it.")
        return [self.posted.pop(f"{name}/{index}") for index in range(2)]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()
    monkeypatch.setattr(part, "current_peers", lambda: cluster)
    monkeypatch.setattr(collective_io, "current_peers", lambda: cluster)
    return cluster


def write(cluster: Cluster, path: Path, worker: int, name: str = NAME, *, plus: int = 0) -> list[str]:
    """Write a worker's part; return what was published."""
    cluster.own_index = worker
    turn = Turn(worker == 0, str(path), Attempt(name, str(path), None))
    own = {f"rows/{worker}": ROWS[2 * worker : 2 * worker + 2] + plus}
    published: list[str] = []
    arrays = {"scalar": np.ones(1)} if worker == 0 else {}
    Part(turn, arrays, own, BLOCKS).write("{}", lambda: published.append(str(path)))
    return published


def test_the_checkpoint_is_there_once_all_have_written(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "ckpt-1"
    assert write(cluster, path, 1) == []
    assert not file_names.file_of(path).exists()
    assert write(cluster, path, 0) == [str(path)]
    arrays = load_whole(str(path)).arrays
    np.testing.assert_array_equal(np.asarray(arrays["rows"]), ROWS)
    np.testing.assert_array_equal(arrays["scalar"], np.ones(1))
    assert cluster.posted == {}


def test_a_worker_that_is_missing_leaves_the_checkpoint_before(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "ckpt-1"
    write(cluster, path, 1)
    write(cluster, path, 0)
    before = sorted(file.name for file in tmp_path.iterdir())
    with pytest.raises(PeerError, match="missing: worker 1"):
        write(cluster, path, 0, "22cc", plus=1)
    assert sorted(file.name for file in tmp_path.iterdir()) == before
    np.testing.assert_array_equal(np.asarray(load_whole(str(path)).arrays["rows"]), ROWS)


def test_a_worker_that_cannot_write_says_so_on_both(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> None:
        raise CheckpointError("No room on the disk.", "Make room.")

    with monkeypatch.context() as patch:
        patch.setattr(part.storage, "write_shard", full)
        with pytest.raises(CheckpointError, match="No room"):
            write(cluster, tmp_path / "ckpt-1", 1)
    with pytest.raises(CheckpointError, match=r"^worker 1 .* could not write its part(.|\n)*No room"):
        write(cluster, tmp_path / "ckpt-1", 0)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_the_chief_does_not_see_is_an_error(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "ckpt-1"
    write(cluster, path, 1)
    file = file_names.shard_file(path, NAME, 1, 2)
    file.unlink()
    with pytest.raises(CheckpointError, match=r"worker 0 .* sees no such file(.|\n)*a disk that all workers share"):
        write(cluster, path, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_behind_the_chiefs_file_leaves_the_checkpoint_whole(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "ckpt-1"
    write(cluster, path, 1)
    cluster.own_index = 0

    def fail() -> None:
        raise CheckpointError("The list cannot be written.", "Make room.")

    turn = Turn(True, str(path), Attempt(NAME, str(path), None))
    with pytest.raises(CheckpointError, match="The list"):
        Part(turn, {}, {"rows/0": ROWS[:2]}, BLOCKS).write("{}", fail)
    assert shard_files.fault_in(str(path)) is None


def test_alone_a_part_is_the_whole(tmp_path: Path) -> None:
    published: list[int] = []
    whole = Part(Turn(True, str(tmp_path / "ckpt-1")), {"x": np.ones(3)})
    assert not whole.is_empty
    whole.with_arrays({"y": np.zeros(1)}).write("{}", lambda: published.append(1))
    assert sorted(load_whole(str(tmp_path / "ckpt-1")).arrays) == ["x", "y"]
    assert published == [1]
    assert Part(Turn(False, "x"), {}).is_empty
    Part(Turn(False, "x"), {}).write("{}", lambda: published.append(2))
    assert published == [1]
