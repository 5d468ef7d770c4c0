"""A plain Job of Kubernetes with numbered pods: nothing has to be installed in the cluster."""

from __future__ import annotations

from typing import Any, Final

from stratagem.manifest import cluster, pods
from stratagem.manifest.asked import PORT, Asked
from stratagem.manifest.yaml_text import Note, documents

CONTAINER: Final = "stratagem"

LABEL: Final = "batch.kubernetes.io/job-name"
"""Label that Kubernetes (from 1.27 on) gives the pods of a Job."""


def write(asked: Asked) -> str:
    """Return the manifest of workers as an Indexed Job, with the service that gives them names.

    Args:
        asked: The job.

    Example:
        >>> "train-1.train:2222" in write(Asked(("train.py",), "train", image="train:1", workers=2))
        True
    """
    storage = cluster.STORAGE if asked.storage else None
    variables = pods.variables_of(
        addresses(asked.name, asked.workers, asked.port or PORT), "worker", storage, on_cpus=not asked.gpus
    )
    pod = {"subdomain": asked.name, **pods.pod_of(asked, CONTAINER, variables)}
    job = job_document(asked.name, asked.namespace, asked.workers, {"spec": pod}, CONTAINER, asked.max_restarts)
    head = pods.head_of(
        asked,
        "An Indexed Job",
        "Kubernetes 1.31 or newer is needed, and nothing beside it.",
        f"{LABEL}={asked.name}",
    )
    return documents(head, *network(asked.name, asked.namespace), job)


def addresses(name: str, workers: int, port: int) -> dict[str, list[str]]:
    """Return the addresses of the workers: Kubernetes calls the pods of an Indexed Job after it.

    Args:
        name: Name of the job, and of its service.
        workers: How many there are.
        port: Where they listen.
    """
    return {"worker": [f"{name}-{index}.{name}:{port}" for index in range(workers)]}


def network(name: str, namespace: str | None) -> list[Any]:
    """Return the documents that give the pods of a Job names, and keep others away from their ports.

    Args:
        name: Name of the job.
        namespace: Its namespace.
    """
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, **pods.namespace_of(namespace)},
        "spec": {
            "clusterIP": Note("None", "A headless service: each pod gets the name POD.SERVICE."),
            "publishNotReadyAddresses": Note(True, "Pods look up each other while they start."),
            "selector": {LABEL: name},
        },
    }
    return [service, pods.network_policy(name, {LABEL: name}, pods.namespace_of(namespace))]


def job_document(
    name: str,
    namespace: str | None,
    workers: int,
    template: pods.Yaml,
    container: str,
    restarts: int,
    *,
    labels: pods.Yaml | None = None,
    more: pods.Yaml | None = None,
) -> pods.Yaml:
    """Return the document of the Job.

    Args:
        name: Its name.
        namespace: Its namespace.
        workers: How many pods it has.
        template: Template of them.
        container: The container whose exit code counts.
        restarts: How often all may be started again.
        labels: Labels and annotations, by these words.
        more: Further entries of the specification.
    """
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, **pods.namespace_of(namespace), **(labels or {})},
        "spec": pods.job_of(workers, template, container, restarts * workers, more=more),
    }
