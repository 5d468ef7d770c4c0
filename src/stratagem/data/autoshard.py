"""Which way a dataset is divided among workers, and the line that says why."""

from __future__ import annotations

from typing import NamedTuple

from stratagem.core.errors import InputError, explain
from stratagem.data.dataset import Dataset
from stratagem.data.options import AutoShardPolicy, Options


class Choice(NamedTuple):
    """How a dataset is divided among workers.

    Args:
        policy: The policy, never AUTO.
        reason: One line for the log that says what happens and why.
        even: Whether every worker is known to have as many rows at each step as the next.
    """

    policy: AutoShardPolicy
    reason: str
    even: bool = True


def choose_policy(options: Options, dataset: Dataset, num_workers: int) -> Choice:
    r"""Choose how `dataset` is divided among workers.

    Semantics: `tf.data.experimental.AutoShardPolicy`, but for AUTO: TensorFlow's divides by files wherever there are
    as many files as workers, and the batches then depend on the number of workers. Here AUTO chooses FILE only where
    the batches stay the same.

    Args:
        options: The options to follow, usually `dataset.options()`.
        dataset: The global dataset.
        num_workers: How many workers read it.

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
        _check_files(dataset, num_workers)
        return Choice(policy, f"auto-shard FILE: {workers} reads its files; batches depend on how many workers", False)
    if policy is AutoShardPolicy.HINT:
        _check_hint(dataset)
        reason = f"auto-shard HINT: {workers} reads the part that shard(SHARD_HINT, SHARD_HINT) gives it"
        return Choice(policy, reason, False)
    if policy is AutoShardPolicy.OFF:
        return Choice(policy, f"auto-shard OFF: {workers} reads the whole dataset")
    why = f" (AUTO, as {_why_not_files(dataset, num_workers)})" if policy is AutoShardPolicy.AUTO else ""
    return Choice(AutoShardPolicy.DATA, f"auto-shard DATA{why}: {workers} reads its rows of every batch")


def _check_hint(dataset: Dataset) -> None:
    if not dataset.has_shard_hint:
        raise InputError(
            explain(
                "auto_shard_policy is HINT, but the dataset has no shard(SHARD_HINT, SHARD_HINT).",
                "Where to divide the dataset among the workers is not said.",
                "Write dataset.shard(stratagem.data.experimental.SHARD_HINT, "
                "stratagem.data.experimental.SHARD_HINT) where each worker's part begins, or use AUTO.",
            )
        )


def _check_files(dataset: Dataset, num_workers: int) -> None:
    if not dataset.files:
        raise InputError(
            explain(
                f"auto_shard_policy is FILE, but the dataset is not made of files; {num_workers} workers read it.",
                "There are no files to divide among the workers.",
                "Use AutoShardPolicy.DATA or AUTO: each worker then reads its rows of every global batch.",
            )
        )
    fewest = min(len(step.paths) for step in dataset.files)
    if fewest < num_workers:
        raise InputError(
            explain(
                f"auto_shard_policy is FILE, but {num_workers} workers share {fewest} file(s).",
                "Some workers would have nothing to read.",
                f"Write at least {num_workers} files, or use AutoShardPolicy.DATA or AUTO: each worker then reads its "
                "rows of every global batch, from all files.",
            )
        )


def _why_not_files(dataset: Dataset, num_workers: int) -> str:
    """Say why the files cannot be divided among the workers without changing the batches."""
    if not dataset.files:
        return "there are no files"
    fewest = min(len(step.paths) for step in dataset.files)
    if fewest % num_workers:
        return f"{fewest} files do not divide by {num_workers} workers"
    counts = dataset.files[0].record_counts()
    if counts is None:
        return "only reading tells how many records a file has"
    if len(set(counts)) > 1:
        return f"the files have from {min(counts)} to {max(counts)} records"
    return "by files the batches would depend on the number of workers"
