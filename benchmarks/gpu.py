"""Training on NVIDIA GPUs: images or tokens a second under Stratagem, with plain Keras on JAX, and in PyTorch.

    python benchmarks/gpu.py [--only resnet50 gpt2 mnist input] [--rounds 3] [--seconds 45] [--minutes 10] [--rows N]
    python benchmarks/gpu.py --on cpu      # a rehearsal with tiny networks; what it prints are no results

All contenders of a network share the first GPU, are started and warmed up, then take turns; with several GPUs Stratagem
takes part once more with all of them. Images lie on the device; texts and digits, a few KB, `fit` copies there in each
step. `input` compares images that a stratagem.data.Dataset makes with one batch that lies there. On a GPU the page and
its numbers as JSON are saved in benchmarks/results; pieces that are measured later on the same day are added to them.
Linux only.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from figures import Figure, table
from pages import command, page, place
from processes import HERE, Contender, ContenderError
from rounds import Result, in_turns, say

from stratagem.launch.machine import this_machine

sys.path.insert(0, str(HERE / "gpu"))

from workloads import WORKLOADS, Size, drawn

INPUT = "input"
"""The piece that compares ways to feed a network."""

FED = "resnet50"
"""The network of that piece."""

PIECES = (*WORKLOADS, INPUT)

Piece = Mapping[str, Any]
"""What was measured of one piece, as JSON: `figures`, and how they came about."""


def contenders(piece: str, place: str, gpus: Sequence[str], size: Size, *, compiles: bool = False) -> list[Contender]:
    """Return who takes part in a piece; the first is the reference.

    Args:
        piece: Of PIECES.
        place: "gpu" or "cpu".
        gpus: All there are, as CUDA_VISIBLE_DEVICES names them.
        size: Of the network.
        compiles: Whether PyTorch's step goes through torch.compile.
    """
    one, every = tuple(gpus[:1]), tuple(gpus)
    ours = "gpu/with_stratagem.py"
    own = (FED if piece == INPUT else piece, place, str(size.rows))
    if piece == INPUT:
        return [
            Contender("resident", "one batch that lies on the device", ours, arguments=own, gpus=one),
            Contender("dataset", "Dataset: map, batch, prefetch", ours, arguments=(*own, "dataset"), gpus=one),
        ]
    more = [Contender("all", f"Stratagem, {len(every)} GPUs", ours, arguments=own, gpus=every)]
    torch = "PyTorch, torch.compile" if compiles else "PyTorch"
    torch_arguments = (*own, "compile") if compiles else own
    return [
        Contender("keras", "Keras on JAX", "gpu/with_keras.py", arguments=own, gpus=one),
        Contender("stratagem", "Stratagem, MirroredStrategy", ours, arguments=own, gpus=one),
        *(more if len(every) > 1 else []),
        Contender("torch", torch, "gpu/with_torch.py", peer="torch", arguments=torch_arguments, gpus=one),
    ]


def rate(result: Result, units: int) -> float:
    """Return units a second: the median over the rounds.

    Args:
        result: Of a contender.
        units: Units of a step on one device.
    """
    return 1e3 * units * devices_of(result) / result.ms


def devices_of(result: Result) -> int:
    """Return how many devices a contender has."""
    return max(1, len(result.contender.gpus))


def figures(piece: str, results: Sequence[Result], size: Size) -> list[Figure]:
    """Return the rows of the table. A ratio is that of the rates, above 1 where it is faster than the reference."""
    network = WORKLOADS[FED if piece == INPUT else piece]
    units = size.rows * network.units_of(size)
    title = network.title_of(size)
    heading = f"input keeps it busy: {title}" if piece == INPUT else title
    base = results[0]
    rows = []
    for each in results:
        ratio = base.ratio_to(each) * devices_of(each) / devices_of(base)
        torch = f", torch {each.versions['torch']}" if "torch" in each.versions else ""
        compared = (None, "") if each is base else (ratio, base.contender.title)
        rows.append(Figure(heading, each.contender.title + torch, rate(each, units), f"{network.unit}/s", *compared))
    return rows


def measured(
    piece: str, place: str, gpus: Sequence[str], rounds: int, seconds: float, rows: int | None, *, compiles: bool
) -> Piece:
    """Measure one piece.

    Args:
        piece: Of PIECES.
        place: "gpu" or "cpu".
        gpus: All there are.
        rounds: Turns of each contender, at most.
        seconds: No round begins after so many, but for the first.
        rows: Rows of a device; None for those of the network.
        compiles: Whether PyTorch's step goes through torch.compile.

    Raises:
        ContenderError: One of ours failed, or any after its start.
    """
    network = WORKLOADS[FED if piece == INPUT else piece]
    size = network.size_on(place, rows)
    left_out: list[str] = []

    def leave_out(reason: str) -> None:
        say(reason)
        left_out.append(in_short(reason))

    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data.npz")
        np.savez(data, **drawn(network, size))
        invited = contenders(piece, place, gpus, size, compiles=compiles)
        results = in_turns(invited, rounds, size.steps, Path(folder), data, seconds=seconds, leave_out=leave_out)
    versions = {name: version for each in results for name, version in each.versions.items()}
    return {
        "device": versions.pop("device"),
        "gpus": len(gpus),
        "versions": versions,
        "rows": size.rows,
        "steps": size.steps,
        "figures": [asdict(each) for each in figures(piece, results, size)],
        "milliseconds": {each.contender.name: [turn.ms for turn in each.turns] for each in results},
        "losses": {each.contender.name: each.losses for each in results},
        "left_out": left_out,
        "command": command(),
    }


def in_short(reason: str) -> str:
    """Return why a contender was left out in one line: what was found, and the last line that it printed.

    Example:
        >>> in_short("PyTorch ended.\\n--- torch-0.log\\nTraceback\\ntorch 2.13 finds no GPU.")
        'PyTorch ended. torch 2.13 finds no GPU.'
    """
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    return lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}"


def hardware(piece: Piece) -> str:
    """Return the devices of a piece."""
    return f"{piece['gpus']} x {piece['device']}" if piece["gpus"] else piece["device"]


def text_of(pieces: Mapping[str, Piece]) -> str:
    """Return the page of all pieces that were measured today."""
    facts = [f"devices: {each}" for each in sorted({hardware(each) for each in pieces.values()})]
    versions = sorted({f"{name} {version}" for each in pieces.values() for name, version in each["versions"].items()})
    facts += [", ".join(versions), "medians over the rounds; a ratio is that of the rates in the same round"]
    for name, each in pieces.items():
        rounds = min(map(len, each["milliseconds"].values()))
        spread = max(max(turns) / statistics.median(turns) - 1 for turns in each["milliseconds"].values())
        turns = f"rounds: {rounds}, steps of a turn: {each['steps']}, rows of a device: {each['rows']}"
        facts.append(f"{name}: {turns}; the slowest turn was {spread:.0%} above its median")
        facts += [f"{name}: left out: {reason}" for reason in each["left_out"]]
        if each["command"] != command():  # which the page shows anyway
            facts.append(f"{name}: `{each['command']}`")
    rows = [Figure(**figure) for each in pieces.values() for figure in each["figures"]]
    is_rehearsal = not any(each["gpus"] for each in pieces.values())
    title = "Rehearsal on the CPU: no results" if is_rehearsal else "Training on GPUs"
    return page(title, facts, table({"gpu": rows}))


def added(pieces: Mapping[str, Piece], file: Path) -> dict[str, Piece]:
    """Return the pieces of a file of today, if it is there, with these in the place of older ones, in order."""
    before = json.loads(file.read_text())["pieces"] if file.exists() else {}
    together = {**before, **pieces}
    return {name: together[name] for name in PIECES if name in together}


def save(pieces: Mapping[str, Piece]) -> tuple[Path, Path]:
    """Save today's page and its numbers; return where."""
    on = hardware(next(iter(pieces.values())))
    numbers, words = place("gpu", ".json", on), place("gpu", ".md", on)
    together = added(pieces, numbers)
    date = f"{datetime.date.today():%Y-%m-%d}"
    numbers.write_text(json.dumps({"date": date, "pieces": together}, indent=1) + "\n")
    words.write_text(text_of(together))
    return words, numbers


