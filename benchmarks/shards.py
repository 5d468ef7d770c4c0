"""What `shard=` saves and costs: the stages of ZeRO beside whole state, and beside JAX by hand and PyTorch.

    python benchmarks/shards.py [--rounds 9] [--only NAME ...] [--write]

A network of 25 million weights in float32 (24 layers of 1,024 by 1,024), Adam, two workers with a core and 16 rows
each. Times: all contenders are started and warmed up, then take turns; a ratio compares neighbours in time. All begin
with the same weights and must find the same loss. Memory, of ours: a cluster for each stage. `made` is the most that
the process took while the model was made, `process` the most that it took in a second `fit`, both over what it took
before the model was made; `held` is what a worker holds of weights and slots between steps. `whole process` is the most
that a contender's process ever took, with its libraries and compiler. Linux only.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from figures import rounded
from pages import page, save
from processes import HERE, Contender, ContenderError
from rounds import Result, in_turns, say

import stratagem
from stratagem.testing import run_workers

sys.path.insert(0, str(HERE / "shards"))

from network import ROWS, rows_of

WORKERS = ("worker", "worker")
STEPS = 8
STAGES = ("whole", "optimizer", "gradients", "parameters")
OF_WORKER = ("made", "held", "slots", "process")
TOLERANCE = 1e-4
"""Relative difference of two contenders' mean losses over the first epoch, at most."""

CONTENDERS = (
    *(
        Contender(stage, f"Stratagem, {stage}", "shards/with_stratagem.py", WORKERS, arguments=(stage,))
        for stage in STAGES
    ),
    Contender("jax-1", "JAX by hand, optax, slots in shards", "shards/jax_stage_1.py", WORKERS, "jax"),
    Contender("jax-3", "JAX by hand, optax, weights in shards", "shards/jax_stage_3.py", WORKERS, "jax"),
    Contender("torch-1", "PyTorch, ZeroRedundancyOptimizer", "shards/torch_zero.py", WORKERS, "torch"),
    Contender("torch-3", "PyTorch, FSDP2", "shards/torch_fsdp.py", WORKERS, "torch"),
)


def megabytes(name: str) -> float:
    """Return a figure of this process: VmRSS is what it takes now, VmHWM the most it took."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1000


def memory(stage: str) -> dict[str, float]:
    """Return what one worker takes, in megabytes."""
    from with_keras import compiled, strategy_of

    strategy = strategy_of(stage)
    rows = rows_of(ROWS * len(WORKERS) * STEPS)
    before = megabytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    model = compiled(strategy)
    made = megabytes("VmHWM") - before
    fit: dict[str, Any] = {**rows, "batch_size": ROWS * len(WORKERS), "shuffle": False, "verbose": 0}
    model.fit(**fit)
    Path("/proc/self/clear_refs").write_text("5")  # the most from here on
    model.fit(**fit)
    variables = [*model.variables, *model.optimizer.variables]
    held = {id(each): each.value.addressable_data(0).nbytes for each in variables}
    slots = sum(each.value.addressable_data(0).nbytes for each in model.optimizer.variables)
    process = megabytes("VmHWM") - before
    return {"made": made, "held": sum(held.values()) / 1e6, "slots": slots / 1e6, "process": process}


def table(results: Sequence[Result], taken: Mapping[str, Mapping[str, float]]) -> str:
    """Return the results as a Markdown table, with ratios to whole state."""
    columns = [
        "contender",
        "made",
        "held",
        "slots",
        "process",
        "whole process",
        "ms/step",
        "quartiles",
        "ratio",
        "loss",
    ]
    lines = [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    for result in results:
        of_memory = taken.get(result.contender.name, {})
        low, high = result.quartiles
        cells = [
            result.title,
            *(f"{of_memory[name]:.0f}" if of_memory else "" for name in OF_WORKER),
            f"{result.peak_mib * 1.048576:.0f}",
            rounded(result.ms),
            f"{rounded(low)}-{rounded(high)}",
            f"{result.ratio_to(results[0]):.2f}",
            f"{result.losses[0]:.5f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def check_losses(results: Sequence[Result]) -> None:
    """Compare the mean losses over the first epoch, which all begin with the same weights.

    Raises:
        ContenderError: Two differ: they do not compute the same.
    """
    wanted = results[0].losses[0]
    for result in results:
        if abs(result.losses[0] - wanted) > TOLERANCE * wanted:
            raise ContenderError(
                f"{result.title} finds a loss of {result.losses[0]:.7g}, {results[0].title} {wanted:.7g}."
            )


def measured(chosen: Sequence[Contender], rounds: int) -> list[Result]:
    """Measure contenders in turns, and check that they compute the same.

    Raises:
        ContenderError: One failed, or computes something else.
    """
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data.npz")
        np.savez(data, **rows_of(ROWS * len(WORKERS) * STEPS))
        results = in_turns(chosen, rounds, STEPS, Path(folder), data)
    check_losses(results)
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Be the command; the exit code is 1 if a contender failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="turns of each contender that count")
    names = [each.name for each in CONTENDERS[1:]]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="leave out the others, but for whole")
    parser.add_argument("--write", action="store_true", help="save the page in benchmarks/results")
    options = parser.parse_args(arguments)
    if options.rounds < 2:
        parser.error("a median needs --rounds 2 or more")
    chosen = [each for each in CONTENDERS if each.name in ("whole", *options.only)]
    try:
        results = measured(chosen, options.rounds)
    except ContenderError as error:
        say(str(error))
        return 1
    own = [each.name for each in chosen if each.name in STAGES]
    taken = {stage: run_workers(memory, len(WORKERS), args=[stage], timeout_seconds=300)[0].value for stage in own}
    facts = [
        f"25 million weights, Adam, float32; {ROWS} rows for each worker; {options.rounds} rounds of {STEPS} steps; "
        "MB of a worker",
        f"stratagem {stratagem.__version__}",
    ]
    text = page("State in shards", facts, table(results, taken))
    print(text)
    if options.write:
        say(f"written: {save('shards', text)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
