"""Pods, and the jobs that hold them, as all kinds of Kubernetes have them: what is set, mounted and started again.

The same functions serve `stratagem manifest`, which makes a pod of its own, and `stratagem migrate --manifest`, which
adds to the pods of a TFJob.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from stratagem.core import environment, exits
from stratagem.manifest import cluster
from stratagem.manifest.asked import PORT, Asked
from stratagem.manifest.yaml_text import Note

INDEX: Final = "TASK_INDEX"
"""Variable with the number of a pod in its job. Kubernetes' own, JOB_COMPLETION_INDEX, comes too late in the list of a
container's variables for another variable to contain it."""

INDEX_FIELD: Final = "metadata.annotations['batch.kubernetes.io/job-completion-index']"

SECRET: Final = "stratagem-secret"
"""Name of the volume with the secret."""

_SHARED_MEMORY: Final = "shared-memory"
_STORAGE: Final = "storage"

Yaml = dict[str, Any]
"""A mapping of a document, whose values may stand in a `Note`."""


def secret_of(name: str) -> str:
    """Return the name of the Secret of a job."""
    return f"{name}-secret"


def pod_of(asked: Asked, container: str, variables: list[Yaml], *, is_server: bool = False) -> Yaml:
    """Return the specification of a pod that runs one task.

    Args:
        asked: The job.
        container: Name of the container.
        variables: Variables of the container.
        is_server: Whether it is a parameter server, which has no GPU.
    """
    gpus = 0 if is_server else asked.gpus
    mounts = [_secret_mount()]
    volumes = [_secret_volume(secret_of(asked.name))]
    if asked.storage is not None:
        mounts.append({"name": _STORAGE, "mountPath": cluster.STORAGE})
        claim = {"name": _STORAGE, "persistentVolumeClaim": {"claimName": asked.storage}}
        volumes.append(Note(claim, "The claim must allow ReadWriteMany, because every pod writes to it."))
    if gpus > 1:
        mounts.append({"name": _SHARED_MEMORY, "mountPath": "/dev/shm"})
        memory = {"name": _SHARED_MEMORY, "emptyDir": {"medium": "Memory"}}
        volumes.append(Note(memory, "Several GPUs need more shared memory than the 64 MiB of a container."))
    task: Yaml = {
        "name": container,
        "image": asked.image,
        "command": asked.command,
        "env": variables,
        "ports": [{"containerPort": asked.port or PORT, "name": "stratagem"}],
    }
    if resources := _resources(asked, gpus):
        task["resources"] = resources
    return {
        "restartPolicy": Note("Never", "The exit-code rules above need this. The job makes a new pod instead."),
        "terminationGracePeriodSeconds": Note(
            cluster.SAVING_SECONDS, "After SIGTERM all workers stop after the same step, save, and exit with 42."
        ),
        "automountServiceAccountToken": Note(False, "Training does not use the Kubernetes API."),
        "containers": [task | {"volumeMounts": mounts}],
        "volumes": volumes,
    }


def variables_of(
    addresses: Mapping[str, Sequence[str]] | None, task: str, storage: str | None, *, on_cpus: bool
) -> list[Yaml]:
    """Return the variables of a task's container.

    Args:
        addresses: Addresses of the tasks of each type; None where something else describes the cluster.
        task: Type of the task.
        storage: Folder that all tasks share; None without one.
        on_cpus: Whether it computes on CPUs.
    """
    variables: list[Any] = [{"name": INDEX, "valueFrom": {"fieldRef": {"fieldPath": INDEX_FIELD}}}]
    if addresses is not None:
        config = cluster.tf_config(addresses, task, f"$({INDEX})")
        variables.append(
            Note(
                {"name": environment.TF_CONFIG, "value": config},
                "The cluster, and this task's place in it; the strategy of the program reads it.",
            )
        )
    variables.append({"name": environment.SECRET_FILE, "value": f"{cluster.SECRETS}/secret"})
    settings = cluster.settings(storage, f"{task}-$({INDEX})", on_cpus=on_cpus)
    return [*variables, *({"name": name, "value": value} for name, value in settings.items())]


def job_of(pods: int, template: Yaml, container: str, failures: int, *, more: Yaml | None = None) -> Yaml:
    """Return the specification of an Indexed Job.

    Args:
        pods: How many pods run side by side.
        template: What their template is: `spec`, and `metadata` where there is some.
        container: Name of the container whose exit code counts.
        failures: How many pods may fail.
        more: Further entries of the job.
    """
    return {
        "completionMode": Note("Indexed", "Each pod has an index, which is also part of its host name."),
        "completions": pods,
        "parallelism": pods,
        "backoffLimit": Note(failures, "A failure ends all pods of the job, and each of them counts."),
        "podFailurePolicy": {"rules": failure_rules(container)},
        **(more or {}),
        "template": template,
    }


