"""Contenders in rounds: all are started and warmed up, then take turns, an epoch each, in every round.

So what else the machine does meets them all alike, and each ratio compares two epochs that ran one after the other.
README.md says more.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from pages import page, save
from processes import Contender, ContenderError, Running, Turn

from stratagem.core import environment
from stratagem.demo import digits

ROWS = 20_000
"""Images that contenders draw from; an epoch begins again where they end."""

QUIET = 0.03
"""A turn is repeated when other work took more than this share of its cores."""

ATTEMPTS = 3
"""How often, at most, one turn is run; the least disturbed one counts."""


@dataclass
class Result:
    """What was measured of a contender: a turn for each round, and the losses of all epochs, also of repeated ones."""

    contender: Contender
    versions: dict[str, str]
    losses: list[float]
    turns: list[Turn] = field(default_factory=list)

    @property
    def title(self) -> str:
        """What it is, a peer with its version."""
        versions = "".join(f", {name} {version}" for name, version in self.versions.items() if self.contender.peer)
        return self.contender.described + versions

    @property
    def ms(self) -> float:
        """Time of a step in milliseconds: the median over the rounds."""
        return statistics.median(turn.ms for turn in self.turns)

    @property
    def quartiles(self) -> tuple[float, float]:
        """The quartiles of the same numbers."""
        low, _, high = statistics.quantiles([turn.ms for turn in self.turns], n=4, method="inclusive")
        return low, high

    @property
    def peak_mib(self) -> float:
        """Most memory that a process of it has had, in MiB."""
        return max(turn.peak_mib for turn in self.turns)

    def ratio_to(self, base: Result) -> float:
        """Return the ratio of the two times of a step: the median of each round's own."""
        return statistics.median(own.ms / other.ms for own, other in zip(self.turns, base.turns, strict=True))

    def cpu_ratio_to(self, base: Result) -> float:
        """Return the same of the time that cores worked."""
        return statistics.median(own.cpu_ms / other.cpu_ms for own, other in zip(self.turns, base.turns, strict=True))

    def beyond(self, base: Result) -> float:
        """Return how many milliseconds a step takes longer: the median of each round's own difference."""
        return statistics.median(own.ms - other.ms for own, other in zip(self.turns, base.turns, strict=True))


def measured(contenders: Sequence[Contender], rounds: int, steps: int) -> tuple[list[Result], str]:
    """Measure contenders that train on images, in turns.

    Args:
        contenders: Which; peers without an environment, or that fail to start, are left out.
        rounds: Turns of each.
        steps: Steps of a turn.

    Returns:
        The results, in order, and the name of the data.

    Raises:
        ContenderError: One of ours failed, or any after its start. The others' numbers would not be of one run.
    """
    with tempfile.TemporaryDirectory() as name:
        data, title = prepare_data(Path(name))
        return in_turns(contenders, rounds, steps, Path(name), data), title


def in_turns(
    contenders: Sequence[Contender],
    rounds: int,
    steps: int,
    folder: Path,
    data: Path,
    *,
    seconds: float = math.inf,
    leave_out: Callable[[str], object] | None = None,
) -> list[Result]:
    """Measure contenders in turns, as `measured` does, with logs in a folder and data of their own.

    Args:
        contenders: As there.
        rounds: As there.
        steps: As there.
        folder: For what the processes print.
        data: What they train on.
        seconds: No round begins after so many, but for the first.
        leave_out: Told why, of each contender that is left out; None tells the person who waits.

    Raises:
        ContenderError: As there.
    """
    with started(contenders, steps, folder, data, leave_out or say) as running:
        deadline = time.monotonic() + seconds
        for number in range(rounds):
            if number and time.monotonic() > deadline:
                say(f"{number} rounds took {seconds:.0f} s or more: there are no others.")
                break
            say(f"round {number + 1} of {rounds}")
            # Each second round runs backwards, so that nobody always follows the same one.
            for each, result in list(running.items())[:: -1 if number % 2 else 1]:
                result.turns.append(quiet_turn(each, result))
    return list(running.values())


