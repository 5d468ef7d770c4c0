"""`stratagem plan` as a command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import keras
import pytest
from click.testing import CliRunner, Result

from stratagem.plan.__main__ import main
from stratagem.plan.compat import has_compiler


def planned(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_table_verdict_and_advice() -> None:
    # 2 workers on a host: memory. 4 on 2 hosts: two levels. At 1 GB/s and nothing else 100 MB take 2 x 1/2 x 100 ms
    # between hosts; three passes of 0.1 ns a byte and two meetings in memory take 30.1 ms.
    options = ["--workers", "4,2", "--per-host", "2", "--network", "1GB/s,0us", "--overlap", "0"]
    result = planned("--bytes", "100000000", "--step-ms", "300", *options)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0] == "100.0 MB of gradients; a step of one worker alone takes 300.0 ms, give or take 2.0%."
    two, four = (re.split("  +", line.strip()) for line in lines[3:5])
    assert two[:4] == ["2", "1", "memory", "300.0"]
    # 2% of 300 ms, times the expected maximum of 2 and 4 normal values, 0.564 and 1.029. 300 / 436.3 = 69%.
    assert two[4] == "3.4"
    assert four[:8] == ["4", "2", "two levels", "300.0", "6.2", "130.1", "436.3", "69%"]
    assert all(len(line) <= 100 for line in lines)
    said = "At 4 workers on 1GB/s,0us expect 69% efficiency: communication-bound, by bytes."
    assert any(line.startswith(said) for line in lines)
    assert re.search(r"^Try, with the efficiency to expect:\n +\d\d%  ", result.output, re.M)


def test_the_network_is_hidden_beside_the_backward_pass() -> None:
    options = [
        "--bytes",
        "100000000",
        "--step-ms",
        "300",
        "--workers",
        "4",
        "--per-host",
        "2",
        "--network",
        "1GB/s,0us",
    ]
    (four,) = (line for line in planned(*options).output.splitlines() if line.startswith("      4"))
    # Of 130.1 ms two thirds of 300 hide the 100 on the wire; what the cores copy and add stays.
    assert re.split("  +", four.strip())[5] == "30.1"


def test_parameters_are_of_float32() -> None:
    result = planned("--parameters", "2500000", "--step-ms", "50")
    assert result.output.startswith("10.0 MB of gradients;")
    assert [line.split()[0] for line in result.output.splitlines()[3:8]] == ["2", "4", "8", "16", "32"]


def test_widest_table_has_100_columns() -> None:
    result = planned("--bytes", "99999999999", "--step-ms", "99999", "--workers", "1024,100000", "--network", "1gbe")
    assert max(map(len, result.output.splitlines())) <= 100


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("--step-ms", "5"), "MODEL, --parameters or --bytes is missing."),
        (("--bytes", "5"), "MODEL or --step-ms is missing."),
        (("--bytes", "5", "--step-ms", "5", "--workers", "2,x"), "--workers is '2,x'."),
        (("--bytes", "5", "--step-ms", "5", "--workers", "0"), "--workers is '0'."),
        (("--bytes", "5", "--step-ms", "5", "--network", "token"), "--network is 'token'."),
        (("missing.keras",), "MODEL missing.keras: no such file."),
        (("train.py",), "MODEL train.py was given without --on."),
        (("--json", "--bytes", "5", "--step-ms", "5"), "--json was given without --on."),
        (("--on", "h100:8"), "--on is 'h100:8', but no program or model is named."),
        (("train.py", "--on", "h101:8"), "--on is 'h101:8': h101 is not known; h100 is."),
        (("train.py", "--on", "h100:8", "--workers", "4"), "--workers was given with --on."),
        (("train.py", "--on", "h100:8", "--batch", "64"), "--batch was given with --on."),
        (("train.py:net", "--on", "h100:8", "--bytes", "9"), "--bytes was given with --on."),
    ],
)
def test_mistakes_are_explained(arguments: tuple[str, ...], found: str) -> None:
    result = planned(*arguments)
    assert result.exit_code == 2
    assert result.output.startswith(f"stratagem: {found}")
    assert "What to do: " in result.output


@pytest.mark.thorough
def test_a_model_is_measured(tmp_path: Path) -> None:
    inputs = keras.Input((8,))
    keras.Model(inputs, keras.layers.Dense(4)(inputs)).save(tmp_path / "model.keras")
    command = [
        sys.executable,
        "-m",
        "stratagem",
        "plan",
        str(tmp_path / "model.keras"),
        "--batch",
        "4",
        "--workers",
        "2",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert re.match(r"0\.0 MB of gradients; a step of one worker alone takes \d+\.\d ms", done.stdout)
    assert re.search(r"^At 2 workers on 10gbe expect \d+% efficiency", done.stdout, re.M)


PROGRAM = """
import sys
import numpy as np
import stratagem
from stratagem import keras

strategy = stratagem.MirroredStrategy()
print("replicas", strategy.num_replicas_in_sync)
with strategy.scope():
    model = keras.Sequential([keras.Input((100,)), keras.layers.Dense(int(sys.argv[1]))])
    model.compile("adam", "mse")
x = np.zeros((32, 100), np.float32)
model.fit(x, np.zeros((32, int(sys.argv[1])), np.float32), batch_size=32, epochs=1000)
print("trained")
"""


def run_plan(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as users do: no device is described to this process before."""
    (folder / "train.py").write_text(PROGRAM)
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, "-m", "stratagem", "plan", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=150, check=False
    )


