"""Saving and restoring by several workers together: one file, one content, one outcome.

State is equal on all workers, or in shards of which each worker writes its own (`part`), so nothing is gathered. All
workers call save and restore at the same points. Every wait is one of `Peers`, with its deadline and the names of the
missing; no step runs on a device meanwhile. A failure on one worker is told to all, because the others would wait for
it at the next step.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stratagem.checkpoint import file_names, shard_files, storage
from stratagem.checkpoint.background import failure_of
from stratagem.checkpoint.shard_files import ShardFile
from stratagem.checkpoint.storage import Contents
from stratagem.cluster.agreement import Field, Peers
from stratagem.cluster.bootstrap import current_peers
from stratagem.core.errors import CheckpointError, PeerError, name_some
from stratagem.core.log import announce_once, logger

CHUNK_BYTES: Final = 16 * 1024 * 1024
"""How much of a checkpoint travels at a time through the coordination service, which keeps two chunks in memory."""


@dataclass(frozen=True)
class Attempt:
    """A save in which each worker may write its shards to a file of its own.

    Args:
        name: The name of the attempt, which no other has.
        path: What the checkpoint is called where the chief writes it, from the root.
        probe: A file of the chief's that holds the name: a worker that reads it sees the chief's folder. None where all
            workers are known to see it.
    """

    name: str
    path: str
    probe: str | None


@dataclass(frozen=True)
class Turn:
    """The part of one worker in a save.

    Args:
        writes: Whether it writes the checkpoint's file.
        path: What the checkpoint is called.
        attempt: How each worker writes its shards; None where all is put together.
    """

    writes: bool
    path: str
    attempt: Attempt | None = None


shared_folders: Final[dict[str, bool]] = {}
"""Whether all workers see a folder and may write there; the chief knows that of folders that were saved to."""


def take_turn(place: str | None, path: str, failure: Exception | None, *, in_shards: bool = False) -> Turn:
    """Decide who writes: the chief, and each worker that saves to another place than the chief.

    TensorFlow's tutorials have such places: the other workers save to a temporary folder of their own
    (https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras#checkpoint).

    Args:
        place: Path without a number: where this worker saves to; None for where the chief does.
        path: What it would call the checkpoint; only the chief's counts where the place is the chief's.
        failure: What went wrong on this worker with an earlier save in the background; None for nothing.
        in_shards: Whether variables may rest in shards.

    Raises:
        CheckpointError: An earlier save failed on any worker.
    """
    peers, own_place = current_peers(), place and os.path.abspath(place)
    is_chief = peers is None or peers.own == peers.peers[0]
    note: dict[str, Any] = {"place": own_place, "path": path, "failure": _said(failure)}
    if peers is not None and in_shards and not peers.may_change:  # one who dies would leave its shards out
        note["attempt"] = _new_attempt(path) if is_chief and failure is None else None
    notes = _from_all(peers, "save a checkpoint", note)
    failures = [note["failure"] for note in notes]
    attempt, apart = notes[0].get("attempt"), any(note["place"] != notes[0]["place"] for note in notes)
    if attempt is not None and (apart or any(failures)):
        if is_chief:
            _give_up(Attempt(*attempt), apart)
        attempt = None
    _raise_first(peers, failures, failure)
    if notes[0]["place"] != own_place:
        return Turn(True, path)
    return Turn(is_chief, notes[0]["path"], attempt and Attempt(*attempt))


def _new_attempt(path: str) -> list[str | None] | None:
    """Return an attempt of the chief's, as JSON; None where it is known that workers do not see its folder."""
    name, whole = secrets.token_hex(6), os.path.abspath(path)
    folder = os.path.dirname(whole)
    if folder in shared_folders:
        return [name, whole, None] if shared_folders[folder] else None
    probe = file_names.draft_name(whole)
    try:
        probe.parent.mkdir(parents=True, exist_ok=True)
        probe.write_text(name)
    except OSError:  # what is to be written next fails too, and says why
        return None
    return [name, whole, str(probe)]


def _give_up(attempt: Attempt, apart: bool) -> None:
    """Leave nothing of an attempt of the chief's; say so where workers save to places of their own."""
    if attempt.probe is not None:
        Path(attempt.probe).unlink(missing_ok=True)
    if apart:
        announce_once(
            "Workers save to different places, so variables in shards are put together one by one, and each worker "
            "writes all of them. With the same path on all workers, each writes only its own shards."
        )


def all_see(attempt: Attempt, divided: Any) -> bool:
    """Whether all workers see the chief's folder, and may write there. All workers call it.

    Args:
        attempt: The chief's.
        divided: What this worker knows of all shards, as JSON; equal on all workers.

    Raises:
        PeerError: Workers have other variables in shards.
    """
    peers = current_peers()
    assert peers is not None, "a process on its own has no attempt"
    notes = peers.from_all("shards of a checkpoint", {"sees": _sees(attempt), "divided": divided})
    if attempt.probe is not None and peers.own_index == 0:
        Path(attempt.probe).unlink(missing_ok=True)
    others = [str(peer) for peer, note in zip(peers.peers, notes, strict=True) if note["divided"] != divided]
    if others:
        raise PeerError(
            f"{peers.own} does not have the same variables in shards as {name_some(others)}, and they save a "
            "checkpoint together.",
            "Each would write parts of different variables.",
            "Look for a callback or another piece of the program that assigns variables on one worker only.",
        )
    blind = [str(peer) for peer, note in zip(peers.peers, notes, strict=True) if not note["sees"]]
    if peers.own_index == 0:
        folder = os.path.dirname(attempt.path)
        shared_folders[folder] = not blind
        if blind:
            announce_once(
                f"{name_some(blind)} cannot write to {folder} of {peers.own}: variables in shards are put together one "
                "by one for each checkpoint there. On a disk that all workers share, each writes its own shards."
            )
    return not blind


def _sees(attempt: Attempt) -> bool:
    if attempt.probe is None:
        return True
    try:
        return Path(attempt.probe).read_text() == attempt.name and os.access(os.path.dirname(attempt.path), os.W_OK)
    except OSError:
        return False


def finish_together(failure: Exception | None) -> None:
    """Wait until all workers have written what they write.

    Args:
        failure: What went wrong on this worker.

    Raises:
        CheckpointError: It failed on any worker.
    """
    peers = current_peers()
    _raise_first(peers, _from_all(peers, "checkpoint written", _said(failure)), failure)


def read_together(path: str | None) -> tuple[bytes, str] | None:
    """Return the bytes of a checkpoint, equal on all workers, and its path on the chief.

    The chief's file counts. A worker that cannot see the file, or sees another of that name (a disk of its own),
    gets the bytes from the chief.

    Args:
        path: The checkpoint on this worker; None for none.

    Raises:
        CheckpointError: The chief's checkpoint is missing or damaged.
    """
    peers = current_peers()
    blob, failure = _try_to_read(path)
    checksum = None if blob is None else blob[-4:].hex()
    notes = _from_all(peers, "restore a checkpoint", {"path": path, "failure": _said(failure), "checksum": checksum})
    chief = notes[0]
    _raise_first(peers, [chief["failure"]], failure)
    if chief["path"] is None:
        return None
    if peers is not None and any(note["checksum"] != chief["checksum"] for note in notes):
        received = _from_chief(peers, blob)
        blob = blob if blob is not None and checksum == chief["checksum"] else received
    return blob or b"", chief["path"]


def contents_together(path: str | None) -> tuple[Contents, str] | None:
    """Return the contents of a checkpoint, equal on all workers, and its path on the chief.

    Each worker checks its part of the files of shards, and later reads of them what it needs. Where one of them cannot
    see a file, the chief sends it.

    Args:
        path: The checkpoint on this worker; None for none.

    Raises:
        CheckpointError: The chief's checkpoint is missing or damaged, or a file of shards is.
    """
    found = read_together(path)
    if found is None:
        return None
    blob, chiefs = found
    contents, peers = storage.decode(blob, chiefs), current_peers()
    if contents.shards is None:
        return contents, chiefs
    if peers is None:
        files = shard_files.files_of(contents.shards, chiefs)
        for file in files:
            file.check()
    else:
        where = peers.from_chief("place of a checkpoint", os.path.abspath(chiefs).encode()).decode()
        files = _seen(contents, [path or where, where])
        _check_together(peers, files)
    return shard_files.with_divided(contents, files, chiefs), chiefs


def _seen(contents: Contents, places: Sequence[str]) -> list[ShardFile]:
    """Return the files of shards beside the first of several places that has all; else beside the last."""
    files: list[ShardFile] = []
    for place in places:
        files = shard_files.files_of(contents.shards, place)
        if all(each.file.exists() for each in files):
            break
    return files


def _check_together(peers: Peers, files: Sequence[ShardFile]) -> None:
    """Check the files of shards, each worker some; the chief sends them where a worker does not see all."""
    lacks = any(not each.file.exists() for each in files)
    own = [] if lacks and peers.own_index > 0 else files[peers.own_index :: len(peers.peers)]
    if lacks and peers.own_index == 0:
        own = [each for each in files if not each.file.exists()]  # its check says so
    failure = failure_of(lambda: _check(own))
    notes = peers.from_all("files of shards", {"failure": _said(failure), "lacks": lacks})
    _raise_first(peers, [note["failure"] for note in notes], failure)
    if any(note["lacks"] for note in notes):
        failure = failure_of(lambda: _check(files)) if peers.own_index == 0 else None
        finish_together(failure)
        for each in files:
            data = _from_chief(peers, each.file.read_bytes() if peers.own_index == 0 else None)
            if lacks:
                each.receive(data)
        finish_together(failure_of(lambda: _check(files if lacks else [])))
    for each in files:
        each.trust()


def _check(files: Iterable[ShardFile]) -> None:
    for each in files:
        each.check()


def _try_to_read(path: str | None) -> tuple[bytes | None, CheckpointError | None]:
    if path is None:
        return None, None
    try:
        blob = storage.read(path)
        storage.decode(blob, path)
    except CheckpointError as error:
        return None, error
    return blob, None


def _from_chief(peers: Peers, blob: bytes | None) -> bytes:
    """Return the chief's bytes on the other workers; all take part."""
    is_chief = peers.own == peers.peers[0]
    own = memoryview(blob if is_chief and blob is not None else b"")
    length = int(peers.from_chief("size of a checkpoint", b"%d" % len(own)))
    if is_chief:
        logger.info("Some workers cannot read the checkpoint: the chief sends it to all (%d bytes).", length)
    chunks = []
    for start in range(0, length, CHUNK_BYTES):
        chunk = peers.from_chief("part of a checkpoint", bytes(own[start : start + CHUNK_BYTES]))
        chunks.append(b"" if is_chief else chunk)
    return b"".join(chunks)


def _from_all(peers: Peers | None, name: str, note: Field) -> list[Any]:
    return [note] if peers is None else peers.from_all(name, note)


def _said(failure: Exception | None) -> str | None:
    return None if failure is None else str(failure)


def _raise_first(peers: Peers | None, said: list[str | None], own: Exception | None) -> None:
    """Raise what went wrong on the first worker on which anything did."""
    if peers is None:
        if own is not None:
            raise own
        return
    for peer, failure in zip(peers.peers, said, strict=False):
        if failure is not None and peer == peers.own and own is not None:
            raise own
        if failure is not None:
            raise CheckpointError(
                f"{peer} has no checkpoint, so {peers.own} cannot continue: {failure}",
                "All workers must continue from the same point.",
                "Fix the problem that this worker reports.",
            ).of_peer()