def prepare_data(folder: Path) -> tuple[Path, str]:
    """Write the images that all contenders train on: MNIST where STRATAGEM_DATA has it, else Stratagem's digits.

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
        pixels, y = digits.read()
        # 8x8 pixels, each repeated 3 times in both directions, in a frame of 2.
        x = np.pad(np.kron(pixels / 16, np.ones((1, 3, 3))), ((0, 0), (2, 2), (2, 2)))
        title = "Stratagem's digits, resized"
    file = folder / "data.npz"
    np.savez(file, x=x.astype(np.float32), y=y.astype(np.int64))
    return file, title


@contextlib.contextmanager
def started(
    contenders: Sequence[Contender], steps: int, folder: Path, data: Path, leave_out: Callable[[str], object]
) -> Iterator[dict[Running, Result]]:
    """Start and warm up contenders, one after the other; leave out peers that are missing or fail."""
    cores = sorted(os.sched_getaffinity(0))
    running: dict[Running, Result] = {}
    try:
        for contender in contenders:
            if not contender.python.exists():
                leave_out(f"{contender.title}: no environment; sh benchmarks/peers/{contender.peer}/setup.sh makes it.")
            elif contender.workers > len(cores) and not contender.shares_cores:
                leave_out(f"{contender.title}: needs {contender.workers} cores, there are {len(cores)}.")
            else:
                say(f"{contender.title}: starting")
                one_each = [{cores[number % len(cores)]} for number in range(len(contender.tasks))]
                own = [cores for _ in contender.tasks] if contender.gpus else one_each
                each = Running(contender, data, steps, own, folder)
                try:
                    versions, loss = each.warm_up()
                    running[each] = Result(contender, versions, [loss])
                except ContenderError as error:
                    each.end()
                    if contender.peer is None:
                        raise
                    leave_out(str(error))
        yield running
    finally:
        for each in running:
            each.end()


def quiet_turn(running: Running, result: Result) -> Turn:
    """Run turns until one is not disturbed by other work, and return the least disturbed."""
    turns: list[Turn] = []
    attempts = 1 if running.contender.gpus else ATTEMPTS  # what is measured there is not the time of cores
    while len(turns) < attempts and not any(turn.others <= QUIET for turn in turns):
        turns.append(running.turn())
        result.losses.append(turns[-1].loss)
    return min(turns, key=lambda turn: turn.others)


def say(message: str) -> None:
    """Tell the person who waits what happens."""
    print(message, file=sys.stderr, flush=True)


def command(
    doc: str | None,
    contenders: Sequence[Contender],
    table: Callable[[Sequence[Result]], str],
    *,
    theme: str,
    title: str,
    rows: str,
    rounds: int = 10,
    steps: int = 70,
    reference: Contender | None = None,
) -> int:
    """Be the command of a script that measures contenders: print a page, or write it.

    Args:
        doc: What `--help` says.
        contenders: All.
        table: Makes the results a Markdown table.
        theme: How the file of the page begins.
        title: Of the page.
        rows: How many rows a step has, as the page says it.
        rounds: Unless the command line says otherwise.
        steps: Likewise.
        reference: One that takes part whatever `--only` says.

    Returns:
        The exit code: 1 if a contender failed.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds, help="turns of each contender that count")
    parser.add_argument("--steps", type=int, default=steps, help="steps in a turn")
    names = [each.name for each in contenders if each is not reference]
    also = f", beside the reference, {reference.title}" if reference else ""
    parser.add_argument("--only", nargs="+", choices=names, default=names, help=f"leave out the others{also}")
    parser.add_argument("--write", action="store_true", help="save the page in benchmarks/results")
    arguments = parser.parse_args()
    if arguments.rounds < 2 or arguments.steps < 1:
        parser.error("a median needs --rounds 2 or more, a turn --steps 1 or more")
    chosen = [each for each in contenders if each is reference or each.name in arguments.only]
    try:
        results, data = measured(chosen, arguments.rounds, arguments.steps)
    except ContenderError as error:
        say(str(error))
        return 1
    facts = [f"{data}; {arguments.rounds} rounds of {arguments.steps} steps; {rows}"]
    text = page(title, facts, table(results))
    print(text)
    if arguments.write:
        say(f"written: {save(theme, text)}")
    return 0
