"""How the step of the tutorials' MNIST network scales: 1, 2 and 4 workers, weak (64 rows each) and strong (256 in all).

    python benchmarks/scaling.py [--rounds 5] [--steps 30] [--write]

Each number of workers runs twice: training together, and alone, which is the same processes on the same cores without
any exchange. What they lose together beyond what they lose alone is the price of distribution; the rest is the
machine's, where workers share cores and memory. README.md says how to read the table. Linux only.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from figures import Figure
from pages import page, save
from plots import BLUE, ORANGE, Line, lines
from processes import Contender, ContenderError
from rounds import Result, measured, say

WORKERS = (1, 2, 4)

WEAK_ROWS = 64
"""Rows of each worker, however many there are."""

STRONG_ROWS = 256
"""Rows of all workers together."""

KINDS = ("weak", "strong")

ALONE = "each for itself"
"""How the suite's table calls workers without exchange."""


class Run(NamedTuple):
    """So many workers, with so many rows each, together or alone. One worker is alone."""

    workers: int
    rows: int
    together: bool

    @property
    def contender(self) -> Contender:
        """The processes that do it."""
        name = f"{self.workers}x{self.rows}{'' if self.together else '-alone'}"
        arguments = (str(self.rows),) if self.together else (str(self.rows), "alone")
        title = f"{self.workers} of {self.rows} rows, {'together' if self.together else 'alone'}"
        tasks = ("worker",) * self.workers
        return Contender(name, title, "mnist_cnn/shares.py", tasks, arguments=arguments, shares_cores=True)


def run_of(kind: str, workers: int, together: bool) -> Run:
    """Return the run of one kind of scaling."""
    rows = WEAK_ROWS if kind == "weak" else STRONG_ROWS // workers
    return Run(workers, rows, together and workers > 1)


def runs() -> list[Run]:
    """Return all runs, each once: both kinds have some in common."""
    wanted = [run_of(kind, n, together) for kind in KINDS for n in WORKERS for together in (True, False)]
    return list(dict.fromkeys(wanted))


def efficiency(kind: str, run: Run, results: Mapping[Run, Result], cores: int) -> float:
    """Return the rows per second of a run over what the cores in use would do at the speed of one worker.

    Args:
        kind: Of scaling: it says which run of one worker.
        run: Which.
        results: Of all runs.
        cores: Of this machine.

    Returns:
        1 where nothing is lost; two workers on one core can at best do what one does there.
    """
    one = run_of(kind, 1, together=False)
    best = run.workers * run.rows / one.rows / min(run.workers, cores)
    return best / results[run].ratio_to(results[one])


def table(results: Mapping[Run, Result], cores: int) -> str:
    """Return the results as a Markdown table."""
    columns = (
        "scaling | workers | rows each | ms/step | quartiles | efficiency | alone, ms/step | its efficiency | ratio"
    )
    out = [f"| {columns} |", "| --- " * len(columns.split("|")) + "|"]
    for kind in KINDS:
        for workers in WORKERS:
            run, alone = run_of(kind, workers, together=True), run_of(kind, workers, together=False)
            low, high = results[run].quartiles
            cells = [
                kind,
                str(workers),
                str(run.rows),
                f"{results[run].ms:.1f}",
                f"{low:.1f}-{high:.1f}",
                f"{efficiency(kind, run, results, cores):.0%}",
                f"{results[alone].ms:.1f}",
                f"{efficiency(kind, alone, results, cores):.0%}",
                f"{results[run].ratio_to(results[alone]):.2f}",
            ]
            out.append(f"| {' | '.join(cells)} |")
    return "\n".join(out)


def summary(results: Mapping[Run, Result], cores: int) -> list[Figure]:
    """Return what the suite shows of the results: what is left of the cores' speed without exchange, and with it."""
    found = []
    for kind in KINDS:
        heading = f"{kind} scaling of the MNIST network, efficiency"
        for workers in WORKERS[1:]:
            run, alone = run_of(kind, workers, together=True), run_of(kind, workers, together=False)
            who = f"{workers} workers of {run.rows} rows on {min(cores, workers)} cores"
            value = efficiency(kind, run, results, cores)
            other = efficiency(kind, alone, results, cores)
            found.append(Figure(heading, f"{who}, {ALONE}", 100 * other, "%"))
            found.append(Figure(heading, f"{who}, training together", 100 * value, "%", value / other, ALONE))
    return found


def draw(results: Mapping[Run, Result], cores: int, file: Path) -> None:
    """Draw the efficiencies."""
    drawn = []
    for kind, colour in zip(KINDS, (BLUE, ORANGE), strict=True):
        rows = f"{WEAK_ROWS} rows each" if kind == "weak" else f"{STRONG_ROWS} rows in all"
        for together in (True, False):
            shares = [100 * efficiency(kind, run_of(kind, n, together), results, cores) for n in WORKERS]
            label = f"{kind}, {rows}" + ("" if together else ": without exchange")
            drawn.append(Line(label, WORKERS, shares, colour, dashed=not together))
    title = f"Scaling of the tutorials' MNIST network on {cores} cores"
    ticks = {n: str(n) for n in WORKERS}
    lines(file, title, "workers", "efficiency, % of the cores in use", drawn, x_ticks=ticks)


def measure(rounds: int, steps: int) -> tuple[dict[Run, Result], int, str]:
    """Measure all runs.

    Returns:
        The results, the number of cores, and the name of the data.

    Raises:
        ContenderError: One failed.
    """
    wanted = runs()
    results, title = measured([run.contender for run in wanted], rounds, steps)
    return dict(zip(wanted, results, strict=True)), len(os.sched_getaffinity(0)), title


def figures(plots: Path) -> list[Figure]:
    """Measure what the suite shows, and draw it in a folder."""
    results, cores, _ = measure(rounds=3, steps=20)
    draw(results, cores, plots / "scaling.svg")
    return summary(results, cores)


def main() -> int:
    """Run the benchmark; return 1 if a run failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="turns of each that count")
    parser.add_argument("--steps", type=int, default=30, help="steps in a turn")
    parser.add_argument("--write", action="store_true", help="save the page in benchmarks/results")
    arguments = parser.parse_args()
    if arguments.rounds < 2 or arguments.steps < 1:
        parser.error("a median needs --rounds 2 or more, a turn --steps 1 or more")
    try:
        results, cores, title = measure(arguments.rounds, arguments.steps)
    except ContenderError as error:
        say(str(error))
        return 1
    facts = [f"{title}; {arguments.rounds} rounds of {arguments.steps} steps"]
    text = page("Scaling of the MNIST network", facts, table(results, cores))
    print(text)
    if arguments.write:
        say(f"written: {save('scaling', text)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
