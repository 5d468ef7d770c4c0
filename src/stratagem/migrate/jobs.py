"""A TFJob as a job of another kind: JobSet, TrainJob or Indexed Job."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from stratagem.core import environment
from stratagem.core.errors import InputError, name_some
from stratagem.core.tunables import user_decides
from stratagem.manifest import indexed_job, jobset, pods, trainjob
from stratagem.manifest.yaml_text import Note
from stratagem.migrate.tfjob import Replicas, TFJob, Yaml

RESTARTS: Final = 3
"""Restarts of all tasks if the TFJob sets no limit, as in `stratagem manifest`."""

_LABELS: Final = {
    "tf-replica-type": "{task}",
    "training.kubeflow.org/replica-type": "{task}",
    "tf-job-name": "{name}",
    "training.kubeflow.org/job-name": "{name}",
    "group-name": "kubeflow.org",
    "group_name": "kubeflow.org",
}
"""Labels that the operator of TFJobs writes on pods, and what it writes there."""

_LOST: Final = ("tf-replica-index", "training.kubeflow.org/replica-index", "scheduling.k8s.io/group-name")
"""Labels and annotations of the operator, or read by it, that pods of other kinds cannot have."""


class Converted(NamedTuple):
    """Result of converting a TFJob.

    Args:
        documents: The documents that replace it.
        labels: Labels of its pods, for kubectl.
        notes: What was left out or means something different, and what to do.
    """

    documents: list[Yaml]
    labels: str
    notes: list[str]


def convert(job: TFJob, kind: str) -> Converted:
    """Return a TFJob as documents of another kind.

    Args:
        job: The TFJob.
        kind: One of `KINDS`.

    Raises:
        InputError: The kind has no such tasks.
    """
    notes = job.notes
    if kind != "jobset" and list(job.replicas) not in (["worker"], ["chief"]):
        raise InputError(
            f"The TFJob {job.name} has tasks of these types: {', '.join(job.replicas)}.",
            f"All pods of {_NAMES[kind]} are workers.",
            "Write --for jobset.",
        )
    _add_chief(job, notes)
    _add_labels(job, notes)
    _note_policies(job, kind, notes)
    images = dict.fromkeys(str(_task_of(replicas).get("image")) for replicas in job.replicas.values())
    documents, labels = KINDS[kind](job, notes)
    notes.append(
        f"Image {name_some(images)}: build it again with Keras 3 and Stratagem instead of TensorFlow "
        "(deploy/Dockerfile), and rewrite the program with `stratagem migrate`."
    )
    notes.append(
        f"Secret {pods.secret_of(job.name)}: create it before you start the job; the file says how. Pods wait for it."
    )
    return Converted(documents, labels, list(dict.fromkeys(notes)))


def _to_jobset(job: TFJob, notes: list[str]) -> tuple[list[Yaml], str]:
    addresses: dict[str, list[str]] = {}
    for task, replicas in job.replicas.items():
        addresses |= jobset.addresses(job.name, {task: replicas.count}, replicas.port)
    jobs: list[Any] = [
        jobset.replicated_job(
            task,
            replicas.count,
            _template(job, task, addresses, notes),
            replicas.container,
            _restarts(job, replicas),
            more=_of_policies(job, "activeDeadlineSeconds"),
        )
        for task, replicas in job.replicas.items()
    ]
    more = _of_policies(job, "ttlSecondsAfterFinished", "suspend")
    if len(job.replicas) > 1:
        more["successPolicy"] = _success(job, notes)
    document = jobset.document(job.name, job.namespace, jobs, labels=job.metadata, more=more)
    return [document], f"{jobset.LABEL}={job.name}"


def _to_indexed_job(job: TFJob, notes: list[str]) -> tuple[list[Yaml], str]:
    ((task, replicas),) = job.replicas.items()
    addresses = indexed_job.addresses(job.name, replicas.count, replicas.port)
    template = _template(job, task, addresses, notes, name="worker")
    template["spec"] = {"subdomain": job.name, **template["spec"]}
    document = indexed_job.job_document(
        job.name,
        job.namespace,
        replicas.count,
        template,
        replicas.container,
        _restarts(job, replicas),
        labels=job.metadata,
        more=_of_policies(job, "activeDeadlineSeconds", "ttlSecondsAfterFinished", "suspend"),
    )
    service, _ = indexed_job.network(job.name, job.namespace)
    return [service, document], f"{indexed_job.LABEL}={job.name}"


def _to_trainjob(job: TFJob, notes: list[str]) -> tuple[list[Yaml], str]:
    ((task, replicas),) = job.replicas.items()
    template = _template(job, task, None, notes, renamed=trainjob.NODE)
    runtime = trainjob.runtime_document(job.name, job.namespace, replicas.count, template, _restarts(job, replicas))
    train = trainjob.train_document(
        job.name,
        job.namespace,
        replicas.count,
        {},
        labels=job.metadata,
        more=_of_policies(job, "activeDeadlineSeconds", "suspend"),
    )
    notes.append(
        f"{environment.TF_CONFIG} is not set: Trainer sets JAX_*, which strategies read. A program that reads "
        f"{environment.TF_CONFIG} itself needs --for jobset."
    )
    if "ttlSecondsAfterFinished" in job.policies:
        notes.append("ttlSecondsAfterFinished is left out. A TrainJob stays until it is deleted.")
    return [runtime, train], f"{jobset.LABEL}={job.name}"


KINDS: Final[Mapping[str, Callable[[TFJob, list[str]], tuple[list[Yaml], str]]]] = {
    "jobset": _to_jobset,
    "trainjob": _to_trainjob,
    "indexed-job": _to_indexed_job,
}

_NAMES: Final = {"trainjob": "a TrainJob", "indexed-job": "an Indexed Job"}


def _add_chief(job: TFJob, notes: list[str]) -> None:
    """Give parameter servers a chief, which hands out the work: where TFJobs have none, worker 0 was the chief."""
    if "ps" not in job.replicas or "chief" in job.replicas:
        return
    worker = job.replicas["worker"]
    template = copy.deepcopy(worker.template)
    for container in template["spec"]["containers"]:
        resources = container.get("resources") or {}
        for limits in filter(None, (resources.get("limits"), resources.get("requests"))):
            for name in [name for name in limits if "gpu" in name]:
                del limits[name]
    job.replicas = {"chief": dataclasses.replace(worker, count=1, template=template), **job.replicas}
    notes.append(
        "A chief was added, from the template of the workers without their GPUs. It distributes the work of "
        "ParameterServerStrategy. A program that trains synchronously needs neither chief nor ps: remove both, here "
        "and in TF_CONFIG."
    )


def _add_labels(job: TFJob, notes: list[str]) -> None:
    """Give pods the labels of the operator that they speak of: an affinity that finds none leaves them waiting."""
    text = json.dumps([replicas.template for replicas in job.replicas.values()])
    spoken = {label: value for label, value in _LABELS.items() if f'"{label}"' in text}
    for task, replicas in job.replicas.items() if spoken else ():
        own = {label: value.format(task=task, name=job.name) for label, value in spoken.items()}
        metadata = dict(replicas.template.get("metadata") or {})
        metadata["labels"] = own | (metadata.get("labels") or {})
        replicas.template = {**replicas.template, "metadata": metadata}
    if spoken:
        notes.append(f"Labels {name_some(spoken)}: the pods refer to them, and have them as the operator wrote them.")
    if lost := [label for label in _LOST if f'"{label}"' in text]:
        notes.append(
            f"{name_some(lost)}: the pods refer to it, and no other kind has it. The number of a pod is in the label "
            "batch.kubernetes.io/job-completion-index. Kueue provides queues and gang scheduling."
        )


def _template(
    job: TFJob,
    task: str,
    addresses: Mapping[str, list[str]] | None,
    notes: list[str],
    *,
    name: str | None = None,
    renamed: str | None = None,
) -> Yaml:
    """Return the template of the pods of a type, as tasks of the new job.

    Args:
        job: The TFJob.
        task: The type.
        addresses: Addresses of all tasks; None where something else describes the cluster.
        notes: Where to note what is different.
        name: What the type is called in the cluster; as before when None.
        renamed: What the container that trains is called; as before when None.
    """
    replicas = job.replicas[task]
    container = _task_of(replicas)
    spec = dict(replicas.template["spec"])
    if any(each.get("name") == environment.TF_CONFIG for each in container.get("env") or []):
        notes.append(f"{task}: {environment.TF_CONFIG} of the container is replaced by that of the new job.")
    if renamed:
        changed = {**container, "name": renamed}
        spec["containers"] = [changed if each is container else each for each in spec["containers"]]
        replicas.container, container = renamed, changed
    _make_sidecars(task, spec, container, notes)
    _note_pod(task, spec, notes)
    variables = pods.variables_of(addresses, name or task, None, on_cpus=_wants_tunable(container))
    return pods.with_task({**replicas.template, "spec": spec}, container, variables, pods.secret_of(job.name))


def _wants_tunable(container: Yaml) -> bool:
    """Return whether a container computes on CPUs, and says nothing about the memory of the C library."""
    own = {str(each.get("name")): str(each.get("value", "")) for each in container.get("env") or []}
    resources = container.get("resources") or {}
    names = [name for limits in (resources.get("limits"), resources.get("requests")) for name in limits or {}]
    return not (any("gpu" in name for name in names) or environment.GLIBC_TUNABLES in own or user_decides(own))


def _task_of(replicas: Replicas) -> Yaml:
    """Return the container that trains."""
    containers = replicas.template["spec"]["containers"]
    return next((each for each in containers if each.get("name") == replicas.container), containers[0])


def _make_sidecars(task: str, spec: Yaml, container: Yaml, notes: list[str]) -> None:
    """Let other containers run as long as the one that trains does: the operator looked at that one alone."""
    others = [each for each in spec["containers"] if each is not container]
    if not others:
        return
    sidecars = [
        Note({**each, "restartPolicy": "Always"}, "A sidecar: it ends when the container that trains has ended.")
        for each in others
    ]
    spec["containers"] = [container]
    spec["initContainers"] = [*(spec.get("initContainers") or []), *sidecars]
    names = name_some(str(each.get("name")) for each in others)
    notes.append(f"{task}: {names} became a sidecar (an init container that stays), which needs Kubernetes 1.29.")


def _note_pod(task: str, spec: Yaml, notes: list[str]) -> None:
    scheduler = spec.get("schedulerName")
    if scheduler not in (None, "default-scheduler"):
        notes.append(
            f"{task}: schedulerName {scheduler} stays. The operator made a PodGroup for it. Make one, or let Kueue "
            "queue the job."
        )
    if spec.get("hostNetwork"):
        notes.append(f"{task}: with hostNetwork, two tasks on one node use the same port. Give them separate nodes.")
    if "restartPolicy" in spec and spec["restartPolicy"] != "Never":
        notes.append(f"{task}: restartPolicy {spec['restartPolicy']} of the pod became Never. The job makes a new pod.")


def _restarts(job: TFJob, replicas: Replicas) -> int:
    """Return how often all tasks may start again."""
    limit = job.policies.get("backoffLimit", RESTARTS)
    return 0 if replicas.restart == "Never" else limit


def _of_policies(job: TFJob, *names: str) -> Yaml:
    return {name: job.policies[name] for name in names if name in job.policies}


def _success(job: TFJob, notes: list[str]) -> Any:
    """Return when a JobSet of several types has succeeded."""
    training = [task for task in ("chief", "worker") if task in job.replicas]
    deciding = training if job.all_workers else training[:1]
    if "evaluator" in job.replicas:
        notes.append(
            "The evaluator ends with the job, as before. Add it to successPolicy to evaluate the last checkpoint too."
        )
    return Note({"operator": "All", "targetReplicatedJobs": deciding}, "These decide when the job is done.")


def _note_policies(job: TFJob, kind: str, notes: list[str]) -> None:
    """Say what restarting and cleaning up mean now."""
    for policy in dict.fromkeys(replicas.restart for replicas in job.replicas.values()):
        tasks = [task for task, replicas in job.replicas.items() if replicas.restart == policy]
        notes.append(f"{', '.join(tasks)}: restartPolicy {policy}. {_RESTARTS.get(policy, _RESTARTS['OnFailure'])}")
    if any(replicas.restart != "Never" for replicas in job.replicas.values()) and "backoffLimit" not in job.policies:
        notes.append(f"backoffLimit was not set; all tasks are started again up to {RESTARTS} times.")
    clean = job.policies.get("cleanPodPolicy")
    if clean == "All":
        notes.append(
            "cleanPodPolicy All: pods stay as long as the job. ttlSecondsAfterFinished deletes both after that time."
        )
    elif clean == "None" and kind == "jobset" and len(job.replicas) > 1:
        notes.append("cleanPodPolicy None: pods that still run when the job is done are ended; the others stay.")


_RESTARTS: Final = {
    "Never": "A failed pod is not started again. A preempted pod is (exit code 42, or removed by the cluster).",
    "OnFailure": "Pods start again after exit codes 43 and 44 and signals, but not after an exception (1).",
    "Always": "Pods start again after exit codes 43 and 44 and signals, but not after 1, or once their task is done.",
    "ExitCode": "The codes are Stratagem's: pods start again after 42, 43, 44 and signals, but not after 1 and 2.",
}
