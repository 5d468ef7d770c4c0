"""Training with parameter servers: steps of the tutorials' MNIST network, two workers, beside TensorFlow's.

    python benchmarks/parameter_servers.py [--rounds 10] [--steps 70] [--write]

One worker on each of two cores, which the parameter server and the chief share with them. A step is a batch of 64 on
one worker. All contenders take turns, as in step_time.py. Linux only.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from figures import Figure
from processes import Contender
from rounds import Result, command, measured

TASKS = ("worker", "worker", "ps", "chief")
THEIRS, OURS = "mnist_cnn/tensorflow_parameter_servers.py", "mnist_cnn/stratagem_parameter_servers.py"
CONTENDERS = (
    Contender("tensorflow-fit", "TensorFlow, `fit`", THEIRS, TASKS, peer="tensorflow"),
    Contender("fit", "Stratagem, `fit`", OURS, TASKS),
    Contender("tensorflow-loop", "TensorFlow, custom loop", THEIRS, TASKS, peer="tensorflow", arguments=("loop",)),
    Contender("loop", "Stratagem, custom loop", OURS, TASKS, arguments=("loop",)),
)


def table(results: Sequence[Result]) -> str:
    """Return the results as a Markdown table."""
    theirs = {result.contender.arguments: result for result in results if result.contender.peer}
    columns = "contender | steps/s | quartiles | times as fast | loss | others | versions"
    lines = [f"| {columns} |", "| --- " * len(columns.split("|")) + "|"]
    for result in results:
        rates = [1e3 / turn.ms for turn in result.turns]
        low, middle, high = statistics.quantiles(rates, n=4, method="inclusive")
        base = theirs.get(result.contender.arguments, result)
        cells = [
            result.contender.title,
            f"{middle:.1f}",
            f"{low:.1f}-{high:.1f}",
            f"{base.ratio_to(result):.2f}",
            f"{result.losses[len(result.turns)]:.3f}",
            f"{statistics.median(turn.others for turn in result.turns):.1%}",
            ", ".join(f"{name} {version}" for name, version in result.versions.items()),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def summary(results: Sequence[Result]) -> list[Figure]:
    """Return what the suite shows of the results: steps per second, ours beside TensorFlow's where that took part."""
    theirs = {result.contender.arguments: result for result in results if result.contender.peer}
    found = []
    for result in results:
        base = theirs.get(result.contender.arguments, result)
        ratio, to = (None, "") if result is base else (base.ratio_to(result), base.title)
        found.append(Figure("speed with parameter servers", result.title, 1e3 / result.ms, "steps/s", ratio, to))
    return found


def figures(plots: Path) -> list[Figure]:
    """Measure what the suite shows."""
    return summary(measured(CONTENDERS, rounds=5, steps=70)[0])


if __name__ == "__main__":
    title, rows = "Steps of the MNIST network with parameter servers", "64 rows; 2 workers, 1 server"
    sys.exit(command(__doc__, CONTENDERS, table, theme="parameter_servers", title=title, rows=rows))
