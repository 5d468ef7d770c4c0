"""Where the time goes from a command to the end of the first step, with nothing compiled before and with all of it.

Run `python benchmarks/start_up.py [--rounds 3] [--write]`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from figures import Figure
from pages import page, save
from processes import HERE

from stratagem.core import environment

PROGRAM = str(HERE / "mnist_cnn" / "first_step.py")
COMPILING = "compile, or load"
PROGRAMS = "programs compiled or loaded"
TOTAL = "total"
PARTS = (
    "launcher, interpreter",
    "import NumPy, JAX",
    "import Keras",
    "import Stratagem, meet",
    "model",
    "first step",
    COMPILING,
    TOTAL,
)
"""The rows of the table, in the order of time; what JAX compiles or loads is left out of the parts it happens in."""

LEFT_OUT = ("PYTHONDONTWRITEBYTECODE", environment.COMPILATION_CACHE_DIR)
"""Variables that programs do not inherit. Without bytecode every start would compile Stratagem's own files, which an
installed package has compiled; a folder of the user's own would be warm."""

TITLES = {1: "one worker", 2: "two workers"}

LIMIT_SECONDS = 120.0
"""Longest start."""

Seconds = dict[str, float]
"""Seconds of each part; under PROGRAMS, how many programs were compiled or loaded."""


def start(command: Sequence[str], variables: Mapping[str, str]) -> Seconds:
    """Run a command that trains to the end of the first step.

    Args:
        command: What to run.
        variables: Set on top of this process's environment.

    Returns:
        The seconds of each part, of the worker whose first step ended last.
    """
    begin = time.monotonic()
    output = subprocess.run(
        command,
        env={
            **{name: value for name, value in os.environ.items() if name not in LEFT_OUT},
            environment.KERAS_BACKEND: "jax",
            environment.JAX_PLATFORMS: "cpu",
            environment.COMPILATION_CACHE: "true",
            "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
            "MPLCONFIGDIR": str(Path.home() / ".cache" / "matplotlib"),  # Keras loads it; it would list all fonts anew
            **variables,
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=LIMIT_SECONDS,
    ).stdout
    answers = [json.loads(line.partition("START ")[2]) for line in output.splitlines() if "START " in line]
    last = max(answers, key=lambda parts: parts[-1][1])
    seconds: Seconds = {}
    before, compiled_before = begin, 0.0
    for part, end, compiled, programs in last:
        seconds[part] = end - before - (compiled - compiled_before)
        before, compiled_before = end, compiled
        seconds |= {COMPILING: compiled, PROGRAMS: programs, TOTAL: end - begin}
    return seconds


def measure(rounds: int, titles: Mapping[int, str] = TITLES) -> dict[str, Seconds]:
    """Return the medians of several rounds, by column.

    Args:
        rounds: How often each program is started. What it compiled in one round is gone in the next.
        titles: How many workers, and how that is called.
    """
    launcher = [sys.executable, "-m", "stratagem", "run", "--workers"]
    found: dict[str, list[Seconds]] = {}
    for _ in range(rounds):
        found.setdefault("plain Keras", []).append(start([sys.executable, PROGRAM], {}))
        for workers, title in titles.items():
            with tempfile.TemporaryDirectory() as folder:
                for state in ("cold", "warm"):
                    seconds = start([*launcher, str(workers), PROGRAM], {environment.XDG_CACHE_HOME: folder})
                    found.setdefault(f"{title}, {state}", []).append(seconds)
    return {
        column: {part: statistics.median(each.get(part, 0.0) for each in all_) for part in (*PARTS, PROGRAMS)}
        for column, all_ in found.items()
    }


def summary(found: Mapping[str, Seconds]) -> list[Figure]:
    """Return what the suite shows of what `measure` found; plain Keras is the first column."""
    base, *_ = found
    rows = []
    for part, what in ((TOTAL, "from the command to the first step"), (COMPILING, "of it compiling or loading")):
        for column, seconds in found.items():
            ratio, to = (None, "") if column == base else (seconds[part] / found[base][part], base)
            rows.append(Figure(what, column, seconds[part], "s", ratio, to))
    return rows


def figures(plots: Path) -> list[Figure]:
    """Measure what the suite shows."""
    return summary(measure(rounds=3, titles={2: TITLES[2]}))


def table(figures: Mapping[str, Seconds]) -> str:
    """Return what `measure` found as a Markdown table."""
    lines = [
        f"| seconds | {' | '.join(figures)} |",
        f"| --- |{' ---: |' * len(figures)}",
        *(f"| {part} | {' | '.join(f'{each[part]:.2f}' for each in figures.values())} |" for part in PARTS),
        f"| {PROGRAMS} | {' | '.join(f'{each[PROGRAMS]:.0f}' for each in figures.values())} |",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="save the page in benchmarks/results")
    arguments = parser.parse_args()
    facts = [f"MNIST network, 64 rows for each worker; medians of {arguments.rounds} rounds"]
    text = page("From the command to the end of the first step", facts, table(measure(arguments.rounds)))
    print(text)
    if arguments.write:
        print(f"written: {save('start_up', text)}", file=sys.stderr)


if __name__ == "__main__":
    main()
