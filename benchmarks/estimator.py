"""Time of one training step of an Estimator beside that of `fit` on the same model, side by side, each on one core.

    python benchmarks/estimator.py [--rounds 10] [--steps 100] [--write]

Contenders take turns, as in step_time.py. Linux only: it binds processes to cores.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from pages import page, save
from processes import Contender, ContenderError
from step_time import measure, prepare_data, say, started, table

FIT = Contender("fit", "fit", "mnist_cnn/with_stratagem.py")
CONTENDERS = (
    FIT,
    Contender("estimator", "Estimator", "mnist_cnn/with_estimator.py"),
    Contender("hooks", "Estimator, three hooks that do nothing", "mnist_cnn/with_estimator.py", arguments=("3",)),
)


def main() -> int:
    """Run the benchmark; return 1 if a contender failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="turns of each contender that count")
    parser.add_argument("--steps", type=int, default=100, help="steps in a turn")
    parser.add_argument("--write", action="store_true", help="save the page in benchmarks/results")
    arguments = parser.parse_args()
    if arguments.rounds < 2 or arguments.steps < 1:
        parser.error("a median needs --rounds 2 or more, a turn --steps 1 or more")
    with tempfile.TemporaryDirectory() as name:
        data, title = prepare_data(Path(name))
        try:
            with started(CONTENDERS, arguments.steps, Path(name), data) as running:
                measure(running, arguments.rounds)
        except ContenderError as error:
            say(str(error))
            return 1
    facts = [f"{title}; {arguments.rounds} rounds, {arguments.steps} steps each; 64 rows"]
    text = page("Estimator beside fit", facts, table(list(running.values()), arguments.rounds, FIT))
    print(text)
    if arguments.write:
        say(f"written: {save('estimator', text)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