def failure_rules(container: str) -> list[Any]:
    """Return what becomes of a job when a pod fails, by the exit codes of Stratagem.

    Args:
        container: Name of the container whose exit code counts.
    """

    def rule(action: str, *codes: int) -> Yaml:
        values = list(codes)
        return {"action": action, "onExitCodes": {"containerName": container, "operator": "In", "values": values}}

    return [
        Note(
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            "The cluster took the pod back. This does not count as a failure.",
        ),
        Note(
            rule("FailJob", exits.FAILED, exits.USAGE),
            f"{exits.FAILED}: an exception of the program, {exits.USAGE}: a wrong command line. "
            "A restart would not help.",
        ),
        Note(
            rule("Ignore", exits.PREEMPTED),
            f"{exits.PREEMPTED}: preempted, and the state is saved. A new pod continues.",
        ),
        Note(
            rule("Count", exits.PEER_LOST, exits.HUNG),
            f"{exits.PEER_LOST}: another task failed or was not reached, {exits.HUNG}: no progress. "
            "A new pod starts, and it counts.",
        ),
    ]


def network_policy(name: str, labels: Mapping[str, str], namespace: Yaml) -> Yaml:
    """Return the document that lets only the pods of a job reach each other.

    Args:
        name: Name of the job.
        labels: What its pods have, and no others.
        namespace: The entry of the metadata, or none.
    """
    selector = {"matchLabels": dict(labels)}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, **namespace},
        "spec": {
            "podSelector": selector,
            "policyTypes": ["Ingress"],
            "ingress": [Note({"from": [{"podSelector": selector}]}, "Any port: Gloo and NCCL choose theirs.")],
        },
    }


def head_of(asked: Asked, kind: str, first: str, logs: str) -> str:
    """Return the comment at the top of a file of Kubernetes.

    Args:
        asked: The job.
        kind: What the file makes, in words.
        first: What the cluster has to have.
        logs: Labels of the pods, for kubectl.
    """
    backups = (
        f"Backups: {cluster.STORAGE} is the same folder for all tasks; let BackupAndRestore write there."
        if asked.storage
        else "Backups: without shared storage, a restart begins from scratch. --storage CLAIM mounts a volume."
    )
    return "\n".join(
        [
            f"{kind}, written by",
            f"    {asked.written_by}",
            "",
            "Not run on a real cluster: the file was checked against the published schema, and its command, variables",
            "and host names trained in network namespaces.",
            first,
            "",
            *how_to_start(asked.name, asked.namespace, logs),
            "",
            backups,
        ]
    )


def how_to_start(name: str, namespace: str | None, logs: str) -> list[str]:
    """Return lines that say how the secret of a job is made, and how the job is started.

    Args:
        name: Name of the job.
        namespace: Its namespace.
        logs: Labels of its pods.
    """
    where = f" --namespace {namespace}" if namespace else ""
    return [
        "Create the secret once. It keeps strangers out of the cluster:",
        f"    openssl rand -hex 32 | kubectl create secret generic {secret_of(name)}{where} \\",
        "        --from-file=secret=/dev/stdin",
        "Start the job, and follow its output:",
        "    kubectl apply -f FILE",
        f"    kubectl logs{where} --selector {logs} --follow",
    ]


def with_task(template: Yaml, container: Yaml, variables: list[Yaml], secret: str) -> Yaml:
    """Return a pod template of another origin, whose container becomes a task.

    Args:
        template: The template; it stays as it is.
        container: The container of it that trains.
        variables: Variables of a task; those that the container has under these names are replaced.
        secret: Name of the Secret of the job.
    """
    ours = {each["name"] if isinstance(each, dict) else each.value["name"] for each in variables}
    kept = [each for each in container.get("env") or [] if each.get("name") not in ours]
    mounts = [*(container.get("volumeMounts") or []), _secret_mount()]
    task = {**container, "env": [*variables, *kept], "volumeMounts": mounts}
    spec: Yaml = dict(template.get("spec") or {})
    spec["containers"] = [task if each is container else each for each in spec["containers"]]
    spec["volumes"] = [*(spec.get("volumes") or []), _secret_volume(secret)]
    spec["restartPolicy"] = Note("Never", "The exit-code rules above need this. The job makes a new pod instead.")
    spec.setdefault("terminationGracePeriodSeconds", cluster.SAVING_SECONDS)
    return {**template, "spec": spec}


def namespace_of(namespace: str | None) -> Yaml:
    """Return the entry of a namespace in metadata, or none."""
    return {"namespace": namespace} if namespace else {}


def _secret_mount() -> Yaml:
    return {"name": SECRET, "mountPath": cluster.SECRETS, "readOnly": True}


def _secret_volume(secret: str) -> Any:
    return {"name": SECRET, "secret": {"secretName": secret}}


def _resources(asked: Asked, gpus: int) -> Yaml:
    requests = {"cpu": asked.cpus, "memory": asked.memory}
    asks = {name: value for name, value in requests.items() if value is not None}
    resources: Yaml = {"requests": asks} if asks else {}
    limits = {"memory": asked.memory} if asked.memory else {}
    if gpus:
        limits |= {"nvidia.com/gpu": gpus}
    return resources | ({"limits": limits} if limits else {})
