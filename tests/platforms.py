"""What platforms make of a manifest: machines with the names, variables and files that they would set."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import yaml
from tests.machines import Machine, Task
from tests.schemas import faults, kubernetes_documents

SECRET = "the secret of this cluster"

INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"

Yaml = dict[str, Any]


def indexed_job(text: str) -> list[Machine]:
    """Return the pods of an Indexed Job: NAME-INDEX, in the subdomain of the service that is called so."""
    service, _, job = kubernetes_documents(text)
    pod = job["spec"]["template"]["spec"]
    assert pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": job["metadata"]["name"]}
    return _pods(job["metadata"]["name"], pod["subdomain"], job["spec"])


def jobset(text: str) -> list[Machine]:
    """Return the pods of a JobSet: SET-JOB-0-INDEX, in the subdomain that is called like the set."""
    *_, document = kubernetes_documents(text)
    return _pods_of_set(document["metadata"]["name"], document["spec"])


def trainjob(text: str) -> list[Machine]:
    """Return the pods of a TrainJob, with what the plugin for JAX sets (kubeflow/trainer, plugins/jax/jax.go)."""
    *_, runtime, job = kubernetes_documents(text)
    name, trainer = job["metadata"]["name"], job["spec"]["trainer"]
    assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
    assert runtime["spec"]["mlPolicy"]["jax"] == {}
    template = runtime["spec"]["template"]["spec"]
    (node,) = template["replicatedJobs"]
    assert node["template"]["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    container = _container(node["template"]["spec"]["template"]["spec"], "node")
    container |= {key: trainer[key] for key in ("image", "command", "args") if key in trainer}
    container["env"] = [
        *container["env"],
        {"name": "JAX_NUM_PROCESSES", "value": str(trainer["numNodes"])},
        {"name": "JAX_PROCESS_ID", "valueFrom": {"fieldRef": {"fieldPath": INDEX}}},
        {"name": "JAX_COORDINATOR_ADDRESS", "value": f"{name}-node-0-0.{name}:6666"},
    ]
    return _pods_of_set(name, template)


def compose(text: str) -> list[Machine]:
    """Return the containers of a compose file; each is known by the name of its service."""
    document = yaml.safe_load(text)
    assert faults("compose", document) == []
    machines = []
    for name, service in document["services"].items():
        assert service["secrets"] == ["stratagem"]
        argv = [word.replace("$$", "$") for word in service["command"]]
        files = {"/run/secrets/stratagem": SECRET}
        machines.append(Machine(name, [Task(argv, service["environment"])], files=files))
    return machines


def sagemaker(text: str) -> list[Machine]:
    """Return the instances of a training job: algo-1, algo-2, which find each other in a file."""
    request = sagemaker_request(text)
    names = [f"algo-{number}" for number in range(1, request["ResourceConfig"]["InstanceCount"] + 1)]
    machines = []
    for name in names:
        described = {"current_host": name, "hosts": names, "network_interface_name": "eth0"}
        files = {"/opt/ml/input/config/resourceconfig.json": json.dumps(described)}
        task = Task(request["AlgorithmSpecification"]["ContainerEntrypoint"], request["Environment"])
        machines.append(Machine(name, [task], files=files))
    return machines


def sagemaker_request(text: str) -> Yaml:
    """Return what a program asks Amazon for; it is valid."""
    asked: list[Yaml] = []
    client = types.SimpleNamespace(create_training_job=lambda **request: asked.append(request))
    without = sys.modules.get("boto3")
    sys.modules["boto3"] = types.ModuleType("boto3")
    sys.modules["boto3"].client = lambda service: client  # type: ignore[attr-defined]
    try:
        exec(compile(text, "sagemaker.py", "exec"), {"__name__": "__main__"})
    finally:
        del sys.modules["boto3"]
        if without is not None:
            sys.modules["boto3"] = without
    assert faults("sagemaker", asked[0]) == []
    return asked[0]


def slurm(text: str, folder: Path) -> list[Machine]:
    """Return the nodes of a job step, with what srun sets; the script runs, with a srun that notes what it is asked."""
    noted = folder / "step"
    stubs = folder / "bin"
    stubs.mkdir()
    _stub(stubs / "srun", f'{{ env -0; printf "\\\\0"; printf "%s\\\\0" "$@"; }} > {noted}'.replace("\\\\", "\\"))
    script = folder / "train.sbatch"
    script.write_text(text)
    job = {"SLURM_JOB_ID": "4711", "HOME": str(folder), "PATH": f"{stubs}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["bash", str(script)], env=job, check=True)
    variables, _, words = noted.read_bytes().decode().partition("\0\0")
    inherited = dict(each.split("=", 1) for each in variables.split("\0"))
    # The script has ended here, and has removed its secret; a step runs before that.
    secret = Path(inherited["STRATAGEM_SECRET_FILE"])
    assert not secret.exists()
    secret.write_text(SECRET)
    command = words.rstrip("\0").split("\0")
    del inherited["PATH"], command[: command.index("bash")]
    nodes = int(re.findall("--nodes=(\\d+)", text)[0])
    on_each = int(re.findall("--ntasks-per-node=(\\d+)", text)[0])
    machines = []
    for node in range(nodes):
        tasks = []
        for local in range(on_each):
            step = {
                "SLURM_PROCID": str(node * on_each + local),
                "SLURM_LOCALID": str(local),
                "SLURM_NODEID": str(node),
                "SLURM_STEP_NUM_TASKS": str(nodes * on_each),
                "SLURM_STEP_NODELIST": f"node[0-{nodes - 1}]",
                "SLURM_STEP_TASKS_PER_NODE": f"{on_each}(x{nodes})",
            }
            tasks.append(Task(command, inherited | step))
        machines.append(Machine(f"node{node}", tasks))
    return machines


def action_for(text: str, code: int) -> str:
    """Return what becomes of an Indexed Job whose pod ends with a code."""
    (spec,) = [spec for document in kubernetes_documents(text) for spec in jobs_of(document)]
    rules = [
        rule for rule in spec["podFailurePolicy"]["rules"] if code in rule.get("onExitCodes", {}).get("values", [])
    ]
    return rules[0]["action"] if rules else "Count"


def jobs_of(document: Yaml) -> list[Yaml]:
    """Return the specifications of the jobs in a document of Kubernetes."""
    spec = document["spec"]
    if document["kind"] == "Job":
        return [spec]
    spec = spec["template"]["spec"] if document["kind"] == "TrainingRuntime" else spec
    return [job["template"]["spec"] for job in spec.get("replicatedJobs", [])]


def _stub(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)


def _pods_of_set(name: str, spec: Yaml) -> list[Machine]:
    assert spec["network"]["enableDNSHostnames"]
    return [
        pod for job in spec["replicatedJobs"] for pod in _pods(f"{name}-{job['name']}-0", name, job["template"]["spec"])
    ]


def _pods(name: str, domain: str, spec: Yaml) -> list[Machine]:
    """Return the pods of an Indexed Job."""
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"]
    pod = spec["template"]["spec"]
    (rule,) = [rule for rule in spec["podFailurePolicy"]["rules"] if rule["action"] == "FailJob"]
    container = _container(pod, rule["onExitCodes"]["containerName"])
    machines = []
    for index in range(spec["completions"]):
        variables = _variables(container["env"], {INDEX: str(index)})
        argv = [_expanded(word, variables) for word in (*container.get("command", []), *container.get("args", []))]
        own = f"{name}-{index}"
        machines.append(Machine(own, [Task(argv, variables)], [f"{own}.{domain}"], _files(pod, container)))
    return machines


def _container(pod: Yaml, name: str) -> Yaml:
    (container,) = [each for each in pod["containers"] if each["name"] == name]
    return container


def _variables(entries: list[Yaml], fields: dict[str, str]) -> dict[str, str]:
    """Return the environment of a container: an entry may contain those before it."""
    variables: dict[str, str] = {}
    for entry in entries:
        source = entry.get("valueFrom", {}).get("fieldRef")
        variables[entry["name"]] = fields[source["fieldPath"]] if source else _expanded(entry["value"], variables)
    return variables


def _expanded(text: str, variables: dict[str, str]) -> str:
    return re.sub(r"\$\((\w+)\)", lambda found: variables.get(found[1], found[0]), text)


def _files(pod: Yaml, container: Yaml) -> dict[str, str]:
    """Return the files of the volumes with secrets."""
    secrets = {volume["name"] for volume in pod["volumes"] if "secret" in volume}
    return {f"{mount['mountPath']}/secret": SECRET for mount in container["volumeMounts"] if mount["name"] in secrets}
