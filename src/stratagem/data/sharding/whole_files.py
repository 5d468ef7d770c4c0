"""Test of whether workers can read whole files of their own while every batch keeps its rows.

They can if all files are read in turn, at the same time, and a batch takes equally many records from each: the rows of
every global batch then lie evenly in the files of the workers.
"""

from __future__ import annotations

from stratagem.data.files.names import FileList
from stratagem.data.files.source import FileStep
from stratagem.data.interleave import Interleave
from stratagem.data.nodes import Node, Seeded, walk
from stratagem.data.transforms import Batched, Map


def why_uneven(root: Node, workers: int) -> str | None:
    """Return what prevents dividing the files of a pipeline among workers, None if nothing does.

    Args:
        root: The last step of the pipeline.
        workers: How many workers.
    """
    if not any(isinstance(step, FileStep) for step in walk(root)):
        return "there are no files"
    if not isinstance(root, Batched):
        return "batch() is not the last step"
    in_turn = root.inputs[0]
    while isinstance(in_turn, Map):
        in_turn = in_turn.inputs[0]
    if not isinstance(in_turn, Interleave):
        if any(isinstance(step, Seeded) for step in walk(in_turn)):
            return "shuffle() mixes the rows of the files"
        return "the files are not read in turn, so a batch has the rows of some of them only"
    files = in_turn.inputs[0]
    if not isinstance(files, FileList):
        return "the list of files is not read in its order"
    return _why_not_in_turn(root, in_turn, len(files.paths), workers)


def _why_not_in_turn(batched: Batched, in_turn: Interleave, files: int, workers: int) -> str | None:
    if files % workers:
        return f"{files} files do not divide by {workers} workers"
    if in_turn.cycle_length < files:
        return f"{in_turn.cycle_length} of the {files} files are read at a time"
    parts = list(in_turn.parts())
    if any(isinstance(step, Seeded) for part in parts for step in walk(part)):
        return "the files are shuffled one by one"
    counts = [part.cardinality() for part in parts]
    if min(counts) < 0:
        return "only reading tells how many records a file has"
    if len(set(counts)) > 1:
        return f"the files have from {min(counts)} to {max(counts)} records"
    block, round_of_all = in_turn.block_length, files * in_turn.block_length
    last = 0 if batched.drop_remainder else sum(counts) % batched.size
    if counts[0] % block or batched.size % round_of_all or last % round_of_all:
        return f"a batch of {last or batched.size} does not take as many records of each of {files} files"
    return None
