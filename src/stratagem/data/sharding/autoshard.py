"""Choice of the way in which a dataset is divided among workers, with a line that says why.

Workers can read whole files of their own while every batch keeps its rows, if all files are read in turn, at the same
time, and a batch takes equally many records from each: the rows of every global batch then lie evenly in the files of
the workers.
"""

from __future__ import annotations

from typing import NamedTuple

from stratagem.core.errors import InputError
from stratagem.data.dataset import Dataset
from stratagem.data.files.names import FileList
from stratagem.data.files.source import FileStep
from stratagem.data.interleave import Interleave
from stratagem.data.nodes import Node, Seeded, walk
from stratagem.data.options import AutoShardPolicy, Options
from stratagem.data.transforms import Batched, Map


class Choice(NamedTuple):
    """Way in which a dataset is divided among workers.

    Args:
        policy: The policy, never AUTO.
        reason: One line for the log that says what happens and why.
        even: Whether the workers' parts of a step are known to be equally large, and those of the same batch as always.
    """

    policy: AutoShardPolicy
    reason: str
    even: bool = True


def choose_policy(options: Options, dataset: Dataset, num_workers: int, *, in_order: bool = False) -> Choice:
    r"""Choose how `dataset` is divided among workers.

    Semantics: `tf.data.experimental.AutoShardPolicy`, but for AUTO: TensorFlow's divides by files wherever there are
    as many files as workers, and the batches then depend on the number of workers. Here AUTO chooses FILE only where
    the batches stay the same.

    Args:
        options: The options to follow, usually `dataset.options()`.
        dataset: The global dataset.
        num_workers: How many workers read it.
        in_order: Whether the rows within a batch must keep their order, as `predict` needs; AUTO and FILE then divide
            by rows, as in TensorFlow.

    Raises:
        InputError: The policy cannot be followed: FILE without files or with fewer files than workers, HINT without
            `shard(SHARD_HINT, SHARD_HINT)`.

    Example:
        >>> dataset = Dataset.range(8).batch(4)
        >>> choice = choose_policy(dataset.options(), dataset, num_workers=2)
        >>> choice.policy.name
        'DATA'
        >>> print(*choice.reason.split(": "), sep="\n")
        auto-shard DATA (AUTO, as there are no files)
        each of 2 workers reads its rows of every batch
    """
    policy = options.experimental_distribute.auto_shard_policy
    workers = f"each of {num_workers} workers" if num_workers > 1 else "the only worker"
    if policy is AutoShardPolicy.FILE and in_order and num_workers > 1:
        reason = (
            f"auto-shard DATA (not FILE, as the order of the rows matters): {workers} reads its rows of every batch"
        )
        return Choice(AutoShardPolicy.DATA, reason)
    if policy is AutoShardPolicy.FILE:
        if not dataset.files:
            raise InputError(
                f"auto_shard_policy is FILE, but the dataset is not made of files; {num_workers} workers read it.",
                "Use AutoShardPolicy.DATA or AUTO: each worker then reads its rows of every global batch.",
            )
        fewest = min(len(step.paths) for step in dataset.files)
        if fewest < num_workers:
            raise InputError(
                f"auto_shard_policy is FILE, but {num_workers} workers share {fewest} file(s).",
                f"Write at least {num_workers} files, or use AutoShardPolicy.DATA or AUTO: each worker then reads its "
                "rows of every global batch, from all files.",
            )
        return Choice(policy, f"auto-shard FILE: {workers} reads its files; batches depend on how many workers", False)
    if policy is AutoShardPolicy.HINT:
        if not dataset.has_shard_hint:
            raise InputError(
                "auto_shard_policy is HINT, but the dataset has no shard(SHARD_HINT, SHARD_HINT).",
                "Write dataset.shard(stratagem.data.experimental.SHARD_HINT, "
                "stratagem.data.experimental.SHARD_HINT) where each worker's part begins, or use AUTO.",
            )
        reason = f"auto-shard HINT: {workers} reads the part that shard(SHARD_HINT, SHARD_HINT) gives it"
        return Choice(policy, reason, False)
    if policy is AutoShardPolicy.OFF:
        return Choice(policy, f"auto-shard OFF: {workers} reads the whole dataset")
    why = ""
    if policy is AutoShardPolicy.AUTO:
        uneven = "the order of the rows matters" if in_order else why_uneven(dataset._node, num_workers)
        if uneven is None and num_workers > 1:
            why = "AUTO, as a batch takes as many records of each of them"
            return Choice(AutoShardPolicy.FILE, f"auto-shard FILE ({why}): {workers} reads its files")
        why = f" (AUTO, as {uneven})"
    return Choice(AutoShardPolicy.DATA, f"auto-shard DATA{why}: {workers} reads its rows of every batch")


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
