"""Run a step repeatedly: find which variables get different bits, and where its numbers are not finite."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax

from stratagem.feed.batch import GlobalBatch
from stratagem.fit.named_variables import shown_names
from stratagem.fit.steps import Step
from stratagem.inspection.locating import first_computed, located
from stratagem.inspection.replaying import BadStep, ran
from stratagem.inspection.saving import Digests, digest_of
from stratagem.inspection.states import Watched, copied, loss_of, number_of
from stratagem.mesh.same_values import checksums_of


@dataclass(frozen=True)
class Wanted:
    """The request of a user: the step, and what to do with it.

    Args:
        backup: The folder of the backups.
        step: The number of the step; `fit` begins with step 1.
        times: How often it is run; None means until two runs differ.
        locates: Whether to find where its numbers are not finite.
    """

    backup: str
    step: int
    times: int | None = 2
    locates: bool = False


@dataclass(frozen=True)
class Result:
    """The result of running a step again.

    Args:
        text: The result in words.
        is_same: Whether all runs had the same bits.
    """

    text: str
    is_same: bool


def run_again(
    wanted: Wanted, step: Step, values: Sequence[jax.Array], batch: GlobalBatch, first: int, digests: Digests | None
) -> Result:
    """Run a step again, and compare. All workers do it together.

    Args:
        wanted: The step to run, and how often.
        step: The compiled step.
        values: The values that it is given.
        batch: Its batch.
        first: Its number, or the number of the first of several steps that run as one.
        digests: The digests of the run that made the backup; None if there are none.
    """
    watched = Watched(step, values)
    last = first + batch.steps - 1
    name = f"step {first}" if first == last else f"steps {first} to {last}, which run as one,"
    numbers, after, loss = _run(watched, values, batch)
    differing: list[str] = []
    runs = 1
    with contextlib.suppress(KeyboardInterrupt):
        while not differing and runs != wanted.times:
            differing = _differing(watched, numbers, _run(watched, values, batch)[0])
            runs += 1
    lines, is_same = [], not differing
    if differing:
        listed = "".join(f"\n    {each}" for each in differing)
        lines.append(f"Run {runs} of {name} computed different bits than run 1:{listed}")
    else:
        said = "" if loss is None else f" and the loss {loss:.9g}"
        lines.append(f"{runs} runs of {name} computed the same bits: {len(watched.names)} variables{said}.")
    original = None if digests is None else digests.of_step(last)
    if original is not None:
        is_original = digest_of(watched.named(after)) == original
        is_same = is_same and is_original
        lines.append(f"The run that Inspect checked had {'the same' if is_original else 'DIFFERENT'} bits after it.")
    if wanted.locates:
        lines.append(_located(watched, values, batch, first))
    return Result("\n".join(lines), is_same)


def _run(
    watched: Watched, values: Sequence[jax.Array], batch: GlobalBatch
) -> tuple[Mapping[str, list[int]], list[jax.Array], float | None]:
    """Run the step; return the checksums of what it leaves, the new values, and its loss."""
    after = copied(values)
    logs = watched.step(after, batch)
    left = dict(zip(watched.names, after, strict=True))
    left |= {f"logs/{i}": leaf for i, leaf in enumerate(jax.tree.leaves(logs)) if isinstance(leaf, jax.Array)}
    loss = loss_of(logs)
    return checksums_of(left), after, None if loss is None else number_of(loss)


def _differing(watched: Watched, one: Mapping[str, list[int]], other: Mapping[str, list[int]]) -> list[str]:
    """Return a line for each value of which any worker has other bits."""
    shown = shown_names(watched.step.model)
    own = [
        f"{shown.get(name, name)}: checksums {_written(numbers)} and {_written(other[name])}"
        for name, numbers in one.items()
        if numbers != other[name]
    ]
    told = watched.strategy.from_all("values that differ", own)
    several = len(told) > 1
    return [f"{line} on worker {i}" if several else line for i, lines in enumerate(told) for line in lines]


def _written(numbers: Sequence[int]) -> str:
    return " ".join(f"{number:08x}" for number in dict.fromkeys(numbers))


def _located(watched: Watched, values: Sequence[jax.Array], batch: GlobalBatch, first: int) -> str:
    """Return in words where the numbers of the step are not finite."""
    outcome, last = ran(watched, values, batch), first + batch.steps - 1
    if outcome.is_bad:
        bad = BadStep(first, last, copied(values), batch, None, outcome.loss, outcome.variables)
        return str(located(watched, bad).error())
    computed = first_computed(watched, values, batch)
    if computed is None:
        return "All numbers that it computes are finite."
    where = f"`{computed.operation}` in {computed.result}, {computed.scope} {computed.line}".rstrip(", ")
    return f"Its loss and variables are finite, but an intermediate value is not: {where}."
