"""The whole suite: every script below in a process of its own, one after another, and one table of what they found.

    python benchmarks/suite.py [--only SCRIPT ...] [--write] [--readme] [--plots FOLDER]

With `--write` the table is a page in benchmarks/results, with its plots beside it; `--readme` also writes into README
those rows that most people decide by, with a link to the page. A script that fails, or takes much longer than it
should, has a row that says so; the others still run, and the exit code is 1. README.md in this folder says how to read
the rows. Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.metadata
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from figures import Figure, table, with_block
from pages import hardware, page, place, save

import stratagem

HERE = Path(__file__).parent
README = HERE.parent / "README.md"

BUDGETS = {
    "step_time": 160,
    "fit_overhead": 55,
    "scaling": 170,
    "resnet_time": 115,
    "collectives": 65,
    "custom_loop": 30,
    "input_cost": 50,
    "record_rate": 30,
    "start_up": 60,
    "recovery": 50,
    "checkpoint": 15,
    "parameter_servers": 100,
}
"""The scripts in the order of the table, and the seconds that each takes at most without peers: 15 minutes in all."""

PEER_SECONDS = 90
"""What each environment of a peer adds to that, at most."""

PATIENCE = 2.5
"""A script is stopped after so many times these seconds: the same machine took 2.2 times as long on another day."""

README_ROWS = (
    ("step_time", "step of the MNIST network", "Stratagem, OneDeviceStrategy"),
    ("step_time", "step of the MNIST network", "Stratagem, MultiWorkerMirroredStrategy"),
    ("step_time", "step of the MNIST network", "PyTorch, DDP"),
    ("step_time", "step of the MNIST network", "TensorFlow, MultiWorkerMirroredStrategy"),
    ("parameter_servers", "speed with parameter servers", "Stratagem, `fit`"),
)
"""Script, heading and beginning of the rows that stand in README.md: what it costs, and what else there is."""

Found = dict[str, list[Figure] | str]
"""What each script has found, or why it has not."""


class PartError(Exception):
    """A script of the suite did not do its part."""


def measured(script: Path, seconds: float, plots: Path) -> list[Figure]:
    """Run one script of the suite.

    Args:
        script: A file with a function `figures`.
        seconds: How long it may take.
        plots: The folder in which it may draw.

    Returns:
        What its `figures` returned.

    Raises:
        PartError: It failed, or took longer. Nothing of it runs any more.
    """
    with tempfile.TemporaryDirectory() as name:
        answer, log = Path(name) / "answer.json", Path(name) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, str(HERE / "part.py"), str(script), str(answer), str(plots)],
                env={**os.environ, "TMPDIR": name},  # what it leaves behind when it is killed goes with the folder
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # so that its children end with it
            )
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                raise PartError(f"took longer than {seconds:g} s") from None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if code:
            lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
            say("\n".join(lines[-30:]))
            raise PartError(f"ended with exit code {code}, {' '.join(lines[-1:])}")
        return [Figure(**each) for each in json.loads(answer.read_text())]


def run(names: Sequence[str], plots: Path) -> Found:
    """Run scripts one after another.

    Args:
        names: Which.
        plots: The folder in which they draw.
    """
    found: Found = {}
    for name in names:
        begin = time.monotonic()
        try:
            found[name] = measured(HERE / f"{name}.py", PATIENCE * (BUDGETS[name] + PEER_SECONDS * len(peers())), plots)
        except PartError as error:
            found[name] = str(error)
        say(f"{name}: {'failed' if isinstance(found[name], str) else 'done'}, {time.monotonic() - begin:.0f} s")
    return found


def peers() -> list[str]:
    """Return the peers that have an environment."""
    return sorted(python.parents[2].name for python in HERE.glob("peers/*/.venv/bin/python"))


def keep(text: str, plots: Path) -> Path:
    """Save a page with its plots in benchmarks/results, and return where."""
    pictures = []
    for drawn in sorted(plots.glob("*.svg")):
        kept = shutil.copy(drawn, place(drawn.stem, ".svg"))
        pictures.append(f"![{drawn.stem.replace('_', ' ')}]({kept.name})\n")
    return save("suite", "\n".join([text, *pictures]))


def for_readme(found: Mapping[str, Sequence[Figure] | str]) -> Found:
    """Return the rows that README.md shows; those of a peer that did not take part are left out.

    Args:
        found: What all scripts have found. Why one of these has not, is shown.
    """
    chosen: Found = {}
    for name in dict.fromkeys(name for name, _, _ in README_ROWS):
        rows = found.get(name, [])
        wanted = [(heading, what) for script, heading, what in README_ROWS if script == name]
        chosen[name] = (
            rows
            if isinstance(rows, str)
            else [
                row for row in rows if any(row.heading == each and row.what.startswith(what) for each, what in wanted)
            ]
        )
    return chosen


def write_readme(found: Mapping[str, Sequence[Figure] | str], details: Path) -> None:
    """Write the rows of README.md, with a link to the page that has all of them."""
    link = f"[all figures of this run, and its plots]({details.relative_to(README.parent)})"
    block = f"{hardware()}, {datetime.date.today():%Y-%m-%d}:\n\n{table(for_readme(found))}\n\nMore: {link}."
    README.write_text(with_block(README.read_text(), block))


def say(message: str) -> None:
    """Tell the person who waits what happens."""
    print(message, file=sys.stderr, flush=True)


def main() -> int:
    """Run the suite; return 1 if a script failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=BUDGETS, default=list(BUDGETS), help="leave out the others")
    parser.add_argument("--write", action="store_true", help="save the page and its plots in benchmarks/results")
    parser.add_argument("--readme", action="store_true", help="the same, and the chosen rows in README.md")
    parser.add_argument("--plots", type=Path, help="save the plots in this folder")
    arguments = parser.parse_args()
    if importlib.util.find_spec("matplotlib") is None:
        parser.error("the plots need matplotlib: pip install '.[bench]'")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that a part ends with the suite
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        plots = Path(name)
        found = run(arguments.only, plots)
        engine = ", ".join(f"{package} {importlib.metadata.version(package)}" for package in ("keras", "jax"))
        facts = [
            f"stratagem {stratagem.__version__}, {engine}; peers: {', '.join(peers()) or 'none'}",
            f"measured in {(time.monotonic() - begin) / 60:.1f} minutes",
        ]
        text = page("The whole suite", facts, table(found))
        print(text)
        if arguments.plots:
            arguments.plots.mkdir(parents=True, exist_ok=True)
            for drawn in plots.glob("*.svg"):
                shutil.copy(drawn, arguments.plots)
        if arguments.write or arguments.readme:
            details = keep(text, plots)
            say(f"written: {details}")
            if arguments.readme:
                write_readme(found, details)
    return 1 if any(isinstance(each, str) for each in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
