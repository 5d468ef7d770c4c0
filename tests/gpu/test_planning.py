"""What `stratagem plan --on` says of the memory of one device, beside what the device says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import jax
import pytest
from tests.gpu.conftest import kind

from stratagem.core import environment
from stratagem.core.gpus import chosen_gpus
from stratagem.plan.hardware import KNOWN

pytestmark = [pytest.mark.gpu, pytest.mark.multiprocess]

PROGRAM: Final = """
import json
import sys
import jax
import numpy as np
import stratagem
from stratagem import keras

width, rows = map(int, sys.argv[1:])
strategy = stratagem.MirroredStrategy()
with strategy.scope():
    layers = [keras.layers.Dense(width, activation="relu") for _ in range(8)]
    model = keras.Sequential([keras.Input((16,)), *layers, keras.layers.Dense(1)])
    model.compile("adam", "mse")
x = np.ones((rows, 16), np.float32)
model.fit(x, np.ones((rows, 1), np.float32), batch_size=rows, epochs=3, verbose=0)
statistics = strategy.mesh.devices[0].memory_stats()
live = {id(array): array.nbytes for array in jax.live_arrays()}
print(json.dumps({"replicas": strategy.num_replicas_in_sync, "live": sum(live.values()), "statistics": statistics}))
"""

SIZES: Final = {"gpu": ("2048", "16384"), "cpu": ("256", "64")}
"""Units of a layer and rows. On a GPU the step takes more than a GB, so that what else takes memory there (a batch
ahead, what XLA tries before it chooses kernels) is little beside it."""

TOLERANCE: Final = 0.1


def answer_of(folder: Path, *command: str, **variables: str) -> dict[str, Any]:
    (folder / "train.py").write_text(PROGRAM)
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**env, **variables},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def name_of_this_device() -> str:
    """Return the device as `--on` names it."""
    if kind() == "cpu":
        return "cpu"
    title = jax.local_devices(backend="gpu")[0].device_kind
    known = [name for name, hardware in KNOWN.items() if hardware.title.startswith(title)]
    if not known:
        pytest.skip(f"{title} is none of the devices that stratagem plan knows")
    return known[0]


def test_bytes_of_a_step_are_those_of_the_device(tmp_path: Path) -> None:
    """On a GPU: the most that was in use is what the plan has together, and what is in use between steps its variables.

    A CPU device counts no memory. There the plan's variables (weights, two moments of Adam's, metrics, seeds) are
    compared with the bytes of all arrays that are alive after `fit`, and the rest of the plan with nothing.
    """
    on, sizes = name_of_this_device(), SIZES[kind()]
    plan = answer_of(tmp_path, "-m", "stratagem", "plan", "train.py", "--on", f"{on}:1", "--json", "--", *sizes)
    one = (chosen_gpus(os.environ) or ["0"])[0]
    of_gpu = {environment.CUDA_VISIBLE_DEVICES: one, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    variables = of_gpu if kind() == "gpu" else {environment.NUM_CPU_DEVICES: "1"}
    run = answer_of(tmp_path, "train.py", *sizes, **variables)
    assert (plan["devices"], run["replicas"]) == (1, 1)
    expected, statistics = plan["bytes"], run["statistics"]
    width = int(sizes[0])
    weights = 4 * (17 * width + 7 * (width + 1) * width + width + 1)
    assert expected["state"] == pytest.approx(3 * weights, rel=0.01)
    assert run["live"] == pytest.approx(expected["state"], rel=TOLERANCE)
    if kind() == "cpu":
        assert statistics is None
        return
    assert statistics["bytes_in_use"] == pytest.approx(expected["state"], rel=TOLERANCE)
    assert statistics["peak_bytes_in_use"] == pytest.approx(expected["together"], rel=TOLERANCE)
