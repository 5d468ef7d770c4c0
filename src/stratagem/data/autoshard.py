"""Which way a dataset is divided among workers, and the line that says why."""

from __future__ import annotations

from stratagem.core.errors import InputError, explain
from stratagem.data.dataset import Dataset
from stratagem.data.options import AutoShardPolicy, Options


def choose_policy(options: Options, dataset: Dataset, num_workers: int) -> tuple[AutoShardPolicy, str]:
    r"""Choose how `dataset` is divided among workers.

    Semantics: `tf.data.experimental.AutoShardPolicy`.

    Args:
        options: The options to follow, usually `dataset.options()`.
        dataset: The global dataset.
        num_workers: How many workers read it.

    Returns:
        The policy, never AUTO, and one line for the log that says what happens and why.

    Raises:
        InputError: The policy cannot be followed: FILE without files, HINT without `shard(SHARD_HINT, SHARD_HINT)`.

    Example:
        >>> dataset = Dataset.range(8).batch(4)
        >>> policy, reason = choose_policy(dataset.options(), dataset, num_workers=2)
        >>> policy.name
        'DATA'
        >>> print(*reason.split(": "), sep="\n")
        auto-shard DATA (AUTO, as there are no files)
        each of 2 workers reads its rows of every batch
    """
    policy = options.experimental_distribute.auto_shard_policy
    workers = f"each of {num_workers} workers" if num_workers > 1 else "the only worker"
    if policy is AutoShardPolicy.FILE:
        raise InputError(
            explain(
                f"auto_shard_policy is FILE, but the dataset is not made of files; {num_workers} workers read it.",
                "There are no files to divide among the workers.",
                "Use AutoShardPolicy.DATA or AUTO: each worker then reads its rows of every global batch.",
            )
        )
    if policy is AutoShardPolicy.HINT:
        if not dataset.has_shard_hint:
            raise InputError(
                explain(
                    "auto_shard_policy is HINT, but the dataset has no shard(SHARD_HINT, SHARD_HINT).",
                    "Where to divide the dataset among the workers is not said.",
                    "Write dataset.shard(stratagem.data.experimental.SHARD_HINT, "
                    "stratagem.data.experimental.SHARD_HINT) where each worker's part begins, or use AUTO.",
                )
            )
        return policy, f"auto-shard HINT: {workers} reads the part that shard(SHARD_HINT, SHARD_HINT) gives it"
    if policy is AutoShardPolicy.OFF:
        return policy, f"auto-shard OFF: {workers} reads the whole dataset"
    why = " (AUTO, as there are no files)" if policy is AutoShardPolicy.AUTO else ""
    return AutoShardPolicy.DATA, f"auto-shard DATA{why}: {workers} reads its rows of every batch"
