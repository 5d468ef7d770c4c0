"""The batch script: options that sbatch has, and what it does with the exit codes of its tasks."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from stratagem.manifest.asked import Asked
from stratagem.manifest.slurm import write

OPTIONS = (
    "cpus-per-task", "gpus-per-node", "job-name", "mem", "nodes", "ntasks-per-node", "open-mode", "output", "requeue",
    "signal",
)  # fmt: skip
"""Options of sbatch that scripts may have (https://slurm.schedmd.com/sbatch.html)."""

SRUN = """#!/bin/bash
while [ "$1" != bash ]; do shift; done
highest=0
for SLURM_PROCID in 0 1; do
    export SLURM_PROCID
    "$@" || { code=$?; [ "$code" -le "$highest" ] || highest=$code; }
done
exit "$highest"
"""
"""Runs two tasks one after the other, and ends with the highest code, as srun does."""


def script(folder: Path, **more: object) -> Path:
    file = folder / "train.sbatch"
    file.write_text(
        write(Asked(**{"program": ("train.py",), "name": "train", "storage": str(folder / "shared"), **more}))
    )
    return file


def end(file: Path, codes: str, starts: int = 0) -> tuple[int, list[str], list[str]]:
    """Run a script whose tasks end with these codes; return its own, what was asked of scontrol, and files left."""
    folder = file.parent
    stubs = folder / "bin"
    stubs.mkdir(exist_ok=True)
    asked = folder / "scontrol"
    python = f'read -ra codes <<< "{codes}"; exit "${{codes[$SLURM_PROCID]}}"'
    bodies = {"srun": SRUN, "scontrol": f'#!/bin/bash\necho "$@" >> {asked}\n', "python": f"#!/bin/bash\n{python}\n"}
    for name, body in bodies.items():
        (stubs / name).write_text(body)
        (stubs / name).chmod(0o755)
    variables = {
        "PATH": f"{stubs}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "SLURM_JOB_ID": "17",
        "SLURM_RESTART_COUNT": str(starts),
    }
    done = subprocess.run(["bash", str(file)], env=variables, check=False, capture_output=True, text=True)
    assert done.stderr == ""
    asks = asked.read_text().splitlines() if asked.exists() else []
    left = sorted(path.name for path in (folder / "shared").iterdir() if path.name != "compiled")
    return done.returncode, asks, left


@pytest.mark.parametrize("more", [{}, {"workers": 8, "workers_per_node": 4, "gpus": 1, "cpus": 4, "memory": "8Gi"}])
def test_options_are_sbatch_s_and_the_shell_reads_the_script(more: dict[str, object], tmp_path: Path) -> None:
    file = script(tmp_path, **more)
    found = re.findall("^#SBATCH --([a-z-]+)(?:=(\\S+))?$", file.read_text(), re.MULTILINE)
    assert len(found) == file.read_text().count("#SBATCH")
    assert {name for name, _ in found} <= set(OPTIONS)
    subprocess.run(["bash", "-n", str(file)], check=True)
    if more:
        options = dict(found)
        assert (options["nodes"], options["ntasks-per-node"], options["gpus-per-node"]) == ("2", "4", "4")
        assert (options["cpus-per-task"], options["mem"], options["signal"]) == ("4", "32G", "TERM@120")


@pytest.mark.parametrize(
    ("codes", "starts", "expected", "again"),
    [
        ("0 0", 0, 0, False),
        ("42 42", 9, 42, True),  # preempted: it does not count
        ("137 43", 0, 137, True),  # killed, and the one that lost it
        ("43 43", 2, 43, True),
        ("44 43", 3, 44, False),  # often enough
        ("1 43", 0, 1, False),  # an exception of the program, though srun tells of the other
        ("2 43", 0, 1, False),
        ("1 1", 0, 1, False),
    ],
)
def test_a_job_starts_itself_again_by_the_codes_of_its_tasks(
    codes: str, starts: int, expected: int, again: bool, tmp_path: Path
) -> None:
    code, asked, left = end(script(tmp_path), codes, starts)
    assert (code, asked) == (expected, ["requeue 17"] if again else [])
    assert left == (["secret-17"] if again else [])


def test_a_job_that_starts_again_has_the_same_secret_for_the_user_alone(tmp_path: Path) -> None:
    file = script(tmp_path)
    end(file, "43 43")
    secret = tmp_path / "shared" / "secret-17"
    first = secret.read_text()
    assert re.fullmatch("[0-9a-f]{64}", first)
    assert secret.stat().st_mode & 0o777 == 0o600
    end(file, "43 43", 1)
    assert secret.read_text() == first


def test_an_image_is_one_for_pyxis(tmp_path: Path) -> None:
    text = script(tmp_path, image="registry/train:1", port=999).read_text()
    assert '--container-image=registry/train:1 --container-mounts="$folder" \\\n' in text
    assert "export STRATAGEM_PORT=999\n" in text
