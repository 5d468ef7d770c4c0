"""Compiled programs that `stratagem run` keeps: loaded in the next run, which computes the same numbers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.multiprocess

PROGRAM = """
import hashlib, json, os, signal, sys
import jax, keras, numpy as np
import stratagem

seen = {"found": 0, "asked": 0}


def count(event, **_):
    if event.endswith(("/cache_hits", "/compile_requests_use_cache")):
        seen["found" if event.endswith("/cache_hits") else "asked"] += 1


def die_in_the_middle_of(program):
    if os.environ["STRATAGEM_GENERATION"] == "1" and program in sys.argv:
        from jax._src import path

        write = path.Path.write_bytes

        def half(self, data):
            if self.name.startswith(program):
                write(self, data[: len(data) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return write(self, data)

        path.Path.write_bytes = half


jax.monitoring.register_event_listener(count)
die_in_the_middle_of("jit__lambda")
strategy = stratagem.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(3)
with strategy.scope():
    model = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dropout(0.2), keras.layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
rows = np.random.default_rng(5).normal(size=(64, 4)).astype("float32")
history = model.fit(rows, rows[:, :1], batch_size=16, epochs=2, verbose=0)
predicted = model.predict(rows, batch_size=16, verbose=0)
bits = b"".join(np.asarray(weight).tobytes() for weight in [*model.get_weights(), predicted])
print("RESULT", json.dumps(seen | {"bits": hashlib.sha256(bits).hexdigest(), "history": history.history}), flush=True)
"""


def run(folder: Path, *options: str, arguments: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Run the program on two workers; return what each of them saw. A warning is an error there."""
    script = folder / "train.py"
    script.write_text(PROGRAM)
    launcher = [sys.executable, "-m", "stratagem", "run", "--workers", "2", *options, str(script), *arguments]
    variables = {
        **os.environ,
        "XDG_CACHE_HOME": str(folder / "cache"),
        "JAX_ENABLE_COMPILATION_CACHE": "true",
        "JAX_PLATFORMS": "cpu",
        "PYTHONWARNINGS": "error:Error reading persistent:UserWarning,error:Error writing persistent:UserWarning",
    }
    ended = subprocess.run(launcher, env=variables, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "AOT" not in ended.stdout, ended.stdout  # XLA's doubts about the processor
    results = dict(re.findall(r"\[(worker \d)\] RESULT (.*)", ended.stdout))
    return [json.loads(results[f"worker {index}"]) for index in (0, 1)]


def numbers(results: list[dict[str, Any]]) -> list[tuple[object, object]]:
    return [(result["bits"], result["history"]) for result in results]


@pytest.mark.parametrize("devices", [pytest.param(1, id="through memory"), pytest.param(2, id="through Gloo")])
def test_a_second_run_loads_what_the_first_compiled_and_computes_the_same(tmp_path: Path, devices: int) -> None:
    first, second = (run(tmp_path, "--devices-per-worker", str(devices)) for _ in range(2))

    assert [result["found"] for result in first] == [0, 0]
    for result in second:
        assert result["found"] == result["asked"] > 0
    assert numbers(second) == numbers(first)
    assert numbers(first)[0] == numbers(first)[1]


def test_a_worker_that_dies_while_it_writes_leaves_nothing_that_harms(tmp_path: Path) -> None:
    died = run(tmp_path, "--max-restarts", "1", arguments=("jit__lambda",))
    whole = run(tmp_path)

    assert died[0]["found"] > 0  # what was written before
    assert died[0]["found"] < died[0]["asked"]  # not the half one
    assert whole[0]["found"] == whole[0]["asked"]
    assert numbers(died) == numbers(whole)


def test_without_it_nothing_is_kept(tmp_path: Path) -> None:
    results = run(tmp_path, "--no-compilation-cache")

    assert [result["asked"] for result in results] == [0, 0]
    assert not (tmp_path / "cache").exists()