@pytest.mark.multiprocess
def test_a_program_is_planned_for_devices_that_are_not_here(tmp_path: Path) -> None:
    done = run_plan(tmp_path, "train.py", "--on", "cpu:4", "--json", "--", "300")
    assert done.returncode == 0, done.stderr
    assert "replicas 4" in done.stderr  # what the program prints is not part of the answer
    assert "trained" not in done.stderr
    answer = json.loads(done.stdout)
    gradients = (100 * 300 + 300) * 4
    assert answer["gradient_bytes"] == gradients
    assert gradients <= answer["collective_bytes"] < gradients + 100
    assert answer["bytes"]["batch"] == 8 * (100 + 300) * 4
    # Weights, two moments each, and few numbers more; all of them are reused.
    assert 3 * gradients <= answer["bytes"]["state"] < 3 * gradients + 100
    assert answer["bytes"]["reused"] >= 3 * gradients
    assert answer["operations"] == {"float32": 2 * 2 * 8 * 100 * 300}  # no gradient of the rows is needed
    assert (answer["devices"], answer["fits"], answer["host_calls"]) == (4, True, 0)


OF_SEVERAL_WORKERS = """
import json
import os
import numpy as np
import stratagem.tf as tf

workers = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
strategy = tf.distribute.MultiWorkerMirroredStrategy()
resolver = strategy.cluster_resolver
print("workers", workers, "replicas", strategy.num_replicas_in_sync, resolver.task_type, resolver.task_id)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((100,)), tf.keras.layers.Dense(3)])
    model.compile("adam", "mse")
rows = 16 * workers
model.fit(np.zeros((rows, 100), np.float32), np.zeros((rows, 3), np.float32), batch_size=rows)
"""


@pytest.mark.multiprocess
def test_a_program_that_counts_its_workers_finds_one_on_each_host(tmp_path: Path) -> None:
    (tmp_path / "workers.py").write_text(OF_SEVERAL_WORKERS)
    done = run_plan(tmp_path, "workers.py", "--on", "2x2xcpu", "--json")
    assert done.returncode == 0, done.stderr
    assert "workers 2 replicas 4 worker 0" in done.stderr
    answer = json.loads(done.stdout)
    assert (answer["devices"], answer["bytes"]["batch"]) == (4, 8 * (100 + 3) * 4)


def write_model(folder: Path, layers: str) -> None:
    (folder / "nets.py").write_text(
        f"from stratagem import keras\n\ndef net():\n    return keras.Sequential([{layers}])\n"
    )


def needs_compiler(platform: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not has_compiler(platform), reason=f"the compiler for {platform} is not installed")


@pytest.mark.multiprocess
@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("missing.py", "--on", "cpu:2"), "There is no file missing.py."),
        (("missing.py:net", "--on", "cpu:2"), "MODEL missing.py:net: there is no file"),
        (("train.py", "--on", "cpu:2"), "IndexError: list index out of range"),
        pytest.param(
            ("train.py", "--on", "tpu:v5e:3x5", "--", "8"),
            "XLA's compiler cannot describe 15 x TPU v5e (3x5)",
            marks=needs_compiler("tpu"),
            id="tpu",
        ),
        pytest.param(
            ("train.py", "--on", "h100:2", "--", "8"),
            "XLA's compiler for NVIDIA H100 80GB HBM3 is not installed here.",
            marks=pytest.mark.skipif(has_compiler("gpu"), reason="the compiler for gpu is installed"),
            id="gpu",
        ),
    ],
)
def test_what_cannot_be_planned_is_explained(arguments: tuple[str, ...], found: str, tmp_path: Path) -> None:
    done = run_plan(tmp_path, *arguments)
    assert done.returncode != 0
    assert found in done.stderr
    assert done.stdout == ""


@pytest.mark.multiprocess
@needs_compiler("tpu")
def test_a_model_is_planned_for_tpus(tmp_path: Path) -> None:
    write_model(tmp_path, "keras.Input((64,)), keras.layers.Dense(512), keras.layers.Dense(8)")
    done = run_plan(tmp_path, "nets.py:net", "--batch", "16", "--on", "tpu:v5e:2x2")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "train_step of Sequential, for 4 x TPU v5e (2x2)"
    assert "fits: a device has 16.8 GB" in done.stdout
    gradients = f"{(64 * 512 + 512 + 512 * 8 + 8) * 4 / 1e3:.1f}"
    assert re.search(
        rf"^Exchange of a step: 1 all-reduce; .*, where the gradients are {gradients} kB", done.stdout, re.M
    )


@pytest.mark.multiprocess
@needs_compiler("tpu")
def test_what_does_not_fit_on_a_tpu_is_an_answer(tmp_path: Path) -> None:
    wide = "keras.layers.Dense(16384, activation='relu')"
    write_model(tmp_path, f"keras.Input((16,)), {wide}, {wide}, {wide}, keras.layers.Dense(1)")
    done = run_plan(tmp_path, "nets.py:net", "--batch", "100000", "--on", "v5e:1")
    assert done.returncode == 0, done.stderr
    # Activations of 100,000 rows and 16,384 units take 6.6 GB, and there are at least three at once; weights and two
    # moments of 537 million numbers take 6.4 GB.
    found = re.search(r"It does not fit: it needs (\d+\.\d) GB on a device, which has 16\.8 GB\.", done.stdout)
    assert found is not None, done.stdout
    assert 3 * 6.55 + 6.44 < float(found[1]) < 5 * 6.55 + 6.44
    assert '  keras.config.set_dtype_policy("mixed_bfloat16")' in done.stdout
