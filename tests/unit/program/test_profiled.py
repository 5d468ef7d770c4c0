from __future__ import annotations

import gzip
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from stratagem.core.progress import Phase, Progress
from stratagem.insight.profiles import ProfiledSteps, join_traces
from stratagem.program import profiled
from stratagem.program.profiled import record_steps


def _variables(steps: ProfiledSteps, task: str) -> dict[str, str]:
    return {"STRATAGEM_PROFILE": steps.written(), "STRATAGEM_COUNTERS_FILE": f"/tmp/logs/{task}.counters"}


def test_the_steps_that_are_asked_for_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = []
    monkeypatch.setattr(profiled.atexit, "register", ends.append)
    steps, counts = ProfiledSteps(2, 3, tmp_path), Progress()
    record_steps(_variables(steps, "worker-1"), counts)
    record_steps(_variables(steps, "worker-1"), counts)
    assert len(ends) == 1
    for step in range(1, 6):
        with counts.during(Phase.STEP, steps=1), jax.profiler.TraceAnnotation(f"step {step}"):
            jnp.ones(3).block_until_ready()
    ends[0]()
    assert sorted(path.name for path in steps.run_folder.iterdir()) == [
        "worker-1.began",
        "worker-1.trace.json.gz",
        "worker-1.xplane.pb",
    ]
    joined = join_traces(steps)
    assert joined is not None
    with gzip.open(joined, "rt") as file:
        names = [event.get("name", "") for event in json.load(file)["traceEvents"]]
    assert [name for name in names if name.startswith("step ")] == ["step 2", "step 3"]


def test_a_program_that_ends_early_has_its_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = []
    monkeypatch.setattr(profiled.atexit, "register", ends.append)
    steps, counts = ProfiledSteps(1, 30, tmp_path), Progress()
    record_steps(_variables(steps, "worker-0"), counts)
    with counts.during(Phase.STEP, steps=1):
        jnp.ones(3).block_until_ready()
    ends[0]()
    assert steps.trace_of("worker-0").exists()


def test_nothing_is_recorded_where_nobody_asks() -> None:
    counts = Progress()
    record_steps({}, counts)
    assert counts.behind_step is None
