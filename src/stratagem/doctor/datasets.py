"""Check that all workers together read each example of a dataset once, and that it is divided correctly."""

from __future__ import annotations

import contextlib
import itertools
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import jax
import numpy as np

from stratagem.core.errors import PeerError, StratagemError
from stratagem.core.findings import Finding, passed
from stratagem.core.named import load
from stratagem.data.dataset import Dataset
from stratagem.data.sharding.digests import row_digests
from stratagem.data.sharding.rehearsal import Rehearsal
from stratagem.data.sharding.verify import MOST_BATCHES, verify_sharding
from stratagem.strategy.base import Strategy

_REMEDY: Final = (
    "Name a function that returns the batched global dataset: --dataset train:dataset, or "
    "--dataset path/to/train.py:dataset. A module is looked for in the folder of the command, too."
)

Everybody = Callable[[Any], Sequence[Any]]
"""Function that returns the messages of all workers, in order."""


def check_dataset(strategy: Strategy, place: str, everybody: Everybody) -> list[Finding]:
    """Return the finding about the dataset that a function makes. All workers call it.

    Args:
        strategy: The strategy that distributes it.
        place: `module:function` or `path/to/file.py:function`.
        everybody: Exchanges messages between the workers.
    """
    try:
        function = load(place, "--dataset", _REMEDY)
        try:
            together = read_together(strategy, function, everybody)
        except PeerError as error:  # the workers' datasets do not fit together; what follows may tell why
            together = Finding("dataset", "FAIL", str(error))
        return [together, *verify_sharding(function, max(2, strategy.worker_count)).findings]
    except StratagemError as error:
        return [Finding("dataset", "FAIL", str(error))]
    except Exception as error:  # of the program: the table says it, and goes on to what else was found
        last = traceback.extract_tb(error.__traceback__)[-1]
        raised = f"{place} raised {type(error).__name__}: {error} ({last.filename}, line {last.lineno})"
        return [Finding("dataset", "FAIL", raised, "Make sure that the function runs by itself.")]


def read_together(strategy: Strategy, function: Callable[..., Any], everybody: Everybody) -> Finding:
    """Read one pass of a dataset as training would, on all workers at once, and compare with reading it alone.

    Args:
        strategy: What distributes it.
        function: Makes the dataset, of an `InputContext` if it takes one.
        everybody: Exchanges messages between the workers.
    """
    rehearsal = Rehearsal(function, strategy.worker_count, None)
    made = rehearsal.first
    with contextlib.closing(rehearsal.batches(rehearsal.part(made, 1, 0))) as batches:
        alone = _digest(jax.tree.leaves(batch.data) for batch in itertools.islice(batches, MOST_BATCHES))
        is_longer = next(batches, None) is not None
    if is_longer and rehearsal.own_streams:
        return Finding(
            "dataset",
            "warn",
            f"not compared: there are more than {MOST_BATCHES} batches, and each worker reads its own stream",
            "Let the function return a shorter dataset, without repeat().",
        )
    if rehearsal.takes_context:
        distributed = strategy.distribute_datasets_from_function(function)
    else:
        again = made.unread() if isinstance(made, Dataset) else rehearsal.make(1, 0)
        distributed = strategy.experimental_distribute_dataset(again)
    steps = iter(distributed)
    own = _digest(
        jax.tree.leaves(part)
        for batch in itertools.islice(steps, MOST_BATCHES if is_longer else None)
        for part in strategy.experimental_local_results(batch)
    )
    steps.close()
    said = everybody([own[0], str(own[1]), alone[0], str(alone[1])])
    return _judge(said, is_longer)


def _judge(said: Sequence[Any], is_longer: bool) -> Finding:
    """Compare what the workers read together with what each says that there is."""
    datasets = [(rows, int(total)) for _, _, rows, total in said]
    shares = ", ".join(str(share) for share, *_ in said)
    other = next((worker for worker, dataset in enumerate(datasets) if dataset != datasets[0]), None)
    if other is not None and not is_longer:
        return Finding(
            "dataset",
            "FAIL",
            f"worker {other} makes a different dataset than worker 0: {datasets[other][0]} and {datasets[0][0]} "
            f"examples, not the same ones (shares: {shares})",
            "Return the global dataset, the same on every worker, and let the strategy shard it.",
        )
    if (sum(share for share, *_ in said), sum(int(total) for _, total, *_ in said) % 2**64) == datasets[0]:
        first = f" of the first {MOST_BATCHES} batches" if is_longer else ""
        return passed("dataset", f"each of {datasets[0][0]} examples{first} once (shares: {shares})")
    return Finding(
        "dataset",
        "FAIL",
        f"{datasets[0][0]} examples, and the workers read {sum(share for share, *_ in said)} (shares: {shares})",
        "Some examples are read twice or never. Return the global dataset, the same on every worker, and let the "
        "strategy shard it. With AutoShardPolicy.OFF, each worker has to take its own part.",
    )


def _digest(batches: Iterable[Sequence[Any]]) -> tuple[int, int]:
    """Return the number of examples, and the sum of their digests, which does not depend on their order."""
    rows = total = 0
    for leaves in batches:
        digests = row_digests([_as_on_devices(np.asarray(leaf)) for leaf in leaves])
        rows += len(digests)
        total += sum(digests.tolist())
    return rows, total % 2**64


def _as_on_devices(values: np.ndarray) -> np.ndarray:
    """Return values in the dtype that JAX would give them (float32 for float64)."""
    return np.ascontiguousarray(values, jax.dtypes.canonicalize_dtype(values.dtype))
