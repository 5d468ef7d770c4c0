"""A step of the networks that people train, side by side: in one process, and on two workers with a core each.

    python benchmarks/networks.py [--only NETWORK ...] [--rounds 3] [--write]

Each network of networks/catalogue.py is trained with Adam by Stratagem, plain Keras on JAX and on PyTorch, TensorFlow
with `tf_keras`, and PyTorch (with DistributedDataParallel over Gloo), on the same rows. All contenders of a network are
started and warmed up, then take turns. The ratio is that of Stratagem's step to the step of the best of the others.
Linux only.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from figures import Figure, rounded
from pages import page, place, save
from plots import BLUE, GREEN, GREY, ORANGE, PINK, grouped_bars
from processes import HERE, Contender, ContenderError
from rounds import Result, in_turns, say

sys.path.insert(0, str(HERE / "networks"))

from catalogue import NETWORKS, drawn

WORKERS = ("worker", "worker")

COLOURS = {
    **{"Stratagem": BLUE, "TensorFlow": ORANGE, "PyTorch": GREEN, "Keras on JAX": GREY, "Keras on PyTorch": PINK}
}
"""Of the bars, in their order."""

Results = Mapping[str, Result]
"""Of each contender of one network, by its name."""


def contenders(name: str) -> list[Contender]:
    """Return who trains a network: those of one process, then those of two workers."""
    ours, tensorflow, torch = (f"networks/with_{each}.py" for each in ("stratagem", "tensorflow", "torch"))
    own, plain = (name,), "networks/with_keras.py"
    peers = [
        Contender("keras-jax", "Keras on JAX", plain, arguments=(name, "jax")),
        Contender("keras-torch", "Keras on PyTorch", plain, peer="torch", arguments=(name, "torch")),
    ]
    return [
        Contender("one", "Stratagem", ours, arguments=own),
        *(peers if NETWORKS[name].make else []),  # plain Keras has no tape in a tape
        Contender("tensorflow", "TensorFlow", tensorflow, peer="tensorflow", arguments=own),
        Contender("torch", "PyTorch", torch, peer="torch", arguments=own),
        Contender("two", "Stratagem", ours, WORKERS, arguments=own),
        Contender("tensorflow-two", "TensorFlow", tensorflow, WORKERS, "tensorflow", own),
        Contender("torch-two", "PyTorch", torch, WORKERS, "torch", own),
    ]


def measured(name: str, rounds: int) -> Results:
    """Measure one network.

    Raises:
        ContenderError: One of ours failed, or any after its start.
    """
    network = NETWORKS[name]
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data.npz")
        np.savez(data, **drawn(network, len(WORKERS)))
        found = in_turns(contenders(name), rounds, network.steps, Path(folder), data)
    return {result.contender.name: result for result in found}


def best_peer(results: Results, ours: str) -> Result | None:
    """Return the fastest other contender with as many workers as ours, if there is any."""
    workers = results[ours].contender.workers
    others = [each for key, each in results.items() if key != ours and each.contender.workers == workers]
    return min(others, key=lambda each: each.ms, default=None)


def table(found: Mapping[str, Results]) -> str:
    """Return the results as a Markdown table: milliseconds a step, and ours relative to the best of the others."""
    one = {"one": "Stratagem", "keras-jax": "Keras on JAX", "keras-torch": "Keras on PyTorch"}
    one |= {"tensorflow": "TensorFlow", "torch": "PyTorch"}
    two = {"two": "Stratagem", "tensorflow-two": "TensorFlow", "torch-two": "PyTorch, DDP"}
    heads = ["network", "rows", *one.values(), "ratio", *(f"{each}, 2 workers" for each in two.values()), "ratio"]
    lines = [f"| {' | '.join(heads)} |", "| --- |" + " ---: |" * (len(heads) - 1)]
    for name, results in found.items():
        cells = [NETWORKS[name].title, str(NETWORKS[name].rows)]
        for ours, keys in (("one", one), ("two", two)):
            cells += [rounded(results[key].ms) if key in results else "" for key in keys]
            best = best_peer(results, ours) if ours in results else None
            cells.append(f"{results[ours].ratio_to(best):.2f}" if best else "")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def losses(found: Mapping[str, Results]) -> str:
    """Return the mean losses of each contender's first epoch; those of plain Keras on JAX equal Stratagem's."""
    lines = []
    for name, results in found.items():
        each = ", ".join(f"{key} {result.losses[0]:.6g}" for key, result in results.items())
        lines.append(f"- {NETWORKS[name].title}: {each}")
    return "\n".join(lines)


def relative(found: Mapping[str, Results], ours: str) -> dict[str, dict[str, float]]:
    """Return the step of each contender relative to the fastest of the others with as many workers as ours.

    Args:
        found: The results.
        ours: Which of ours.
    """
    groups = {}
    for name, results in found.items():
        best = best_peer(results, ours) if ours in results else None
        if best is not None:
            alike = [each for each in results.values() if each.contender.workers == best.contender.workers]
            groups[NETWORKS[name].title] = {each.contender.title: each.ratio_to(best) for each in alike}
    return groups


def draw(found: Mapping[str, Results], picture: Callable[[str], Path]) -> list[Path]:
    """Draw steps relative to the fastest of the others, in one process and on two workers; return the pictures.

    Args:
        found: The results.
        picture: Gives the file of a picture, by its name.
    """
    pictures = []
    for ours, where in (("one", "in one process on one core"), ("two", "on two workers with a core each")):
        groups = relative(found, ours)
        taking_part = {title for values in groups.values() for title in values}
        colours = {title: colour for title, colour in COLOURS.items() if title in taking_part}
        pictures.append(picture(f"networks_{ours}"))
        label = "time of a step, relative to the fastest without Stratagem; less is better"
        grouped_bars(pictures[-1], f"Training steps {where}", label, groups, colours)
    return pictures


def summary(found: Mapping[str, Results]) -> list[Figure]:
    """Return what the suite shows of the results."""
    rows = []
    for name, results in found.items():
        for ours in ("one", "two"):
            best = best_peer(results, ours) if ours in results else None
            ratio, to = (results[ours].ratio_to(best), best.title) if best else (None, "")
            if ours in results:
                rows.append(
                    Figure(f"step: {NETWORKS[name].title}", results[ours].title, results[ours].ms, "ms", ratio, to)
                )
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Be the command; the exit code is 1 if a contender failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=NETWORKS, default=list(NETWORKS), help="leave out the others")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contender that count")
    parser.add_argument("--write", action="store_true", help="save the page in benchmarks/results")
    options = parser.parse_args(arguments)
    if options.rounds < 2:
        parser.error("a median needs --rounds 2 or more")
    found: dict[str, Results] = {}
    for name in options.only:
        say(f"== {NETWORKS[name].title}")
        try:
            found[name] = measured(name, options.rounds)
        except ContenderError as error:
            say(str(error))
            return 1
        say(table({name: found[name]}))
    facts = [f"random rows; {options.rounds} rounds; milliseconds a step, medians; Adam; one core for each worker"]
    lines = [page("A step of the networks that people train", facts, table(found))]
    lines += ["Losses of the first epoch:", "", losses(found), ""]
    if options.write:
        drawn = draw(found, lambda name: place(name, ".svg"))
        lines += [f"![{picture.stem.replace('_', ' ')}]({picture.name})\n" for picture in drawn]
    text = "\n".join(lines)
    print(text)
    if options.write:
        say(f"written: {save('networks', text)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
