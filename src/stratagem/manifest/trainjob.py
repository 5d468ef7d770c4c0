"""A TrainJob of Kubeflow Trainer v2, with a runtime of its own, which says what a TrainJob cannot."""

from __future__ import annotations

from typing import Any, Final

from stratagem.manifest import cluster, jobset, pods
from stratagem.manifest.asked import Asked
from stratagem.manifest.yaml_text import Note, documents

NODE: Final = "node"
"""Trainer's name for the job and the container that train."""

_STEP: Final = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
"""Label by which Trainer finds that job."""


def write(asked: Asked) -> str:
    """Return the manifest of workers as a TrainJob and its runtime.

    Args:
        asked: The job.

    Example:
        >>> "numNodes: 2" in write(Asked(("train.py",), "train", image="train:1", workers=2))
        True
    """
    storage = cluster.STORAGE if asked.storage else None
    pod = pods.pod_of(asked, NODE, pods.variables_of(None, "worker", storage, on_cpus=not asked.gpus))
    (task,) = pod["containers"]
    del task["ports"], task["command"]  # those of Trainer, and of the TrainJob
    head = pods.head_of(
        asked,
        "A TrainJob, and its runtime",
        "Kubeflow Trainer has to be installed, with JAX among its policies, as 2.3 has it.",
        f"{jobset.LABEL}={asked.name}",
    )
    return documents(
        head,
        pods.network_policy(asked.name, {jobset.LABEL: asked.name}, pods.namespace_of(asked.namespace)),
        runtime_document(asked.name, asked.namespace, asked.workers, {"spec": pod}, asked.max_restarts),
        train_document(asked.name, asked.namespace, asked.workers, {"image": asked.image, "command": asked.command}),
    )


def runtime_document(
    name: str,
    namespace: str | None,
    workers: int,
    template: pods.Yaml,
    restarts: int,
    *,
    jobs: pods.Yaml | None = None,
    sets: pods.Yaml | None = None,
) -> pods.Yaml:
    """Return the document of the runtime.

    Args:
        name: Its name.
        namespace: Its namespace.
        workers: How many pods there are.
        template: Template of them; the container that trains is called "node".
        restarts: How often all may be started again.
        jobs: Further entries of the job's specification.
        sets: Further entries of the JobSet's.
    """
    job = jobset.replicated_job(NODE, workers, template, NODE, restarts, more=jobs)
    job["template"] = {"metadata": {"labels": _STEP}, **job["template"]}
    policy: Any = Note(
        {"numNodes": workers, "jax": {}},
        "Trainer sets JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID; the strategy reads them.",
    )
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": name, **pods.namespace_of(namespace), "labels": {"trainer.kubeflow.org/framework": "jax"}},
        "spec": {"mlPolicy": policy, "template": {"spec": jobset.spec([job], sets)}},
    }


def train_document(
    name: str,
    namespace: str | None,
    workers: int,
    trainer: pods.Yaml,
    *,
    labels: pods.Yaml | None = None,
    more: pods.Yaml | None = None,
) -> pods.Yaml:
    """Return the document of the TrainJob.

    Args:
        name: Its name.
        namespace: Its namespace.
        workers: How many pods there are.
        trainer: Image and command.
        labels: Labels and annotations, by these words.
        more: Further entries of the specification.
    """
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": name}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, **pods.namespace_of(namespace), **(labels or {})},
        "spec": {"runtimeRef": reference, **(more or {}), "trainer": {"numNodes": workers, **trainer}},
    }
