"""Collectives of a step whose replicas have several devices: no more than by Keras's ModelParallel."""

from __future__ import annotations

import collections
import json
import math
import re
from pathlib import Path

import pytest
from tests.fresh import run_python

_COLLECTIVE = re.compile(r" = (.*?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(")
_ARRAY = re.compile(r"[a-z]+(\d+)\[([\d,]*)\]")


def collectives(folder: Path) -> tuple[dict[str, int], int]:
    """Return how many collectives of each kind the largest program has, and the bytes of their results."""
    text = max(folder.glob("*cpu_after_optimizations.txt"), key=lambda path: path.stat().st_size).read_text()
    found = _COLLECTIVE.findall(text)
    sizes = [
        int(bits) // 8 * math.prod(int(size) for size in shape.split(",") if size)
        for made, _ in found
        for bits, shape in _ARRAY.findall(made)
    ]
    return dict(collections.Counter(kind for _, kind in found)), sum(sizes)


@pytest.mark.thorough
def test_a_gpt_needs_no_more_collectives_than_by_keras(tmp_path: Path) -> None:
    found, losses = {}, {}
    for whose in ("ours", "keras"):
        folder = tmp_path / whose
        program = Path(__file__).with_name("collectives_of_gpt.py")
        flags = f"--xla_force_host_platform_device_count=4 --xla_dump_to={folder} --xla_dump_hlo_as_text"
        variables = {"KERAS_BACKEND": "jax", "XLA_FLAGS": f"{flags} --xla_dump_hlo_pass_re=NOTHING"}
        done = run_python(str(program), whose, home=tmp_path, variables=variables)
        assert done.returncode == 0, done.stderr
        losses[whose] = json.loads(done.stdout.splitlines()[-1])
        found[whose] = collectives(folder)
    kinds, size = found["ours"]
    assert sum(kinds.values()) > 0
    assert sum(kinds.values()) <= sum(found["keras"][0].values()), found
    assert size <= found["keras"][1] + 4, (
        found
    )  # the loss crosses with its rows, so that uneven batches have their mean
    assert losses["ours"] == pytest.approx(losses["keras"], rel=1e-5)
