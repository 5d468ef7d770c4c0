"""Times from the death of a worker: to the end of its group, to the first step after a restart, and of the pause of
others that continue.

Run `python benchmarks/recovery.py [--rounds 3] [--write]`. The same file is the program of the workers.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Final

import elastic
from figures import Figure
from pages import page, save
from plots import bars

from stratagem.core import environment

WORKERS: Final = 2
EPOCHS: Final = 20
SECONDS_BEFORE_DEATH: Final = 5.0
"""How long workers train that others continue for: a spare has come to `fit` by then."""

HERE: Final = Path(__file__).parent
PEER: Final = "TorchFT"
TORCHFT: Final = HERE / "peers" / "torchft" / ".venv" / "bin" / "python"
"""The interpreter of that peer, which takes part if `peers/torchft/setup.sh` has made its environment."""


def work() -> None:
    """Take steps until the first generation is killed; then say when each worker has taken its first step."""
    import jax.numpy as jnp

    import stratagem

    strategy = stratagem.MultiWorkerMirroredStrategy()

    def step() -> object:
        context = stratagem.get_replica_context()
        assert context is not None
        return context.all_reduce("sum", jnp.full(1000, context.replica_id_in_sync_group))

    strategy.run(step)
    print(f"stepped {strategy.worker_index} {os.getpid()}", flush=True)
    while os.environ[environment.GENERATION] == "1":
        strategy.run(step)


def first_steps(output: IO[str]) -> Iterator[tuple[int, int]]:
    """Yield (worker, pid) when a worker has taken its first step."""
    for line in output:
        _, found, fields = line.partition("stepped ")
        if found:
            worker, pid = fields.split()
            yield int(worker), int(pid)


def measure(victim: int, restarts: int) -> tuple[float, float, float]:
    """Start a group, and kill one worker.

    Args:
        victim: Which worker.
        restarts: How often the group may start again.

    Returns:
        Seconds from the start of the launcher to the first step of all workers; from the kill to the first step of
        all workers of the next generation (0 without); from the kill to the end of the launcher.
    """
    start = time.perf_counter()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "stratagem",
            "run",
            "--workers",
            str(WORKERS),
            "--max-restarts",
            str(restarts),
            __file__,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, environment.JAX_PLATFORMS: "cpu"},
    )
    assert process.stdout is not None
    steps = first_steps(process.stdout)
    pids = dict(next(steps) for _ in range(WORKERS))
    started = time.perf_counter()
    os.kill(pids[victim], signal.SIGKILL)
    killed = time.perf_counter()
    again = killed
    for _ in range(WORKERS if restarts else 0):
        next(steps)
        again = time.perf_counter()
    process.communicate()
    return started - start, again - killed, time.perf_counter() - killed


def table(rounds: int) -> str:
    """Return the medians of several rounds, as a Markdown table."""
    lines = [
        "| killed | start-up, s | kill to first step again, s | beyond start-up, s | kill to end without restart, s |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for victim, name in ((0, "worker 0 (chief)"), (1, "worker 1")):
        restarted = [measure(victim, restarts=1) for _ in range(rounds)]
        ended = [measure(victim, restarts=0) for _ in range(rounds)]
        start_up = statistics.median(seconds[0] for seconds in restarted + ended)
        again = statistics.median(seconds[1] for seconds in restarted)
        end = statistics.median(seconds[2] for seconds in ended)
        lines.append(f"| {name} | {start_up:.2f} | {again:.2f} | {again - start_up:+.2f} | {end:.2f} |")
    return "\n".join(lines)


def pause(launch: elastic.Launch) -> float:
    """Return how long no step is completed when a worker of two is killed and the other continues, in seconds.

    Args:
        launch: What is run.

    Raises:
        SystemExit: The other did not continue.
    """
    # One fault: the process that is started for a lost one would not be ready for a second one.
    outcome = elastic.run(launch, EPOCHS, every=SECONDS_BEFORE_DEATH, faults=1, frozen=0.0)
    if outcome.code or not outcome.pauses():
        raise SystemExit(f"a run ended with exit code {outcome.code}, and {len(outcome.steps)} steps: nothing to show")
    return max(outcome.pauses())


def of_torchft(folder: Path, epochs: int) -> list[str]:
    """Return the command that trains with TorchFT."""
    steps, rows = epochs * elastic.STEPS_PER_EPOCH, elastic.ROWS // WORKERS
    return [str(TORCHFT), str(HERE / "elastic_torchft.py"), str(folder), str(steps), str(WORKERS), str(rows)]


def summary(start_up: float, again: float, pauses: Mapping[str, float]) -> list[Figure]:
    """Return what the suite shows, in seconds.

    Args:
        start_up: From the command to the first step of all workers.
        again: From the kill to the first step after a restart.
        pauses: From the last step before the kill to the next one, by who continues.
    """
    heading, start = "a worker of two is killed", "from the command to the first step, before"
    restart = "from the kill to the next step, with a restart"
    times = {restart: again, **{f"from the last step to the next, {how}": pause for how, pause in pauses.items()}}
    others = [Figure(heading, what, seconds, "s", seconds / start_up, start) for what, seconds in times.items()]
    return [Figure(heading, start, start_up, "s"), *others]


def pauses(rounds: int) -> dict[str, list[float]]:
    """Return how long no step is completed in each round, in seconds, by who continues; all take turns."""
    ways = {
        "with a spare": elastic.launch("--workers", str(WORKERS), "--spares", "1"),
        "with one worker left": elastic.launch("--elastic", f"1:{WORKERS}"),
    }
    if TORCHFT.exists():
        ways[f"{PEER} with one worker left"] = of_torchft
    turns = [{how: pause(launch) for how, launch in ways.items()} for _ in range(rounds)]
    return {how: [turn[how] for turn in turns] for how in ways}


def table_of_pauses(rounds: int) -> str:
    """Return the pauses of several rounds, as a Markdown table."""
    rows = [f"| {how} | {statistics.median(each):.2f} | {max(each):.2f} |" for how, each in pauses(rounds).items()]
    return "\n".join(["| last step to the next one | median, s | longest, s |", "| --- | ---: | ---: |", *rows])


def figures(plots: Path) -> list[Figure]:
    """Measure what the suite shows, once each, and draw it in a folder."""
    start_up, again, _ = measure(1, restarts=1)
    rows = summary(start_up, again, {how: seconds for how, [seconds] in pauses(1).items()})
    heights = {row.what: (row.value, row.value, row.value) for row in rows}
    ours = [row.what for row in rows[1:] if PEER not in row.what]
    bars(plots / "recovery.svg", "A worker of two is killed", "s", heights, ours, shown="measured once")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="save the page in benchmarks/results")
    arguments = parser.parse_args()
    facts = [f"{WORKERS} workers on this machine, {arguments.rounds} rounds; SIGKILL after the first step"]
    tables = f"{table(arguments.rounds)}\n\n{table_of_pauses(arguments.rounds)}"
    text = page("How soon a group ends, and steps again, when a worker is killed", facts, tables)
    print(text)
    if arguments.write:
        print(f"written: {save('recovery', text)}", file=sys.stderr)


if __name__ == "__main__":
    if environment.LAUNCHED in os.environ:
        work()
    else:
        main()
