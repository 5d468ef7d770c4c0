"""Trials: workers that hold state in shards are killed and frozen at random exchanges, and must end with the numbers.

    PYTHONPATH=. python tests/faults/kill_with_shards.py --trials 40 [--hosts]

Each trial runs `trains_sharded.py` with three workers, or with two on each of two hosts: `fit` or a loop of its own,
any stage, with spares or `--elastic`, and one or two faults. Most come before an exchange, in a step, between two
rounds of copies, or where a world begins; the others behind a step. All must end with the numbers of a run without
faults and shards (to the bit with spares on one host), or with 43, where a worker died with the one that kept its
copies, or all were hit. A trial that takes longer than five minutes hangs.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.faults import kill_in_loops, test_elastic_hosts
from tests.faults.kill_in_loops import failure_of
from tests.faults.test_elastic_shards import PROGRAM, check, run
from tests.faults.trains_with_spares import EPOCHS, STEPS

SAID = {
    "with them shards of the model": "shards were lost with their copies",
    **kill_in_loops.SAID,
    "They cannot continue from the same place": "some had ended training",
}
EXCHANGES = 3 * EPOCHS * STEPS
"""About how many a worker makes: of the step, of copies, and of those that meet behind it."""


def faults_of(generator: random.Random, workers: int) -> list[str]:
    """Return faults at random points."""
    points = [f"exchange{number}" for number in range(1, EXCHANGES)] + [str(n + 1) for n in range(EPOCHS * STEPS)]
    chosen = generator.sample(points, generator.randint(1, 2))
    signals = ["SIGKILL", "SIGKILL", "SIGKILL", "SIGSTOP"]
    return [f"{generator.randrange(workers)}:{point}:{generator.choice(signals)}" for point in chosen]


def outcome_of(folder: Path, stage: str, faults: list[str], loops: list[str], *, elastic: bool, hosts: bool) -> str:
    """Run a trial; return how it ended."""
    if elastic:
        options = ["--elastic", "1:4" if hosts else "1:3"]
    else:
        options = ["--workers", "2" if hosts else "3", "--spares", str(len(faults))]
    try:
        if hosts:
            ended = test_elastic_hosts.run(options, PROGRAM, str(folder), stage, *loops, *faults)
            code, said = max(code for code, _ in ended), "".join(each for _, each in ended)
        else:
            done = run(options, folder, stage, *loops, *faults)
            code, said = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        return "hangs"
    if failed := failure_of(code, said, SAID):
        return failed
    try:
        return "as undisturbed" if check(folder, *loops, to_the_bit=not (elastic or hosts)) else "nobody has ended"
    except AssertionError as error:
        print(error)
        return "other numbers"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hosts", action="store_true", help="on two hosts")
    options = parser.parse_args()
    generator, counts = random.Random(options.seed), Counter[str]()
    for trial in range(options.trials):
        faults = faults_of(generator, 4 if options.hosts else 3)
        stage, elastic = generator.choice(["optimizer", "gradients", "parameters"]), generator.random() < 0.5
        loops, began = generator.choice([[], [], ["loops"], ["validates"]]), time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            outcome = outcome_of(Path(folder), stage, faults, loops, elastic=elastic, hosts=options.hosts)
        counts[outcome] += 1
        kind = " ".join([stage, "elastic" if elastic else "spares", *loops])
        print(f"{trial + 1}: {kind}, {' '.join(faults)}: {outcome}, {time.monotonic() - began:.0f} s", flush=True)
    print(dict(counts))


if __name__ == "__main__":
    main()
