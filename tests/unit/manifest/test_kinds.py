"""Every kind, with many of the options: valid, and with what was asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests import platforms
from tests.machines import Machine
from tests.schemas import faults, kubernetes_documents

from stratagem.core.errors import InputError
from stratagem.manifest.asked import Asked
from stratagem.manifest.kinds import KINDS, manifest

PODS = ("indexed-job", "jobset", "trainjob")


def asked(**more: Any) -> Asked:
    return Asked(**{"program": ("train.py",), "name": "train", "image": "registry/train:1", **more})


def pods_of(text: str) -> list[dict[str, Any]]:
    """Return the specifications of the pods in a file."""
    found = []

    def look(value: Any) -> None:
        if isinstance(value, dict):
            found.extend([value] if "containers" in value else [])
            for entry in value.values():
                look(entry)
        elif isinstance(value, list):
            for entry in value:
                look(entry)

    look(list(yaml.safe_load_all(text)))
    return found


@pytest.mark.parametrize("kind", PODS)
def test_pods_get_what_was_asked_for(kind: str) -> None:
    text = manifest(kind, asked(gpus=2, cpus=8, memory="64Gi", namespace="ml", storage="shared", max_restarts=2))
    documents = kubernetes_documents(text)
    assert {document["metadata"]["namespace"] for document in documents} == {"ml"}
    (pod,) = pods_of(text)
    (container,) = pod["containers"]
    assert container["resources"] == {
        "requests": {"cpu": 8, "memory": "64Gi"},
        "limits": {"memory": "64Gi", "nvidia.com/gpu": 2},
    }
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts == {
        "stratagem-secret": "/run/secrets/stratagem",
        "storage": "/mnt/storage",
        "shared-memory": "/dev/shm",
    }
    assert [volume["name"] for volume in pod["volumes"]] == list(mounts)
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables["JAX_COMPILATION_CACHE_DIR"] == "/mnt/storage/compiled/worker-$(TASK_INDEX)"
    assert variables["STRATAGEM_OWN_PROGRAMS"] == variables["JAX_COMPILATION_CACHE_DIR"]
    assert "--namespace ml" in text.partition("apiVersion")[0]


@pytest.mark.parametrize("kind", PODS)
def test_pods_start_again_by_exit_code(kind: str) -> None:
    text = manifest(kind, asked(workers=3, max_restarts=2))
    (rules,) = [
        job["podFailurePolicy"]["rules"]
        for document in yaml.safe_load_all(text)
        for job in platforms.jobs_of(document)
        if job["backoffLimit"] == 6
    ]
    assert [(rule["action"], rule.get("onExitCodes", {}).get("values")) for rule in rules] == [
        ("Ignore", None),
        ("FailJob", [1, 2]),
        ("Ignore", [42]),
        ("Count", [43, 44]),
    ]
    (pod,) = pods_of(text)
    assert pod["restartPolicy"] == "Never"
    (container,) = pod["containers"]
    assert {rule["onExitCodes"]["containerName"] for rule in rules[1:]} == {container["name"]}


@pytest.mark.parametrize("kind", PODS)
def test_only_the_pods_of_a_job_reach_each_other(kind: str) -> None:
    documents = {document["kind"]: document for document in kubernetes_documents(manifest(kind, asked()))}
    spec = documents["NetworkPolicy"]["spec"]
    label = "batch.kubernetes.io/job-name" if kind == "indexed-job" else "jobset.sigs.k8s.io/jobset-name"
    assert spec["podSelector"] == {"matchLabels": {label: "train"}}
    assert spec["ingress"] == [{"from": [{"podSelector": spec["podSelector"]}]}]


@pytest.mark.parametrize(("kind", "imitate"), [("jobset", platforms.jobset), ("compose", platforms.compose)])
def test_all_types_of_tasks(kind: str, imitate: Any) -> None:
    machines: list[Machine] = imitate(manifest(kind, asked(workers=2, ps=1, evaluator=True, gpus=1, port=999)))
    configs = [json.loads(machine.tasks[0].variables["TF_CONFIG"]) for machine in machines]
    assert [(config["task"]["type"], config["task"]["index"]) for config in configs] == [
        ("chief", 0),
        ("worker", 0),
        ("worker", 1),
        ("ps", 0),
        ("evaluator", 0),
    ]
    known = {name for machine in machines for name in (machine.name, *machine.names)}
    for config in configs:
        assert list(config["cluster"]) == ["chief", "worker", "ps"]
        for address in (address for job in config["cluster"].values() for address in job):
            assert address.rpartition(":")[0] in known
            assert address.endswith(":999")


def test_parameter_servers_have_no_gpu() -> None:
    pods = pods_of(manifest("jobset", asked(ps=1, gpus=1)))
    assert ["resources" in pod["containers"][0] for pod in pods] == [True, True, False]


def test_containers_of_one_machine_divide_its_gpus() -> None:
    text = manifest("compose", asked(image=None, workers=2, ps=1, gpus=2, cpus=2, memory="4Gi", storage="shared"))
    document = yaml.safe_load(text)
    assert faults("compose", document) == []
    found = {
        name: service["deploy"]["resources"].get("reservations", {}).get("devices", [{}])[0].get("device_ids")
        for name, service in document["services"].items()
    }
    assert found == {"chief-0": ["0", "1"], "worker-0": ["2", "3"], "worker-1": ["4", "5"], "ps-0": None}
    service = document["services"]["worker-0"]
    assert (service["image"], service["build"], service["volumes"]) == ("train:latest", ".", ["shared:/mnt/storage"])
    assert service["deploy"]["resources"]["limits"] == {"cpus": "2", "memory": "4G"}
    assert document["volumes"] == {"shared": {}}
    assert service["environment"]["STRATAGEM_OWN_PROGRAMS"] == "/mnt/storage/compiled/worker-0"


def test_compose_takes_a_dollar_for_a_variable() -> None:
    text = manifest("compose", asked(program=("train.py", "--price=$5"), workers=1, max_restarts=0))
    service = yaml.safe_load(text)["services"]["worker-0"]
    assert (service["command"], service["restart"]) == (["python", "train.py", "--price=$$5"], "no")


def test_a_schema_finds_a_slip() -> None:
    document = yaml.safe_load(manifest("compose", asked()))
    document["services"]["worker-0"]["comand"] = []
    assert faults("compose", document) != []


@pytest.mark.parametrize("kind", KINDS)
def test_tasks_without_gpus_have_the_tunable_that_glibc_needs(kind: str) -> None:
    storage = {"storage": "s3://mine/train"} if kind == "sagemaker" else {}
    found = [manifest(kind, asked(gpus=gpus, **storage)).count("glibc.malloc.tcache_count=0") for gpus in (0, 1)]
    assert found == [1, 0]


def test_an_instance_of_sagemaker_has_its_gpus(tmp_path: Path) -> None:
    text = manifest("sagemaker", asked(gpus=8, workers=3, storage="s3://mine/train", port=999))
    request = platforms.sagemaker_request(text)
    resources = {"InstanceType": "ml.g5.48xlarge", "InstanceCount": 3, "VolumeSizeInGB": 50}
    assert request["ResourceConfig"] == resources
    assert request["CheckpointConfig"]["S3Uri"] == "s3://mine/train/checkpoints"
    assert request["Environment"]["STRATAGEM_PORT"] == "999"
    assert len(request["Environment"]["STRATAGEM_SECRET"]) == 64
    again = platforms.sagemaker_request(text)
    assert again["Environment"]["STRATAGEM_SECRET"] != request["Environment"]["STRATAGEM_SECRET"]


@pytest.mark.parametrize(
    ("kind", "more", "message"),
    [
        ("slurm", {"ps": 1}, "--for slurm has no use for --ps.\n  What to do: Let `stratagem run --ps N"),
        ("slurm", {"namespace": "ml"}, "--for slurm has no use for --namespace."),
        ("jobset", {"workers": 4, "workers_per_node": 2}, "--for jobset has no use for --workers-per-node."),
        ("jobset", {"image": None}, "--for jobset was asked for without --image."),
        ("trainjob", {"port": 5}, "on a port of Trainer's"),
        ("indexed-job", {"evaluator": True}, "write --for jobset"),
        ("sagemaker", {"gpus": 3}, "--gpus is 3."),
        ("sagemaker", {"storage": "claim"}, "Write --storage s3://BUCKET/FOLDER."),
        ("compose", {"namespace": "ml"}, "--for compose has no use for --namespace."),
    ],
)
def test_what_a_kind_cannot_do(kind: str, more: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        manifest(kind, asked(**more))
    assert message in str(error.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_says_how_it_was_written_and_that_it_was_not_run(kind: str) -> None:
    text = manifest(kind, asked(written_by="stratagem manifest --for it train.py"))
    head = text[:800]
    assert "stratagem manifest --for it train.py" in head
    assert "Not run " in head
    assert max(map(len, text.splitlines())) <= 120
