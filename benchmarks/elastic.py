"""Workers killed and frozen again and again while others train on: how long training pauses, and what is lost.

Run `python benchmarks/elastic.py [--seconds 600] [--every 10] [--elastic 1:3] [--write]`. The same file is the program
of the workers. Spells in which workers are killed take turns with spells in which nobody is, and with spells in which
only waiting spares are: their successors take as much of the cores when they start, and training does not pause. All
are spells of one run, because runs one after the other differ by more than what is measured. A run that nobody disturbs
takes as many steps, and must come to the same weights.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pages import page, save

from stratagem.core import environment

FROZEN: Final = 0.25
"""Share of the faults that freeze a worker instead of killing it."""

STEPS_PER_EPOCH: Final = 50
ROWS: Final = 192
SPELLS: Final = ("worker", "nobody", "spare")
"""Who is killed, in spells that follow one another."""

FAULTS_PER_SPELL: Final = 3
LONGEST_SECONDS: Final = 120.0
"""A run in which no step is taken for so long hangs."""


def work(folder: Path, epochs: int) -> None:
    """Train, and note each step."""
    import keras
    import numpy as np

    import stratagem

    strategy = stratagem.MultiWorkerMirroredStrategy()
    generator = np.random.default_rng(0)
    x = generator.normal(size=(ROWS * STEPS_PER_EPOCH, 28, 28, 1)).astype("float32")
    y = generator.integers(0, 10, len(x))
    keras.utils.set_random_seed(1)
    with strategy.scope():
        layers = [
            keras.layers.Conv2D(8, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(10),
        ]
        model = keras.Sequential([keras.Input((28, 28, 1)), *layers])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(1e-3), loss, metrics=["accuracy"])

    class Notes(keras.callbacks.Callback):
        epoch = 0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            with (folder / f"steps-{os.getpid()}").open("a") as file:
                file.write(f"{self.epoch * STEPS_PER_EPOCH + batch} {time.time():.4f}\n")

    history = model.fit(x, y, batch_size=ROWS, epochs=epochs, verbose=0, callbacks=[Notes()]).history
    weights = hashlib.sha256(b"".join(np.asarray(each).tobytes() for each in model.weights)).hexdigest()
    (folder / f"end-{os.getpid()}.json").write_text(json.dumps({"weights": weights, "loss": history["loss"]}))


class Spell(NamedTuple):
    """Some seconds of a run.

    Args:
        killed: Who is killed in it: "worker", "spare" or "nobody".
        begin: When it began.
        end: When it ended.
        faults: When somebody was killed or frozen.
    """

    killed: str
    begin: float
    end: float
    faults: list[float]


class Outcome(NamedTuple):
    """What a run left.

    Args:
        spells: Its spells, one after the other.
        steps: When each step was completed first.
        ends: What those had at the end who came to it.
        code: The exit code of the launcher.
    """

    spells: list[Spell]
    steps: dict[int, float]
    ends: list[dict[str, Any]]
    code: int

    def steps_in(self, spell: Spell) -> int:
        """Return how many steps were completed in a spell."""
        return sum(spell.begin <= moment < spell.end for moment in self.steps.values())

    def pauses(self, spells: Sequence[Spell] | None = None) -> list[float]:
        """Return how long no step was completed, behind each fault in which a worker was lost.

        Args:
            spells: In which spells; None for all.
        """
        moments = sorted(self.steps.values())
        chosen = [each for each in (self.spells if spells is None else spells) if each.killed == "worker"]
        pauses = []
        for fault in (fault for spell in chosen for fault in spell.faults):
            after = next((moment for moment in moments if moment > fault + 0.02), None)
            before = max((moment for moment in moments if moment <= fault + 0.02), default=fault)
            if after is not None:
                pauses.append(after - before)
        return pauses


def noted(folder: Path) -> dict[int, dict[int, float]]:
    """Return when each process completed each step, by its number."""
    found = {}
    for file in folder.glob("steps-*"):
        rows = [row.split() for row in file.read_text().splitlines() if row.count(" ") == 1]
        found[int(file.name.partition("-")[2])] = {int(step): float(moment) for step, moment in rows}
    return found


Launch = Callable[[Path, int], list[str]]
"""Returns the command that trains for some epochs, and notes its steps in a folder."""


def launch(*options: str) -> Launch:
    """Return how `stratagem run` trains.

    Args:
        options: Those that say how many workers and spares there are.
    """
    command = [sys.executable, "-m", "stratagem", "run", *options, __file__]
    return lambda folder, epochs: [*command, str(folder), str(epochs)]


def waiting(launcher: int, trained: set[int]) -> list[int]:
    """Return the processes of a launcher that wait as spares.

    Args:
        launcher: Its pid.
        trained: Those that have noted a step.
    """
    children = map(int, Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split())
    programs = [pid for pid in children if __file__.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return [pid for pid in programs if pid not in trained]


def run(
    launch: Launch,
    epochs: int,
    *,
    every: float,
    faults: int | None = None,
    frozen: float = FROZEN,
    seed: int = 0,
    killed: Sequence[str] = ("worker",),
) -> Outcome:
    """Run once.

    Args:
        launch: What is run.
        epochs: How long.
        every: Seconds between two faults.
        faults: How many there are at most; None for one after another.
        frozen: Share of the faults of workers that freeze one instead.
        seed: That of the choice of the worker.
        killed: Who is killed, in spells that follow one another.
    """
    choose, spells = random.Random(seed), [Spell(killed[0], 0.0, 0.0, [])]
    num_faults = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        process = subprocess.Popen(launch(folder, epochs), env={**os.environ, environment.JAX_PLATFORMS: "cpu"})
        next_fault = 0.0
        while process.poll() is None:
            time.sleep(0.25)
            now = time.time()
            files = {int(file.name.partition("-")[2]): file for file in folder.glob("steps-*")}
            last = {pid: file.stat().st_mtime for pid, file in files.items()}  # to read them would take a core
            if last and now - max(last.values()) > LONGEST_SECONDS:
                process.terminate()
                raise SystemExit(f"no step for {LONGEST_SECONDS:g} s: the run hangs")
            alive = [pid for pid, moment in last.items() if now - moment < 1.0]
            if not alive:
                continue
            if not spells[-1].begin:
                spells[-1] = Spell(killed[0], now, now, [])
                next_fault = now + every
            if len(killed) > 1 and now >= spells[-1].begin + every * FAULTS_PER_SPELL:
                spells.append(Spell(killed[len(spells) % len(killed)], now, now, []))
                next_fault = now + every / FAULTS_PER_SPELL  # the processes of the last fault have come back at the end
            spell = spells[-1] = spells[-1]._replace(end=now)
            is_over = faults is not None and num_faults >= faults
            if not is_over and now >= next_fault and len(alive) > 1 and spell.killed != "nobody":
                done = max(step for steps in noted(folder).values() for step in steps)
                if done < (epochs - 1) * STEPS_PER_EPOCH:  # the last ones have their time to come back
                    victims = waiting(process.pid, set(files)) if spell.killed == "spare" else sorted(alive)
                    if victims:
                        freezes = spell.killed == "worker" and choose.random() < frozen
                        os.kill(choose.choice(victims), signal.SIGSTOP if freezes else signal.SIGKILL)
                        spell.faults.append(time.time())
                        num_faults += 1
                next_fault = now + every
        steps: dict[int, float] = {}
        for each in noted(folder).values():
            for step, moment in each.items():
                steps[step] = min(moment, steps.get(step, moment))
        ends = [json.loads(file.read_text()) for file in folder.glob("end-*.json")]
        return Outcome(spells, steps, ends, process.returncode)


class Costs(NamedTuple):
    """What faults cost, from the spells of a run.

    Args:
        with_pauses: Time of a step where workers are killed, by that where nobody is.
        without_pauses: The same without the pauses.
        of_start: Seconds that the start of a process takes from the others.
        throughput: Steps in a time without pauses and without what starts take, by those where nobody is killed.
    """

    with_pauses: float
    without_pauses: float
    of_start: float
    throughput: float


def costs(outcome: Outcome) -> Costs:
    """Return the costs of faults.

    Args:
        outcome: The run; its last spell may be cut short.
    """
    spells = {kind: [spell for spell in outcome.spells[:-1] if spell.killed == kind] for kind in SPELLS}
    steps = {kind: sum(map(outcome.steps_in, chosen)) for kind, chosen in spells.items()}
    faults = {kind: sum(len(spell.faults) for spell in chosen) for kind, chosen in spells.items()}
    seconds = {kind: sum(spell.end - spell.begin for spell in chosen) / steps[kind] for kind, chosen in spells.items()}
    quiet, trained = seconds["nobody"], seconds["worker"] - sum(outcome.pauses(spells["worker"])) / steps["worker"]
    start = (seconds["spare"] - quiet) * steps["spare"] / faults["spare"]
    of_starts = start * faults["worker"] / steps["worker"]
    return Costs(seconds["worker"] / quiet, trained / quiet, start, quiet / (trained - of_starts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="about how long to train")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two faults")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--spares", type=int, default=1)
    parser.add_argument("--elastic", help="MIN:MAX instead of a fixed number of workers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="save the page in benchmarks/results")
    options = parser.parse_args()
    size = ["--elastic", options.elastic] if options.elastic else ["--workers", str(options.workers)]
    ours = functools.partial(run, launch(*size, "--spares", str(options.spares)), every=options.every)
    trial = ours(4, faults=0)
    step = (max(trial.steps.values()) - min(trial.steps.values())) / (len(trial.steps) - 1)
    epochs = max(4, round(options.seconds / step / STEPS_PER_EPOCH))
    killed = SPELLS if options.spares else ("worker",)
    quiet, disturbed = ours(epochs, faults=0), ours(epochs, seed=options.seed, killed=killed)
    wanted = set(range(epochs * STEPS_PER_EPOCH))
    pauses = sorted(disturbed.pauses())
    same = {end["weights"] for end in disturbed.ends} == {end["weights"] for end in quiet.ends}
    losses = [abs(a - b) / b for a, b in zip(disturbed.ends[0]["loss"], quiet.ends[0]["loss"], strict=True)]
    rows = {
        "exit code": str(disturbed.code),
        "faults of workers": f"{len(pauses)}, one every {options.every:g} s",
        "pause, median": f"{statistics.median(pauses):.2f} s",
        "pause, 95th percentile": f"{pauses[min(len(pauses) - 1, int(0.95 * len(pauses)))]:.2f} s",
        "steps that were lost": str(len(wanted - disturbed.steps.keys())),
        "steps": str(len(wanted)),
        "weights have the same bits": "yes" if same else "no",
        "largest difference of an epoch's loss, relative": f"{max(losses):.1e}",
    }
    if len(disturbed.spells) > len(SPELLS) and any(each.faults for each in disturbed.spells if each.killed == "spare"):
        found = costs(disturbed)
        rows |= {
            "time of a step, by that of spells in which nobody is killed": f"{found.with_pauses:.2f}",
            "the same without pauses": f"{found.without_pauses:.3f}",
            "what the start of a process takes from the others": f"{found.of_start:.1f} s",
            "throughput without pauses and starts": f"{found.throughput:.1%}",
        }
    text = page(
        "Workers that die while others train on",
        [
            f"{options.elastic or options.workers} workers and {options.spares} spare(s) on {os.cpu_count()} cores, a "
            f"convolution and two dense layers, {ROWS} rows a step; a quarter of the faults freeze a worker",
        ],
        "\n".join(["| | |", "| --- | ---: |", *(f"| {name} | {value} |" for name, value in rows.items())]),
    )
    print(text)
    if options.write:
        print(f"written: {save('elastic', text)}", file=sys.stderr)


if __name__ == "__main__":
    if environment.ELASTIC in os.environ:
        work(Path(sys.argv[1]), int(sys.argv[2]))
    else:
        main()
