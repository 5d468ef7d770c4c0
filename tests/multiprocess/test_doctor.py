"""`stratagem doctor` on two real workers, and on a task that stands alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stratagem.doctor import __main__ as doctor
from stratagem.launch.machine import free_ports
from stratagem.testing import run_workers

pytestmark = pytest.mark.multiprocess

PROGRAM = doctor.__file__ or ""

DATASETS = """
import numpy as np
from stratagem.data import AutoShardPolicy, Dataset, Options
def whole():
    return Dataset.from_tensor_slices(np.arange(40)).shuffle(40).batch(6)
def unshared():
    options = Options()
    options.experimental_distribute.auto_shard_policy = AutoShardPolicy.OFF
    return Dataset.from_tensor_slices(np.arange(40)).batch(6).with_options(options)
def shuffled_by_hand():
    def rows():
        yield from np.random.permutation(40)
    return Dataset.from_generator(rows).batch(6)
"""


def rows(output: str) -> dict[str, tuple[str, str]]:
    lines = re.findall(r"^(\S+) +(ok|warn|FAIL) +(.*)$", output, re.MULTILINE)
    return {check: (verdict, found) for check, verdict, found in lines}


def test_two_workers(tmp_path: Path) -> None:
    (tmp_path / "their_data.py").write_text(DATASETS)
    arguments = ["--backup-dir", tmp_path / "backup", "--dataset", "their_data:whole"]
    chief, other = run_workers(PROGRAM, 2, args=arguments, env={"PYTHONPATH": f"{tmp_path}:{pythonpath()}"})

    found = rows(chief.output)
    assert list(found) == [
        "cluster",
        "names",
        "meeting",
        "versions",
        "devices",
        "clocks",
        "backup",
        "all-reduce",
        "dataset",
        "sharding",
        "examples",
        "determinism",
        "shares",
        "steps",
        "resume",
    ]
    assert {verdict for check, (verdict, _) in found.items() if check != "all-reduce"} == {"ok"}, chief.output
    assert found["meeting"][1].startswith("2 tasks met: worker 0 (host ")
    assert found["dataset"][1] == "each of 40 examples once (shares: 20, 20)"
    assert found["shares"][1] == "at each step the workers' rows are the global batch (20 + 20 rows)"
    assert re.match(r"\d+\.\d ms for one value, \d+\.\d\d GiB/s for 16 MiB", found["all-reduce"][1])
    assert "check" not in other.output


def test_data_that_every_worker_reads_whole(tmp_path: Path) -> None:
    (tmp_path / "their_data.py").write_text(DATASETS)
    environment = {"PYTHONPATH": f"{tmp_path}:{pythonpath()}"}
    results = run_workers(PROGRAM, 2, args=["--dataset", "their_data:unshared"], env=environment, check=False)

    assert [result.returncode for result in results] == [1, 1]
    verdict, found = rows(results[0].output)["dataset"]
    assert (verdict, found) == ("FAIL", "40 examples, and the workers read 80 (shares: 40, 40)")
    assert "-> Some examples are read twice or never." in results[0].output


def test_one_command_proves_a_dataset_of_a_file(tmp_path: Path) -> None:
    """Without a cluster: as two workers would read it. The mistake is named with its repair, and the exit code is 1."""
    file = tmp_path / "their_data.py"
    file.write_text(DATASETS)
    command = [sys.executable, "-m", "stratagem", "doctor", "--dataset", f"{file}:shuffled_by_hand"]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    found = rows(done.stdout)
    assert found["determinism"][0] == "FAIL"
    assert found["determinism"][1].startswith("a second pass gives the same examples in another order, from step ")
    assert found["examples"] == ("ok", "40 in 7 batches")
    assert "-> Make the random generator again for each pass, with the same seed:" in done.stdout


@pytest.mark.parametrize(
    ("addresses", "check", "said"),
    [
        (["127.0.0.1:1x", "127.0.0.1:2"], "cluster", "'127.0.0.1:1x' is not an address"),
        (["host.invalid:1", "127.0.0.1:2"], "names", "cannot look up worker 0 (host.invalid)"),
        (["127.0.0.1:{port}", "127.0.0.1:2"], "meeting", "could not start with worker 0"),
    ],
)
def test_a_task_that_cannot_meet_the_others(addresses: list[str], check: str, said: str) -> None:
    (port,) = free_ports(1)
    cluster = {"worker": [address.format(port=port) for address in addresses]}
    config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 1}})
    done = subprocess.run(
        [sys.executable, "-m", "stratagem.doctor", "--timeout", "1"],
        env={**os.environ, "TF_CONFIG": config},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    verdict, found = rows(done.stdout)[check]
    assert (verdict, said in found) == ("FAIL", True), done.stdout


def pythonpath() -> str:
    return os.environ.get("PYTHONPATH", "")


def test_command_shows_one_table_and_tells_by_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = subprocess.run(
        [sys.executable, "-m", "stratagem", "doctor", "--workers", "2", "--backup-dir", str(tmp_path / "file" / "b")],
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    found = rows(done.stdout.replace("[worker 0] ", ""))
    assert found["backup"][0] == "FAIL"
    assert {verdict for check, (verdict, _) in found.items() if check not in ("backup", "all-reduce")} == {"ok"}
    assert (done.stdout + done.stderr).count("cannot write to") == 1
