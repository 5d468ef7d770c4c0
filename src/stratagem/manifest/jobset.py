"""A JobSet of Kubernetes: jobs of several types that live and end together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from stratagem.manifest import cluster, pods
from stratagem.manifest.asked import PORT, Asked
from stratagem.manifest.yaml_text import Note, documents

CONTAINER: Final = "stratagem"

LABEL: Final = "jobset.sigs.k8s.io/jobset-name"
"""Label that the controller gives the pods of a JobSet."""


def write(asked: Asked) -> str:
    """Return the manifest of all tasks as a JobSet, with one job for each type of task.

    Args:
        asked: The job.

    Example:
        >>> "train-ps-0-0.train:2222" in write(Asked(("train.py",), "train", image="train:1", ps=1))
        True
    """
    where = addresses(asked.name, asked.counts, asked.port or PORT)
    storage = cluster.STORAGE if asked.storage else None
    jobs: list[Any] = []
    for task, count in asked.counts.items():
        pod = pods.pod_of(
            asked, CONTAINER, pods.variables_of(where, task, storage, on_cpus=not asked.gpus), is_server=task == "ps"
        )
        jobs.append(replicated_job(task, count, {"spec": pod}, CONTAINER, asked.max_restarts))
    head = pods.head_of(
        asked,
        "A JobSet",
        "The controller of JobSet has to be installed (https://jobset.sigs.k8s.io).",
        f"{LABEL}={asked.name}",
    )
    policy = pods.network_policy(asked.name, {LABEL: asked.name}, pods.namespace_of(asked.namespace))
    return documents(head, policy, document(asked.name, asked.namespace, jobs))


def addresses(name: str, counts: Mapping[str, int], port: int) -> dict[str, list[str]]:
    """Return the addresses of the tasks of each type: JOBSET-TYPE-0-INDEX, in the subdomain of the JobSet.

    Args:
        name: Name of the JobSet.
        counts: How many tasks there are of each type.
        port: Where they listen.
    """
    return {
        task: [f"{name}-{task}-0-{index}.{name}:{port}" for index in range(count)] for task, count in counts.items()
    }


def replicated_job(
    task: str, count: int, template: pods.Yaml, container: str, restarts: int, *, more: pods.Yaml | None = None
) -> pods.Yaml:
    """Return the job of the tasks of one type.

    Args:
        task: The type.
        count: How many there are.
        template: Template of their pods.
        container: The container whose exit code counts.
        restarts: How often all may be started again.
        more: Further entries of the job's specification.
    """
    return {
        "name": task,
        "replicas": 1,
        "template": {"spec": pods.job_of(count, template, container, restarts * count, more=more)},
    }


def document(
    name: str,
    namespace: str | None,
    jobs: list[Any],
    *,
    labels: pods.Yaml | None = None,
    more: pods.Yaml | None = None,
) -> pods.Yaml:
    """Return the document of the JobSet.

    Args:
        name: Its name.
        namespace: Its namespace.
        jobs: Its jobs.
        labels: Labels and annotations, by these words.
        more: Further entries of the specification, before the jobs.
    """
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, **pods.namespace_of(namespace), **(labels or {})},
        "spec": spec(jobs, more),
    }


def spec(jobs: list[Any], more: pods.Yaml | None = None) -> pods.Yaml:
    """Return the specification of a JobSet, which stands in a runtime of Kubeflow too."""
    return {
        "network": Note(
            {"enableDNSHostnames": True, "publishNotReadyAddresses": True}, "Pods find each other by name."
        ),
        "failurePolicy": Note(
            {"maxRestarts": 0},
            "The jobs below replace pods by exit code. A job that has used up its restarts ends the JobSet.",
        ),
        **(more or {}),
        "replicatedJobs": jobs,
    }
