"""Table of the steps that `test_described.py` compiles: what crosses between devices, by arithmetic and as compiled.

    KERAS_BACKEND=jax python -m tests.conformance.compiled_table [PLACE ...]

It is printed as Markdown, for docs/hardware.md. A place whose compiler is not installed is left out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.conformance.described import LARGE, MODELS, STRATEGIES, adversarial, dense, fit

from stratagem import MirroredStrategy
from stratagem.plan import compat
from stratagem.plan.compiled_step import CompiledStep, compile_step
from stratagem.plan.first_step import step_of
from stratagem.plan.place import Place, place_of
from stratagem.plan.settings import SETTINGS
from stratagem.plan.topology import devices_of
from stratagem.testing import virtual_devices

PLACES: Final = ("cpu:4", "tpu:v5e:2x2", "h100:8", "2x4xh100")

_GPUS: Final = PLACES[2:]
"""Where the large models are compiled."""


def steps() -> Mapping[str, Mapping[str, Callable[[], Any]]]:
    """Return what is trained, by the strategy, for each model."""
    kinds: dict[str, dict[str, Callable[[], Any]]] = {}
    for name, model in {**MODELS, **LARGE}.items():
        kinds[name] = {key: lambda model=model, make=make: fit(model, make()) for key, make in STRATEGIES.items()}
    kinds["an uneven batch"] = {"mirrored": lambda: fit(dense, MirroredStrategy(), uneven=True)}
    kinds["three steps at once"] = {"mirrored": lambda: fit(dense, MirroredStrategy(), steps=3)}
    kinds["two networks in a loop"] = {"mirrored": lambda: adversarial(MirroredStrategy())}
    return kinds


def cell(step: CompiledStep) -> str:
    """Return what a table says of a step: sums, bytes, what of the variables is not reused, what crosses early."""
    assert step.schedule is not None
    assert step.bytes is not None
    sums = sum(each.times for each in step.schedule.collectives)
    said = [f"{sums}: {step.schedule.crossing:,}"]
    if step.bytes.reused < 0.98 * step.bytes.state:
        said.append(f"{step.bytes.reused / step.bytes.state:.0%} reused")
    if step.schedule.beside_backward:
        said.append(f"{step.schedule.beside_backward:.0%} beside")
    return ", ".join(said)


def row(model: str, acts: Mapping[str, Callable[[], Any]], places: Mapping[str, Place]) -> list[str]:
    """Return the cells of a model: one for its gradients, and one for each place, which all strategies have alike."""
    gradients, cells = 0, []
    for name, place in places.items():
        if model in LARGE and name not in _GPUS:
            cells.append("")
            continue
        compiled = [compile_step(step_of(act, devices_of(place), model), place) for act in acts.values()]
        gradients = compiled[0].gradient_bytes
        said = list(map(cell, compiled))
        cells.append(said[0] if len(set(said)) == 1 else "; ".join(map(" ".join, zip(acts, said, strict=True))))
    return [f"{gradients:,}", *cells]


def main(names: tuple[str, ...]) -> None:
    """Print the table for some places."""
    os.environ.update(SETTINGS)
    virtual_devices(4)
    found = {name: place_of(name) for name in names}
    places = {name: place for name, place in found.items() if _has_compiler(place.hardware.platform)}
    print("| | bytes of gradients |", " | ".join(places), "|")
    print("| --- " * (2 + len(places)) + "|")
    for model, acts in steps().items():
        print(f"| {model} |", " | ".join(row(model, acts, places)), "|", flush=True)


def _has_compiler(platform: str) -> bool:
    return platform == "cpu" or compat.has_compiler(platform)


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or PLACES)
