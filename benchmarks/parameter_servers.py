"""Training with parameter servers: steps of the tutorials' MNIST network, two workers, beside TensorFlow's.

    python benchmarks/parameter_servers.py [--rounds 10] [--steps 70] [--write]

One worker on each of two cores, which the parameter server and the chief share with them. A step is a batch of 64 on
one worker. All contenders take turns, as in step_time.py. Linux only.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pages import page, save
from processes import Contender, ContenderError
from step_time import Result, measure, prepare_data, say, started

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
        pairs = zip(result.turns, base.turns, strict=True)
        cells = [
            result.contender.title,
            f"{middle:.1f}",
            f"{low:.1f}-{high:.1f}",
            f"{statistics.median(base.ms / own.ms for own, base in pairs):.2f}",
            f"{result.losses[len(result.turns)]:.3f}",
            f"{statistics.median(turn.others for turn in result.turns):.1%}",
            ", ".join(f"{name} {version}" for name, version in result.versions.items()),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Run the benchmark; return 1 if a contender failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="epochs of each contender that count")
    parser.add_argument("--steps", type=int, default=70, help="steps in an epoch")
    parser.add_argument("--only", nargs="+", choices=[each.name for each in CONTENDERS], help="leave out the others")
    parser.add_argument("--write", action="store_true", help="save the page in benchmarks/results")
    arguments = parser.parse_args()
    contenders = [each for each in CONTENDERS if not arguments.only or each.name in arguments.only]
    with tempfile.TemporaryDirectory() as name:
        data, title = prepare_data(Path(name))
        try:
            with started(contenders, arguments.steps, Path(name), data) as running:
                measure(running, arguments.rounds)
        except ContenderError as error:
            say(str(error))
            return 1
    facts = [f"{title}; {arguments.rounds} rounds of {arguments.steps} steps, 64 rows each; 2 workers, 1 server"]
    text = page("Steps of the MNIST network with parameter servers", facts, table(list(running.values())))
    print(text)
    if arguments.write:
        say(f"written: {save('parameter_servers', text)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
