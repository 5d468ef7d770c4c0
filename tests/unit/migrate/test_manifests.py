"""TFJobs become jobs of other kinds that are valid, and what is different is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.platforms import Yaml, indexed_job, jobset, trainjob
from tests.schemas import faults
from tests.unit.migrate import tfjobs

from stratagem.core.errors import InputError
from stratagem.migrate.jobs import KINDS
from stratagem.migrate.manifests import ConvertedFile, convert_file

SHAPES = [name for name in vars(tfjobs) if name.isupper() and name != "POD"]


def convert(text: str, folder: Path, kind: str = "jobset") -> ConvertedFile:
    file = folder / "tfjob.yaml"
    file.write_text(text)
    return convert_file(file, kind)


def documents(converted: ConvertedFile) -> dict[str, Yaml]:
    """Return the documents by kind; those of our own are valid."""
    found = {document["kind"]: document for document in yaml.safe_load_all(converted.text)}
    for kind in found.keys() - {"PersistentVolumeClaim"}:
        assert faults("kubernetes", found[kind], kind) == []
    return found


def job_of(document: Yaml, task: str) -> Yaml:
    return next(job["template"]["spec"] for job in document["spec"]["replicatedJobs"] if job["name"] == task)


def config(machine: Any) -> Yaml:
    return json.loads(machine.tasks[0].variables["TF_CONFIG"])


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_becomes_a_job_set(shape: str, tmp_path: Path) -> None:
    converted = convert(getattr(tfjobs, shape), tmp_path)
    assert documents(converted)["JobSet"]["kind"] == "JobSet"
    assert any(note.startswith("Image ") for note in converted.notes)


def test_workers_keep_what_their_pods_have(tmp_path: Path) -> None:
    converted = convert(tfjobs.WORKERS, tmp_path)
    document = documents(converted)["JobSet"]
    assert document["metadata"] == {
        "name": "multi-worker",
        "namespace": "research",
        "labels": {"kueue.x-k8s.io/queue-name": "evenings"},
    }
    assert (document["spec"]["ttlSecondsAfterFinished"], document["spec"]["suspend"]) == (600, True)
    job = job_of(document, "worker")
    assert (job["completions"], job["backoffLimit"], job["activeDeadlineSeconds"]) == (2, 4, 86400)
    pod = job["template"]
    assert pod["metadata"] == {"annotations": {"sidecar.istio.io/inject": "false"}}
    assert pod["spec"]["nodeSelector"] == {"gpu": "a100"}
    assert [each["name"] for each in pod["spec"]["initContainers"]] == ["data"]
    (container,) = pod["spec"]["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    assert {"name": "DATA", "value": "/data"} in container["env"]
    assert [mount["name"] for mount in container["volumeMounts"]] == ["data", "stratagem-secret"]
    machines = jobset(yaml.safe_dump_all([document]))
    assert config(machines[1]) == {
        "cluster": {"worker": [f"multi-worker-worker-0-{index}.multi-worker:4444" for index in range(2)]},
        "task": {"type": "worker", "index": 1},
    }


def test_parameter_servers_without_a_chief_get_one(tmp_path: Path) -> None:
    converted = convert(tfjobs.PS_AND_WORKERS, tmp_path)
    document = documents(converted)["JobSet"]
    assert [job["name"] for job in document["spec"]["replicatedJobs"]] == ["chief", "worker", "ps"]
    assert document["spec"]["successPolicy"] == {"operator": "All", "targetReplicatedJobs": ["chief"]}
    assert [job_of(document, task)["backoffLimit"] for task in ("chief", "worker", "ps")] == [0, 0, 0]
    assert any(note.startswith("A chief was added") for note in converted.notes)
    cluster = config(jobset(yaml.safe_dump_all([document]))[0])["cluster"]
    assert {task: len(addresses) for task, addresses in cluster.items()} == {"chief": 1, "worker": 4, "ps": 2}


def test_a_chief_that_is_added_has_no_gpu(tmp_path: Path) -> None:
    pod = tfjobs.POD.replace("command:", "resources: {limits: {nvidia.com/gpu: 1, cpu: 4}}, command:")
    text = tfjobs.PS_AND_WORKERS.replace(tfjobs.POD, pod)
    document = documents(convert(text, tmp_path))["JobSet"]
    limits = [
        job_of(document, task)["template"]["spec"]["containers"][0]["resources"]["limits"]
        for task in ("chief", "worker")
    ]
    assert limits == [{"cpu": 4}, {"nvidia.com/gpu": 1, "cpu": 4}]


@pytest.mark.parametrize(
    ("more", "tunables"),
    [
        ("", "glibc.malloc.tcache_count=0"),
        ("resources: {limits: {nvidia.com/gpu: 1}}, ", None),
        ("env: [{name: MALLOC_ARENA_MAX, value: '2'}], ", None),
        ("env: [{name: GLIBC_TUNABLES, value: glibc.malloc.arena_max=2}], ", "glibc.malloc.arena_max=2"),
    ],
)
def test_containers_on_cpus_have_the_tunable_that_glibc_needs(more: str, tunables: str | None, tmp_path: Path) -> None:
    text = tfjobs.PS_AND_WORKERS.replace(tfjobs.POD, tfjobs.POD.replace("command:", f"{more}command:"))
    container = job_of(documents(convert(text, tmp_path))["JobSet"], "worker")["template"]["spec"]["containers"][0]
    assert {each["name"]: each.get("value") for each in container["env"]}.get("GLIBC_TUNABLES") == tunables


def test_jobs_as_kubectl_prints_them(tmp_path: Path) -> None:
    job = yaml.safe_load(tfjobs.WORKERS)
    applied = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
    job["metadata"] |= {"uid": "1", "resourceVersion": "2", "annotations": applied}
    job["status"] = {"startTime": None}
    text = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [job]})
    document = documents(convert(text, tmp_path))["JobSet"]
    assert set(document["metadata"]) == {"name", "namespace", "labels"}
    assert "status" not in document


def test_all_types_and_other_documents(tmp_path: Path) -> None:
    converted = convert(tfjobs.ALL_TYPES, tmp_path)
    found = documents(converted)
    assert found["PersistentVolumeClaim"]["spec"] == {"accessModes": ["ReadWriteMany"]}
    assert '"2020-05-01T10:00:00Z"' in converted.text
    assert found["JobSet"]["spec"]["successPolicy"]["targetReplicatedJobs"] == ["chief", "worker"]
    machines = jobset(yaml.safe_dump_all([found["JobSet"]]))
    assert [machine.name for machine in machines] == [
        "everything-chief-0-0",
        "everything-worker-0-0",
        "everything-worker-0-1",
        "everything-ps-0-0",
        "everything-evaluator-0-0",
    ]
    assert "evaluator" not in config(machines[-1])["cluster"]
    assert config(machines[-1])["task"] == {"type": "evaluator", "index": 0}
    assert [note for note in converted.notes if note.startswith(("worker:", "The comments"))] == [
        "worker: restartPolicy ExitCode. The codes are Stratagem's: pods start again after 42, 43, 44 and signals, "
        "but not after 1 and 2.",
        "The comments of the file are left out.",
    ]


def test_the_oldest_version_is_a_list(tmp_path: Path) -> None:
    converted = convert(tfjobs.OLDEST, tmp_path)
    machines = jobset(yaml.safe_dump_all([documents(converted)["JobSet"]]))
    assert [machine.name for machine in machines] == ["oldest-chief-0-0", *(f"oldest-worker-0-{i}" for i in range(3))]
    assert "spec.tensorboard is left out. Start a Deployment of TensorBoard beside the job." in converted.notes


def test_sidecars_and_what_else_is_different(tmp_path: Path) -> None:
    converted = convert(tfjobs.SIDECAR, tmp_path)
    pod = job_of(documents(converted)["JobSet"], "worker")["template"]["spec"]
    assert pod["initContainers"] == [{"name": "logs", "image": "fluentd", "restartPolicy": "Always"}]
    assert [each["name"] for each in pod["containers"]] == ["tensorflow"]
    assert pod["restartPolicy"] == "Never"
    labels = job_of(documents(converted)["JobSet"], "worker")["template"]["metadata"]["labels"]
    assert labels == {"tf-replica-type": "worker"}
    variables = [each["name"] for each in pod["containers"][0]["env"]]
    assert variables[-1] == "KEEP"
    assert variables.count("TF_CONFIG") == 1
    told = "\n".join(converted.notes)
    for line in (
        "metadata.generateName becomes the name 'with-logs', because host names contain it. Change it for each job.",
        "${PROJECT}, <image>: not filled in, and left unchanged. Fill it in before you start the job.",
        "worker: TF_CONFIG of the container is replaced by that of the new job.",
        "worker: logs became a sidecar (an init container that stays), which needs Kubernetes 1.29.",
        "worker: schedulerName volcano stays. The operator made a PodGroup for it. Make one, or let Kueue queue",
        "worker: with hostNetwork, two tasks on one node use the same port. Give them separate nodes.",
        "cleanPodPolicy All: pods stay as long as the job. ttlSecondsAfterFinished deletes both after that time.",
        "Labels tf-replica-type: the pods refer to them, and have them as the operator wrote them.",
        "tf-replica-index: the pods refer to it, and no other kind has it.",
        "Secret with-logs-secret: create it before you start the job; the file says how. Pods wait for it.",
    ):
        assert line in told


def test_workers_as_an_indexed_job(tmp_path: Path) -> None:
    found = documents(convert(tfjobs.WORKERS, tmp_path, "indexed-job"))
    assert found["Job"]["spec"]["ttlSecondsAfterFinished"] == 600
    policy = {
        "kind": "NetworkPolicy",
        "apiVersion": "networking.k8s.io/v1",
        "metadata": {},
        "spec": {"podSelector": {}},
    }
    machines = indexed_job(yaml.safe_dump_all([found["Service"], policy, found["Job"]]))
    assert config(machines[0])["cluster"] == {"worker": [f"multi-worker-{i}.multi-worker:4444" for i in range(2)]}


def test_workers_as_a_train_job(tmp_path: Path) -> None:
    converted = convert(tfjobs.WORKERS, tmp_path, "trainjob")
    found = documents(converted)
    assert found["TrainJob"]["spec"]["activeDeadlineSeconds"] == 86400
    machines = trainjob(yaml.safe_dump_all([found["TrainingRuntime"], found["TrainJob"]]))
    assert [machine.names for machine in machines] == [[f"multi-worker-node-0-{i}.multi-worker"] for i in range(2)]
    variables = machines[1].tasks[0].variables
    assert (variables["JAX_PROCESS_ID"], variables["DATA"], "TF_CONFIG" in variables) == ("1", "/data", False)
    assert "ttlSecondsAfterFinished is left out. A TrainJob stays until it is deleted." in converted.notes


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "jobset"])
def test_kinds_whose_pods_are_all_workers_refuse_others(kind: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has tasks of these types: worker, ps\.\n(.*\n)?.*Write --for jobset\."):
        convert(tfjobs.PS_AND_WORKERS, tmp_path, kind)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: b: c\n", "The file is not valid YAML: line 1, column 5: mapping values are not allowed here.\n"
            "    a: b: c\n    "),
        ("kind: TFJob\nspec:\n\t- a\n", "line 3, column 1: found character '\\t' that cannot start any token."),
        ("{{- if .Values.a }}\nkind: TFJob\n", "Line 1 belongs to a Helm template, so the file is not YAML yet."),
        ('local k = import "k.libsonnet";\n{ kind: "TFJob" }', "Line 1 belongs to a ksonnet or Jsonnet program"),
        ("", "The file has no TFJob, but nothing."),
        ("kind: ConfigMap\ndata: {a: 'kind: TFJob'}", "The ConfigMap contains a TFJob as text or as a part"),
        ("kind: Job\n", "The file has no TFJob, but Job."),
        ("kind: TFJob\nmetadata: {name: $JOB}", "metadata.name is '$JOB': this is a template."),
        ("kind: TFJob\nmetadata: {name: job_1}", "'job_1' cannot be the name of a job."),
        ("kind: TFJob\nmetadata: {name: a}\nspec: []", "spec is [], which is not a mapping."),
        ("kind: TFJob\nmetadata: {name: a}", "The TFJob has no tasks, and no task that trains."),
        ("kind: TFJob\nmetadata: {name: a}\nspec: {tfReplicaSpecs: {Boss: {}}}", "there is no such type of task"),
        (
            tfjobs.WORKERS.replace("replicas: 2", "replicas: $N"),
            "spec.tfReplicaSpecs.Worker.replicas is '$N'.",
        ),
        (tfjobs.WORKERS.replace("backoffLimit: 2", "backoffLimit: $R"), "runPolicy.backoffLimit is '$R'."),
        (tfjobs.PS_AND_WORKERS.replace("Worker", "Evaluator"), "The TFJob has ps, evaluator, and no task that trains."),
        (tfjobs.OLDEST.replace("replicas: 1", "replicas: 2"), "The TFJob has several chiefs."),
        (tfjobs.ALL_TYPES.replace("Worker:", "Master:"), "the type chief has two entries"),
        ("kind: TFJob\nmetadata: {name: a}\nspec: {tfReplicaSpecs: {Worker: {}}}", "template.spec has no containers"),
    ],
)  # fmt: skip
def test_what_cannot_be_converted_is_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        convert(text, tmp_path)
    assert message in str(error.value)
    assert "What to do: " in str(error.value)
