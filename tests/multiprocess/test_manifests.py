"""Each kind of manifest, in an imitation of its platform: two machines with two replicas each train to the end."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import machines, platforms
from tests.machines import Ended, Machine
from tests.networks import why_there_are_none

from stratagem.core import exits
from stratagem.manifest.asked import Asked
from stratagem.manifest.kinds import manifest
from stratagem.migrate.manifests import convert_file

pytestmark = pytest.mark.multiprocess

PROGRAM = Path(__file__).with_name("trains_on_a_cluster.py")
WITH_SERVERS = Path(__file__).with_name("trains_with_servers_on_a_cluster.py")
ROOT = Path(__file__).parents[2]

PLATFORMS: dict[str, Callable[[str], list[Machine]]] = {
    "indexed-job": platforms.indexed_job,
    "jobset": platforms.jobset,
    "trainjob": platforms.trainjob,
    "sagemaker": platforms.sagemaker,
    "compose": platforms.compose,
}

ADDRESSES = {
    "indexed-job": ["train-0.train:4321", "train-1.train:4321"],
    "jobset": ["train-worker-0-0.train:4321", "train-worker-0-1.train:4321"],
    "trainjob": ["train-node-0-0.train:6666", "rank-1:6666"],
    "sagemaker": ["algo-1:4321", "algo-2:4321"],
    "compose": ["worker-0:4321", "worker-1:4321"],
}


@pytest.fixture(autouse=True, scope="module")
def _machines() -> None:
    if why_not := why_there_are_none():
        pytest.skip(why_not)


def variables(home: Path, **more: str) -> dict[str, str]:
    """What the image has: Python, Stratagem, and CPUs in place of the GPUs of a machine."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    packages = os.pathsep.join([str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PATH": path, "PYTHONPATH": packages, "HOME": str(home), "JAX_PLATFORMS": "cpu", **more}


def told(ends: list[list[Ended]]) -> list[dict[str, Any]]:
    """Return what the tasks say when they have ended well."""
    tasks = [task for machine in ends for task in machine]
    for task in tasks:
        assert task.code == 0, task.output
    return [json.loads(task.output.splitlines()[-1]) for task in tasks]


def check_equal(results: list[dict[str, Any]]) -> None:
    assert [result["task"] for result in results] == [["worker", index] for index in range(len(results))]
    assert {result["replicas"] for result in results} == {4}
    assert all(result["secret"] and result["arguments"] == ["--epochs", "2"] for result in results)
    first = results[0]
    assert first["loss"][1] < first["loss"][0]
    assert [(result["loss"], result["weights"]) for result in results] == [(first["loss"], first["weights"])] * len(
        results
    )


@pytest.mark.parametrize("kind", PLATFORMS)
def test_two_machines_with_two_devices_each_train_to_the_end(kind: str, tmp_path: Path) -> None:
    port = None if kind == "trainjob" else 4321  # Trainer chooses its own
    asked = Asked((str(PROGRAM), "--epochs", "2"), "train", image="registry/train:1", workers=2, port=port)
    asked_for = PLATFORMS[kind](manifest(kind, asked))
    results = told(machines.run(asked_for, tmp_path, variables(tmp_path, JAX_NUM_CPU_DEVICES="2")))
    check_equal(results)
    assert {tuple(result["workers"]) for result in results} == {tuple(ADDRESSES[kind])}


def test_two_nodes_of_slurm_with_two_workers_each_train_to_the_end(tmp_path: Path) -> None:
    asked = Asked((str(PROGRAM), "--epochs", "2"), "train", workers=4, workers_per_node=2)
    nodes = platforms.slurm(manifest("slurm", asked), tmp_path)
    results = told(machines.run(nodes, tmp_path, variables(tmp_path)))
    check_equal(results)
    assert results[3]["workers"] == ["node0:24711", "node0:24712", "node1:24711", "node1:24712"]
    compiled = {path.parent.name for path in (tmp_path / ".stratagem/train/compiled").glob("*/*-cache")}
    assert compiled == {f"task-{index}" for index in range(4)}


def test_an_exception_ends_a_pod_with_a_code_that_fails_the_job_and_the_other_with_one_that_does_not(
    tmp_path: Path,
) -> None:
    asked = Asked((str(PROGRAM), "--fail=1"), "train", image="registry/train:1", workers=2)
    text = manifest("indexed-job", asked)
    first, second = (ends[0] for ends in machines.run(platforms.indexed_job(text), tmp_path, variables(tmp_path)))
    assert (first.code, second.code) == (exits.PEER_LOST, exits.FAILED)
    assert "RuntimeError: as it was asked to" in second.output
    assert [platforms.action_for(text, code) for code in (first.code, second.code)] == ["Count", "FailJob"]


def test_a_tfjob_with_parameter_servers_trains_as_a_job_set(tmp_path: Path) -> None:
    """It has no chief, as most public ones: the job set has one."""
    pod = {
        "containers": [{"name": "tensorflow", "image": "registry/train:1", "command": ["python", str(WITH_SERVERS)]}]
    }
    tasks = {task: {"replicas": 1, "template": {"spec": pod}} for task in ("PS", "Worker")}
    job = {"kind": "TFJob", "metadata": {"name": "train"}, "spec": {"tfReplicaSpecs": tasks}}
    (tmp_path / "tfjob.yaml").write_text(json.dumps(job))
    text = convert_file(tmp_path / "tfjob.yaml", "jobset").text
    ends = machines.run(platforms.jobset(text), tmp_path, variables(tmp_path))
    assert [end.code for machine in ends for end in machine] == [0, 0, 0], ends
    result = json.loads(ends[0][0].output.splitlines()[-1])
    addresses = {task: [f"train-{task}-0-0.train:2222"] for task in ("chief", "worker", "ps")}
    assert result["cluster"] == addresses
    assert result["loss"][1] < result["loss"][0]
