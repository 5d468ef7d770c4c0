"""The part of one worker in a save: the whole file, or its own shards.

Where variables rest in shards of several workers, each writes those that it holds to a file of its own, and tells the
chief. When all are on the disk, the chief writes the checkpoint's file, which lists them: the checkpoint is there for
all together, or not at all. Nothing crosses between workers but these notes, which threads in the background can
exchange as well.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from stratagem.checkpoint import file_names, storage
from stratagem.checkpoint.background import failure_of
from stratagem.checkpoint.blocks import Blocks, as_json, own_blocks
from stratagem.checkpoint.collective_io import Attempt, Turn, all_see
from stratagem.cluster.agreement import Peers
from stratagem.cluster.bootstrap import current_peers
from stratagem.core.errors import CheckpointError
from stratagem.mesh.lending import divided_value, readable
from stratagem.mesh.shards import rests_divided

Arrays = Mapping[str, jax.Array | np.ndarray]


@dataclass(frozen=True)
class Part:
    """Arrays that this worker writes in a save.

    Args:
        turn: Its turn.
        arrays: Of the checkpoint's file, by name.
        blocks: Of its own file, by name.
        divided: All arrays that lie in files of workers; empty where none does.
    """

    turn: Turn
    arrays: Arrays
    blocks: Arrays = field(default_factory=dict)
    divided: Mapping[str, Blocks] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether this worker writes nothing."""
        return not (self.turn.writes or self.divided)

    def with_arrays(self, arrays: Arrays) -> Part:
        """Return this part with more arrays in the checkpoint's file."""
        return replace(self, arrays={**self.arrays, **arrays})

    def on_host(self, fetch: Callable[[Arrays], Mapping[str, np.ndarray]]) -> Part:
        """Return this part in host memory.

        Args:
            fetch: Given arrays by name, returns them there.
        """
        found = fetch({**self.arrays, **self.blocks})
        arrays, blocks = ({name: found[name] for name in each} for each in (self.arrays, self.blocks))
        return replace(self, arrays=arrays, blocks=blocks)

    def write(self, metadata: str, publish: Callable[[], None]) -> None:
        """Write this part, which is in host memory. The chief's checkpoint is there when all have written theirs.

        Args:
            metadata: JSON for the checkpoint's file.
            publish: What the worker that writes that file does once it is there.

        Raises:
            CheckpointError: It could not be written, here or, as far as the chief knows, on another worker.
            PeerError: A worker did not write in time.
        """
        attempt = self.turn.attempt
        if not self.divided or attempt is None:
            if self.turn.writes:
                storage.write(self.turn.path, metadata, _on_host(self.arrays))
                publish()
            return
        peers = current_peers()
        assert peers is not None, "a process on its own has no attempt"
        self._write_own(peers, attempt)
        if self.turn.writes:
            try:
                _await_all(peers, attempt)
                said = as_json(attempt.name, len(peers.peers), self.divided)
                storage.write(self.turn.path, metadata, _on_host(self.arrays), said)
            except BaseException:
                file_names.remove_shards(attempt.path, only=attempt.name)
                raise
            publish()

    def _write_own(self, peers: Peers, attempt: Attempt) -> None:
        """Write this worker's file, and tell the chief; what goes wrong is raised on workers that are not."""
        count, number = len(peers.peers), peers.own_index
        file = file_names.shard_file(attempt.path, attempt.name, number, count)
        said = {"attempt": attempt.name, "number": number, "files": count}
        failure = failure_of(lambda: storage.write_shard(file, said, _on_host(self.blocks)))
        size = None if failure is not None else file.stat().st_size
        peers.post(f"{_place(attempt)}/{number}", {"failure": failure and str(failure), "bytes": size})
        if failure is not None and not self.turn.writes:
            raise failure


@contextlib.contextmanager
def part_of(turn: Turn, variables: Mapping[str, Any]) -> Iterator[Part]:
    """Give what this worker writes of variables; it may be read in this context. All workers enter it together.

    Args:
        turn: This worker's turn.
        variables: Variables by name.

    Raises:
        PeerError: A worker did not come, or has other variables in shards.
    """
    peers = current_peers()
    if peers is not None and turn.attempt is not None:
        values = {name: divided_value(variable) for name, variable in variables.items()}
        shards = {name: value for name, value in values.items() if value is not None}
        divided = {name: Blocks.of(value) for name, value in shards.items()}
        said = json.dumps(as_json("", len(peers.peers), divided), sort_keys=True)
        if all_see(turn.attempt, hashlib.sha256(said.encode()).hexdigest()):
            whole = {name: each.value for name, each in variables.items() if name not in shards and turn.writes}
            blocks: dict[str, jax.Array] = {}
            for name, value in shards.items():
                blocks |= own_blocks(name, value, divided[name], peers.own_index)
            yield Part(turn, whole, blocks, divided)
            return
    with readable(variables.values(), reads=turn.writes):
        yield Part(turn, {name: each.value for name, each in variables.items()} if turn.writes else {})


def may_be_in_shards(variables: Mapping[str, Any]) -> bool:
    """Whether variables may rest in shards."""
    return any(map(rests_divided, variables.values()))


def _on_host(arrays: Arrays) -> dict[str, np.ndarray]:
    return {name: np.asarray(array) for name, array in arrays.items()}


def _place(attempt: Attempt) -> str:
    return f"shards of attempt {attempt.name}"


def _await_all(peers: Peers, attempt: Attempt) -> None:
    """Wait until all workers have written their files, and see that they are there.

    Raises:
        CheckpointError: A worker could not, or its file is not there.
        PeerError: A worker did not in time.
    """
    count = len(peers.peers)
    for number, note in enumerate(peers.collect(_place(attempt))):
        if note["failure"] is not None:
            raise CheckpointError(
                f"{peers.peers[number]} could not write its part of {attempt.path!r}: {note['failure']}",
                "Without it the checkpoint is not whole, and it is not made. Those before stay.",
                "Fix the problem that this worker reports.",
            )
        file = file_names.shard_file(attempt.path, attempt.name, number, count)
        size = file.stat().st_size if file.exists() else None
        if size != note["bytes"]:
            raise CheckpointError(
                f"{peers.peers[number]} wrote {file} with {note['bytes']} bytes; {peers.own} sees "
                f"{'no such file' if size is None else f'{size} bytes'}.",
                "Without it the checkpoint is not whole, and it is not made. Those before stay.",
                "Save to a disk that all workers share.",
            )