def main(arguments: Sequence[str] | None = None) -> int:
    """Be the command; the exit code is 1 if a contender failed, 2 if there is no GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PIECES, default=list(PIECES), help="leave out the others")
    parser.add_argument("--on", choices=("gpu", "cpu"), default="gpu", help="cpu is a rehearsal")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contender that count, at most")
    parser.add_argument("--seconds", type=float, default=45.0, help="no round of a piece begins after so many")
    parser.add_argument("--minutes", type=float, default=10.0, help="no piece begins after so many")
    parser.add_argument("--rows", type=int, help="rows for each device, where a GPU has little memory")
    parser.add_argument("--torch-compile", action="store_true", help="let PyTorch compile its step")
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, help="save the page [default: on a GPU]")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or (options.rows is not None and options.rows < 1):
        parser.error("there must be --rounds 1 or more, and --rows 1 or more")
    gpus = this_machine().gpus if options.on == "gpu" else ()
    if options.on == "gpu" and not gpus:
        say(
            "No NVIDIA GPU was found that JAX can use.\n  Why it matters: nothing can be measured.\n  What to do: run "
            "`make gpu` where there is one, which installs jax[cuda12]; or rehearse: python benchmarks/gpu.py --on cpu"
        )
        return 2
    writes = options.on == "gpu" if options.write is None else options.write
    pieces: dict[str, Piece] = {}
    failed = False
    deadline = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as programs:
        # Two contenders run the same step. In a rehearsal nothing is measured, and XLA may be quick.
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", programs)
        if options.on == "cpu":
            os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
        for name in options.only:
            left = deadline - time.monotonic()
            if left <= 0:
                say(f"{name}: not begun, as {options.minutes:g} minutes are over; measure it with --only {name}.")
                continue
            say(f"== {name}")
            seconds = min(options.seconds, left)
            try:
                pieces[name] = measured(
                    name, options.on, gpus, options.rounds, seconds, options.rows, compiles=options.torch_compile
                )
            except ContenderError as error:
                say(str(error))
                failed = True
                continue
            if writes:  # after each piece, so that what was measured stays if another one is killed
                say(f"written: {' and '.join(map(str, save(pieces)))}")
    if pieces:
        print(text_of(pieces))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
