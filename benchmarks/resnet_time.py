"""Step of a ResNet-18 on images of 64x64, 16 rows for each worker: what a second worker adds to it, side by side.

    python benchmarks/resnet_time.py [--rounds 5] [--steps 4] [--write]

The network of examples/resnet.py, with 45 MB of gradients: one process against two, each on a core of its own, under
Stratagem, and of the same network in PyTorch with DistributedDataParallel. All take turns. Plain Keras is not the one
process: XLA's own convolutions and max-pooling would hide what the second worker adds (weak_spots.py). Linux only.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from figures import Figure
from processes import Contender
from rounds import Result, command, measured

WORKERS = ("worker", "worker")


class Pair(NamedTuple):
    """The same network in one process and in two."""

    one: Contender
    two: Contender


OURS, TORCH = "resnet18/with_stratagem.py", "resnet18/with_torch.py"
STRATAGEM = Pair(
    Contender("one", "Stratagem, OneDeviceStrategy", OURS),
    Contender("two", "Stratagem, MultiWorkerMirroredStrategy", OURS, WORKERS),
)
PEER = Pair(
    Contender("torch-one", "PyTorch", TORCH, peer="torch"),
    Contender("torch", "PyTorch, DDP over Gloo", TORCH, WORKERS, peer="torch"),
)
CONTENDERS = (*STRATAGEM, *PEER)


def added(pair: Pair, results: Mapping[Contender, Result]) -> float | None:
    """Return the milliseconds that the second worker adds to a step, if both took part."""
    if pair.one not in results or pair.two not in results:
        return None
    return results[pair.two].beyond(results[pair.one])


def table(results: Sequence[Result]) -> str:
    """Return the results as a Markdown table."""
    found = {result.contender: result for result in results}
    columns = "contender | workers | ms/step | quartiles | ratio to one process | added ms | loss | others | versions"
    lines = [f"| {columns} |", "| --- " * len(columns.split("|")) + "|"]
    for result in results:
        pair = STRATAGEM if result.contender in STRATAGEM else PEER
        low, high = result.quartiles
        extra = added(pair, found) if result.contender is pair.two else None
        cells = [
            result.contender.title,
            str(result.contender.workers),
            f"{result.ms:.0f}",
            f"{low:.0f}-{high:.0f}",
            f"{result.ratio_to(found[pair.one]):.3f}" if pair.one in found else "",
            "" if extra is None else f"{extra:.0f}",
            f"{result.losses[len(result.turns)]:.3f}",
            f"{max(turn.others for turn in result.turns):.1%}",
            ", ".join(f"{name} {version}" for name, version in result.versions.items()),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def summary(results: Sequence[Result]) -> list[Figure]:
    """Return what the suite shows of the results."""
    found = {result.contender: result for result in results}
    rows = []
    for result in results:
        one = found.get((STRATAGEM if result.contender in STRATAGEM else PEER).one, result)
        ratio, to = (None, "") if result is one else (result.ratio_to(one), one.title)
        rows.append(
            Figure("step of ResNet-18, 64x64, 16 rows for each worker", result.title, result.ms, "ms", ratio, to)
        )
    ours, theirs = added(STRATAGEM, found), added(PEER, found)
    for pair, own, other in ((STRATAGEM, ours, theirs), (PEER, theirs, None)):
        if own is not None:
            ratio, to = (own / other, found[PEER.two].title) if other else (None, "")
            rows.append(Figure("what the second worker adds to it", found[pair.two].title, own, "ms", ratio, to))
    return rows


def figures(plots: Path) -> list[Figure]:
    """Measure what the suite shows."""
    return summary(measured(CONTENDERS, rounds=6, steps=5)[0])


if __name__ == "__main__":
    title, rows = "What a second worker adds to a step of ResNet-18", "16 rows of 64x64x3 for each worker"
    sys.exit(command(__doc__, CONTENDERS, table, theme="resnet_time", title=title, rows=rows, rounds=5, steps=4))
