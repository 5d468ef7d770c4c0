"""The table that `stratagem run` prints at the end: steps a second, where time was spent, and what to try."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stratagem.cluster.stragglers import find_straggler
from stratagem.core.spent import LABELS
from stratagem.insight.samples import Sample

LEAST_SECONDS: Final = 5.0
"""A shorter run says nothing about speed."""

LEAST_STEPS: Final = 20

_SHARES: Final = ("computing", "exchanging", "waiting", "input", "copying", "between", "saving")
_SECONDS: Final = ("starting", "compiling")

_MUCH: Final = 0.25
"""A share of the time that is worth a word."""

_ADVICE: Final = {
    "input": "Steps wait for their input: read further ahead (dataset.prefetch), let its functions do less, or keep "
    "what they compute (dataset.cache).",
    "copying": "Copying batches takes long: let the dataset yield the dtype that the model computes in.",
    "exchanging": "The exchange takes long, compared with the steps: give each worker a larger batch, or send less "
    '(CommunicationOptions(compression="bf16")).',
    "waiting": "Workers wait for one another, each time for a different one: give each worker its own cores.",
    "between": "Much time passes between steps: run several at once (compile(steps_per_execution=...)), or look at "
    "the callbacks.",
    "saving": "Saving takes much time: save less often, or in the background (BackupAndRestore does).",
}


def summary(samples: Mapping[str, Sample]) -> str | None:
    """Return the table with what to try below it, or None if there was too little training to say anything.

    Args:
        samples: The last sample of each task that trained, by its name.
    """
    table, advice = table_of(samples), advice_for(samples)
    return table if table is None or advice is None else f"{table}\n  {advice}"


def table_of(samples: Mapping[str, Sample]) -> str | None:
    """Return the table, or None if there was too little training to say anything.

    Args:
        samples: The last sample of each task that trained, by its name.

    Example:
        >>> from stratagem.core.spent import Spent
        >>> spent = Spent(starting=2.0, compiling=1.0, computing=6.0, exchanging=1.0, waiting=1.0, input=2.0)
        >>> sample = Sample(0.0, 0.0, 11, 100, "computing", spent, 0.5, 0)
        >>> print(table_of({"worker 0": sample, "worker 1": sample}))
        Time of the steps    steps/s  compute  exchange  wait  input  copy  between  save    start  compile
          worker 0              10.0      60%       10%   10%    20%    0%       0%    0%    2.0 s    1.0 s
          worker 1              10.0      60%       10%   10%    20%    0%       0%    0%    2.0 s    1.0 s
    """
    trained = {sample.title(name): sample for name, sample in samples.items() if sample.steps}
    if not any(_is_enough(sample) for sample in trained.values()):
        return None
    width = max(18, *(len(name) + 2 for name in trained))
    head = f"{'Time of the steps':{width}} {'steps/s':>9}  " + "  ".join(LABELS[part] for part in _SHARES)
    head += "  " + "  ".join(f"{LABELS[part]:>7}" for part in _SECONDS)
    return "\n".join([head, *(f"  {name:{width - 2}} {_row(sample)}" for name, sample in trained.items())])


def _is_enough(sample: Sample) -> bool:
    return sample.spent.training >= LEAST_SECONDS and sample.steps >= LEAST_STEPS


def _row(sample: Sample) -> str:
    spent = sample.spent
    whole = spent.training + spent.saving
    shares = [f"{getattr(spent, part) / whole:{len(LABELS[part])}.0%}" for part in _SHARES]
    seconds = [f"{getattr(spent, part):5.1f} s" for part in _SECONDS]
    return f"{sample.steps / whole:9.1f}  {'  '.join(shares)}  {'  '.join(seconds)}"


def advice_for(samples: Mapping[str, Sample]) -> str | None:
    """Return what to try, if something takes unusually long.

    Args:
        samples: The last sample of each task, by its name.
    """
    samples = {name: sample for name, sample in samples.items() if sample.steps}
    if not samples:
        return None
    workers = {name: sample for name, sample in samples.items() if sample.joined}
    if len(workers) > 1:
        spent = [sample.spent._replace(starting=0.0, compiling=0.0) for sample in workers.values()]
        found = find_straggler(spent, [sample.steps for sample in workers.values()])
        if found is not None:
            return found.described(list(workers)[found.task])
    longest = max(samples.values(), key=lambda sample: sample.spent.training)
    whole = longest.spent.training + longest.spent.saving
    part = max(_ADVICE, key=lambda each: getattr(longest.spent, each))
    return _ADVICE[part] if getattr(longest.spent, part) > _MUCH * whole else None
