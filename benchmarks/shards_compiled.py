"""What `shard=` leaves on one of many devices that are not here, as XLA compiles a step for them.

    python benchmarks/shards_compiled.py [PLACE ...] [--min-size N]

The network of shards.py (25 million weights in float32, Adam), 16 rows for each device. A place is one that
`stratagem plan --on` takes; XLA's compilers for GPUs and TPUs come with `plan-gpu` and `plan-tpu` (docs/planning.md).
`weights` and `slots` are arguments of the compiled step on each of N devices; behind the slots stands N times that, as
a share of whole ones. `temporary` is what the compiler allots beside them. The ratio compares all three with a step
without shards.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from typing import Any

from processes import HERE

from stratagem.plan.settings import SETTINGS

os.environ.update(SETTINGS)  # before JAX and XLA's compilers read them
os.environ.pop("XLA_FLAGS", None)  # those of CPUs, at which libtpu aborts
sys.path.insert(0, str(HERE / "shards"))

from network import ROWS, rows_of
from with_keras import compiled

import stratagem
from stratagem.mesh.shards import MIN_SIZE, shard_axis
from stratagem.plan.compiled_step import CompiledStep, compile_step
from stratagem.plan.first_step import step_of
from stratagem.plan.outcome import size
from stratagem.plan.place import Place, place_of
from stratagem.plan.topology import devices_of

PLACES = ("h100:8", "tpu:v5e:8x8")
STAGES = (None, "optimizer", "gradients", "parameters")
SLACK = 4096
"""Bytes of metrics, seeds and the optimizer's numbers, at most."""


def step_for(place: Place, stage: str | None, min_size: int) -> tuple[CompiledStep, int, int]:
    """Return a compiled step, and the bytes of weights and of slots on a device."""
    models: list[Any] = []

    def train() -> None:
        strategy = stratagem.MirroredStrategy(shard=stage, shard_min_size=stage and min_size)
        models.append(compiled(strategy))
        rows = ROWS * place.devices
        models[0].fit(**rows_of(rows), batch_size=rows, verbose=0)

    step = compile_step(step_of(train, devices_of(place), "benchmarks/shards_compiled.py"), place)

    def on_a_device(variables: list[Any]) -> int:
        return sum(v.value.nbytes // (1 if shard_axis(v) is None else place.devices) for v in variables)

    weights, slots = (on_a_device(each.variables) for each in (models[0], models[0].optimizer))
    assert step.bytes is not None
    assert 0 <= step.bytes.state - weights - slots <= SLACK, "the step has other arguments than weights and slots"
    return step, weights, slots


def row(stage: str | None, found: tuple[CompiledStep, int, int], whole: tuple[CompiledStep, int, int]) -> str:
    """Return a line of the table."""
    step, weights, slots = found
    assert step.bytes is not None
    assert step.schedule is not None
    assert whole[0].bytes is not None
    times: Counter[str] = Counter()
    crossing: Counter[str] = Counter()
    for each in step.schedule.collectives:
        times[each.kind] += each.times
        crossing[each.kind] += each.nbytes * each.times
    ratio = (step.bytes.state + step.bytes.temporary) / (whole[0].bytes.state + whole[0].bytes.temporary)
    cells = [
        str(step.place),
        f'`"{stage}"`' if stage else "none",
        size(weights),
        f"{size(slots)}, {step.devices * slots / whole[2] if stage else 1:.1%}",
        size(step.bytes.temporary),
        f"{ratio:.2f}",
        ", ".join(f"{times[kind]} {kind}: {size(crossing[kind])}" for kind in times),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="*", default=PLACES, metavar="PLACE", help=f"[default: {' '.join(PLACES)}]")
    parser.add_argument("--min-size", type=int, default=MIN_SIZE, help="shard_min_size of the strategy")
    arguments = parser.parse_args()
    columns = ("devices", "`shard=`", "weights", "slots", "temporary", "ratio", "collectives, bytes that they make")
    print(f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|", sep="\n")
    for place in map(place_of, arguments.places):
        whole = step_for(place, None, arguments.min_size)
        for stage in STAGES:
            found = step_for(place, stage, arguments.min_size) if stage else whole
            print(row(stage, found, whole), flush=True)


if __name__ == "__main__":
    main()
