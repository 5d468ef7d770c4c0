"""Choice of the way in which a dataset is divided among workers, with a line that says why."""

from __future__ import annotations

from typing import NamedTuple

from stratagem.core.errors import InputError
from stratagem.data.dataset import Dataset
from stratagem.data.options import AutoShardPolicy, Options
from stratagem.data.sharding.whole_files import why_uneven


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
        in_order: Whether the rows within a batch must keep their order; AUTO then divides by rows.

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
