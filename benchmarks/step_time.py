"""Time of one training step of the tutorials' MNIST network, side by side, one core for each worker.

    python benchmarks/step_time.py [--rounds 10] [--steps 70] [--only NAME ...] [--write]

All contenders are started and warmed up, then take turns: an epoch each, in every round. So what else the
machine does meets them all alike, and each ratio compares two epochs that ran one after the other. README.md
says how to read the table. Linux only: it binds processes to cores.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from pages import page, save
from processes import Contender, ContenderError, Running, Turn

from stratagem.core import environment

ROWS = 20_000
"""Images that contenders draw from; an epoch begins again where they end."""

QUIET = 0.03
"""A turn is repeated when other work took more than this share of its cores."""

ATTEMPTS = 3
"""How often, at most, one turn is run; the least disturbed one counts."""

WORKERS = ("worker", "worker")

REFERENCE = Contender("keras", "Keras on JAX", "mnist_cnn/plain_keras.py")
CONTENDERS = (
    REFERENCE,
    Contender("one", "Stratagem, OneDeviceStrategy", "mnist_cnn/with_stratagem.py"),
    Contender("two", "Stratagem, MultiWorkerMirroredStrategy", "mnist_cnn/with_stratagem.py", tasks=WORKERS),
    Contender(
        "backup", "the same, a backup every 30 steps", "mnist_cnn/with_stratagem.py", tasks=WORKERS, arguments=("30",)
    ),
    Contender("torch", "PyTorch, DDP over Gloo", "mnist_cnn/torch_ddp.py", tasks=WORKERS, peer="torch"),
    Contender(
        "tensorflow",
        "TensorFlow, MultiWorkerMirroredStrategy",
        "mnist_cnn/tensorflow_multi_worker.py",
        tasks=WORKERS,
        peer="tensorflow",
    ),
)


@dataclass
class Result:
    """What was measured of a contender: a turn for each round, and the losses of all epochs, also of repeated ones."""

    contender: Contender
    versions: dict[str, str]
    losses: list[float]
    turns: list[Turn] = field(default_factory=list)


def prepare_data(folder: Path) -> tuple[Path, str]:
    """Write the images that all contenders train on: MNIST where STRATAGEM_DATA has it, else scikit-learn's digits.

    Args:
        folder: Where to.

    Returns:
        The file, with `x` float32 [rows, 28, 28] in 0..1 and `y` int64 [rows], and its name for the table.
    """
    source = os.environ.get(environment.DATA)
    if source:
        with np.load(Path(source) / "mnist.npz") as data:
            x, y = data["x_train"][:ROWS] / np.float32(255), data["y_train"][:ROWS]
        title = "MNIST"
    else:
        from sklearn.datasets import load_digits

        pixels, y = load_digits(return_X_y=True)
        # 8x8 pixels, each repeated 3 times in both directions, in a frame of 2.
        x = np.pad(np.kron(pixels.reshape(-1, 8, 8) / 16, np.ones((1, 3, 3))), ((0, 0), (2, 2), (2, 2)))
        title = "scikit-learn's digits, resized"
    file = folder / "data.npz"
    np.savez(file, x=x.astype(np.float32), y=y.astype(np.int64))
    return file, title


@contextlib.contextmanager
def started(contenders: Sequence[Contender], steps: int, folder: Path, data: Path) -> Iterator[dict[Running, Result]]:
    """Start and warm up contenders, one after the other; leave out those that fail."""
    cores = sorted(os.sched_getaffinity(0))
    running: dict[Running, Result] = {}
    try:
        for contender in contenders:
            if not contender.python.exists():
                say(f"{contender.title}: no environment; sh benchmarks/peers/{contender.peer}/setup.sh makes it.")
            elif contender.workers > len(cores):
                say(f"{contender.title}: needs {contender.workers} cores, there are {len(cores)}.")
            else:
                say(f"{contender.title}: starting")
                own = [cores[number % len(cores)] for number in range(len(contender.tasks))]
                each = Running(contender, data, steps, own, folder)
                try:
                    versions, loss = each.warm_up()
                    running[each] = Result(contender, versions, [loss])
                except ContenderError as error:
                    each.end()
                    say(str(error))
        yield running
    finally:
        for each in running:
            each.end()


def quiet_turn(running: Running, result: Result) -> Turn:
    """Run turns until one is not disturbed by other work, and return the least disturbed."""
    turns: list[Turn] = []
    while len(turns) < ATTEMPTS and not any(turn.others <= QUIET for turn in turns):
        turns.append(running.turn())
        result.losses.append(turns[-1].loss)
    return min(turns, key=lambda turn: turn.others)


def measure(running: dict[Running, Result], rounds: int) -> None:
    """Let contenders take turns; each second round runs backwards, so that nobody always follows the same one.

    Raises:
        ContenderError: One failed. The others' numbers would not be of one run.
    """
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for each, result in list(running.items())[:: -1 if number % 2 else 1]:
            result.turns.append(quiet_turn(each, result))


def table(results: Sequence[Result], rounds: int, reference: Contender = REFERENCE) -> str:
    """Return the results as a Markdown table, with ratios to the reference."""
    base_turns = next(result.turns for result in results if result.contender is reference)
    columns = "contender | workers | ms/step | quartiles | ratio | CPU ms/step | CPU ratio | loss | others | versions"
    lines = [f"| {columns} |", "| --- " * len(columns.split("|")) + "|"]
    for result in results:
        low, middle, high = statistics.quantiles([turn.ms for turn in result.turns], n=4, method="inclusive")
        pairs = list(zip(result.turns, base_turns, strict=True))
        cells = [
            result.contender.title,
            str(result.contender.workers),
            f"{middle:.1f}",
            f"{low:.1f}-{high:.1f}",
            f"{statistics.median(own.ms / base.ms for own, base in pairs):.3f}",
            f"{statistics.median(turn.cpu_ms for turn in result.turns):.1f}",
            f"{statistics.median(own.cpu_ms / base.cpu_ms for own, base in pairs):.3f}",
            f"{result.losses[rounds]:.3f}",
            f"{statistics.median(turn.others for turn in result.turns):.1%}",
            ", ".join(f"{name} {version}" for name, version in result.versions.items()),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def page_of(results: Sequence[Result], arguments: argparse.Namespace, data: str) -> str:
    """Return the table with what it was measured on."""
    facts = [f"{data}; {arguments.rounds} rounds, {arguments.steps} steps each; 64 rows for each worker"]
    return page("Step of the MNIST network", facts, table(results, arguments.rounds))


def say(message: str) -> None:
    """Tell the person who waits what happens."""
    print(message, file=sys.stderr, flush=True)


def main() -> int:
    """Run the benchmark; return 1 if a contender failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="epochs of each contender that count")
    parser.add_argument("--steps", type=int, default=70, help="steps in an epoch")
    others = [contender.name for contender in CONTENDERS if contender is not REFERENCE]
    parser.add_argument("--only", nargs="+", choices=others, default=others, help="beside the reference, Keras on JAX")
    parser.add_argument("--write", action="store_true", help="save the page in benchmarks/results")
    arguments = parser.parse_args()
    if arguments.rounds < 2 or arguments.steps < 1:
        parser.error("a median needs --rounds 2 or more, an epoch --steps 1 or more")
    contenders = [each for each in CONTENDERS if each is REFERENCE or each.name in arguments.only]
    with tempfile.TemporaryDirectory() as name:
        data, title = prepare_data(Path(name))
        try:
            with started(contenders, arguments.steps, Path(name), data) as running:
                measure(running, arguments.rounds)
        except ContenderError as error:
            say(str(error))
            return 1
    text = page_of(list(running.values()), arguments, title)
    print(text)
    if arguments.write:
        say(f"written: {save('step_time', text)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
