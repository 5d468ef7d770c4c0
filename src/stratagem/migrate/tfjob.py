"""Read a TFJob of Kubeflow, of any version, into one form, and note the entries that other kinds do not have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from stratagem.core.errors import InputError, name_some
from stratagem.manifest.asked import PORT, check_name

Yaml = dict[str, Any]

TYPES: Final = {"chief": "chief", "master": "chief", "worker": "worker", "ps": "ps", "evaluator": "evaluator"}
"""Types of tasks, by their names in TFJobs in lower case."""

CONTAINER: Final = "tensorflow"
"""The name of the container that trains, as the operator expects it."""

_ORDER: Final = ("chief", "worker", "ps", "evaluator")

_PORT_NAME: Final = "tfjob-port"

_PLACEHOLDER: Final = re.compile(r"\$\{?[A-Za-z_]\w*\}?|\{\{.*?\}\}|<[A-Za-z][^<>]*>")
"""A place of a template that has to be filled in: $NAME, ${NAME}, {{ name }}, <name>. $(NAME) is Kubernetes' own."""

_POLICIES: Final = frozenset(
    ("cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit", "suspend")
)
"""Entries of runPolicy (in older versions of the specification itself) that say something to every kind."""

_NUMBERS: Final = ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit")

_ELSEWHERE: Final = {
    "schedulingPolicy": "Kueue provides queues and gang scheduling: label the job kueue.x-k8s.io/queue-name.",
    "enableDynamicWorker": "The number of workers cannot change while a job runs.",
    "enableGangScheduling": "Kueue provides queues and gang scheduling: label the job kueue.x-k8s.io/queue-name.",
    "managedBy": "Name the controller in the new job if a controller other than its own manages it.",
    "tensorboard": "Start a Deployment of TensorBoard beside the job.",
    "terminationPolicy": "The job ends with the chief. Without a chief, all workers end together.",
    "startingDeadlineSeconds": "A CronJob has this entry.",
    "cacheBackend": "Mount the data as a separate volume, or let an init container fetch it.",
    "modelVersion": "Save the model on a volume, and publish it with a separate job.",
    "tfImage": "Name the image in the container.",
}
"""Advice for entries that have no counterpart."""


@dataclass
class Replicas:
    """The tasks of one type.

    Args:
        count: How many there are.
        restart: `restartPolicy`: Never, OnFailure, Always or ExitCode.
        template: Template of their pods.
        container: Name of the container that trains.
        port: The port that they listen on.
    """

    count: int
    restart: str
    template: Yaml
    container: str
    port: int


@dataclass
class TFJob:
    """A TFJob.

    Args:
        name: Its name.
        namespace: Its namespace.
        metadata: Its labels and annotations, under these two names.
        replicas: Its tasks by type, the chief first.
        policies: The entries of runPolicy.
        all_workers: Whether it has succeeded when all workers have succeeded, and not when the chief has.
        notes: What was left out or means something different, and what to do.
    """

    name: str
    namespace: str | None
    metadata: Yaml
    replicas: dict[str, Replicas]
    policies: Yaml
    all_workers: bool
    notes: list[str] = field(default_factory=list)


def is_tfjob(document: Any) -> bool:
    """Return whether a document is a TFJob, of any version."""
    return isinstance(document, dict) and str(document.get("kind", "")).lower() == "tfjob"


def read(document: Yaml) -> TFJob:
    """Return a TFJob.

    Args:
        document: A document of that kind.

    Raises:
        InputError: The document cannot be understood, or is a template that was not filled in.

    Example:
        >>> pod = {"spec": {"containers": [{"name": "tensorflow", "image": "train:1"}]}}
        >>> job = read({"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "train"},
        ...     "spec": {"tfReplicaSpecs": {"Worker": {"replicas": 2, "template": pod}}}})
        >>> job.name, job.replicas["worker"].count
        ('train', 2)
    """
    metadata, spec = _mapping(document.get("metadata"), "metadata"), _mapping(document.get("spec"), "spec")
    notes: list[str] = []
    name = _name(metadata, notes)
    policies = {key: value for key, value in spec.items() if key in _POLICIES}
    policies |= _mapping(spec.get("runPolicy"), "spec.runPolicy")
    for key in _NUMBERS:
        if policies.get(key) is not None:
            _check_number(policies[key], f"runPolicy.{key}")
    job = TFJob(
        name=name,
        namespace=metadata.get("namespace"),
        metadata=_labels(metadata),
        replicas=_replicas(spec, notes),
        policies={key: value for key, value in policies.items() if key in _POLICIES and value is not None},
        all_workers=spec.get("successPolicy") == "AllWorkers",
        notes=notes,
    )
    known = ("tfReplicaSpecs", "replicaSpecs", "tfReplicaSpec", "runPolicy", "successPolicy", "RuntimeId", *_POLICIES)
    for where, left in (
        ("spec", spec.keys() - set(known)),
        ("spec.runPolicy", policies.keys() - _POLICIES - spec.keys()),
    ):
        for key in sorted(left):
            notes.append(f"{where}.{key} is left out. {_ELSEWHERE.get(key, 'No kind of job has it.')}")
    _note_placeholders(document, notes)
    return job


def _name(metadata: Yaml, notes: list[str]) -> str:
    """Return the name of the job, of which the host names are made."""
    name = metadata.get("name")
    if name is None and (prefix := metadata.get("generateName")):
        name = str(prefix).rstrip("-")
        notes.append(
            f"metadata.generateName becomes the name {name!r}, because host names contain it. Change it for each job."
        )
    name = str(name or "")
    if _PLACEHOLDER.search(name):
        raise InputError(
            f"metadata.name is {name!r}: this is a template.",
            "Host names contain the name.",
            "Fill in the template first (envsubst, helm template, ks show), and convert the result.",
        )
    check_name(name, "metadata.name")
    return name


def _replicas(spec: Yaml, notes: list[str]) -> dict[str, Replicas]:
    """Return the tasks by type: a mapping in newer versions, a list in v1alpha1."""
    listed = spec.get("tfReplicaSpecs") or spec.get("replicaSpecs") or spec.get("tfReplicaSpec")
    if isinstance(listed, list):
        listed = {str(_mapping(each, "spec.replicaSpecs").get("tfReplicaType") or "MASTER"): each for each in listed}
    found: dict[str, Replicas] = {}
    for word, entry in _mapping(listed, "spec.tfReplicaSpecs").items():
        where = f"spec.tfReplicaSpecs.{word}"
        task = TYPES.get(word.lower())
        if task is None or task in found:
            raise InputError(
                f"{where}: {'the type ' + task + ' has two entries' if task else 'there is no such type of task'}.",
                f"Write one of {', '.join(('Chief', 'Worker', 'PS', 'Evaluator'))}, each at most once.",
            )
        replicas = _replica(_mapping(entry, where), where, notes)
        if replicas.count:
            found[task] = replicas
    if not {"chief", "worker"} & found.keys():
        raise InputError(
            f"The TFJob has {name_some(found) or 'no tasks'}, and no task that trains.",
            "Give it tasks under spec.tfReplicaSpecs.Worker.",
        )
    if "chief" in found and found["chief"].count > 1:
        raise InputError("The TFJob has several chiefs.", "Write replicas: 1 there, and make the others workers.")
    return {task: found[task] for task in _ORDER if task in found}


def _replica(entry: Yaml, where: str, notes: list[str]) -> Replicas:
    count = entry.get("replicas", 1)
    _check_number(count, f"{where}.replicas")
    template = _mapping(entry.get("template"), f"{where}.template")
    spec = _mapping(template.get("spec"), f"{where}.template.spec")
    containers = spec.get("containers")
    if not isinstance(containers, list) or not containers or not all(isinstance(each, dict) for each in containers):
        raise InputError(f"{where}.template.spec has no containers.", "Add the container that trains.")
    names = [str(each.get("name")) for each in containers]
    if CONTAINER not in names:
        notes.append(f"{where}: no container is named {CONTAINER}, so {names[0]} is assumed to be the one that trains.")
    container = containers[names.index(CONTAINER) if CONTAINER in names else 0]
    restart = str(entry.get("restartPolicy") or spec.get("restartPolicy") or "Never")
    metadata = _labels(_mapping(template.get("metadata"), f"{where}.template.metadata"))
    return Replicas(
        count,
        restart,
        {"metadata": metadata, "spec": spec} if metadata else {"spec": spec},
        str(container.get("name") or CONTAINER),
        _port(container),
    )


def _labels(metadata: Yaml) -> Yaml:
    """Return the labels and annotations that somebody wrote: what the cluster adds to a job belongs to the old one."""
    found: Yaml = {}
    for key in ("labels", "annotations"):
        entries = _mapping(metadata.get(key), f"metadata.{key}")
        if kept := {name: value for name, value in entries.items() if not name.startswith("kubectl.kubernetes.io/")}:
            found[key] = kept
    return found


def _port(container: Yaml) -> int:
    """Return the port that the operator would write into TF_CONFIG."""
    for port in container.get("ports") or []:
        if port.get("name") == _PORT_NAME and isinstance(port.get("containerPort"), int):
            return port["containerPort"]
    return PORT


def _check_number(value: Any, where: str) -> None:
    if not isinstance(value, int) or value < 0:
        raise InputError(
            f"{where} is {value!r}.",
            "Write a number. If this is a template, fill it in first (envsubst, helm template, ks show).",
        )


def _mapping(value: Any, where: str) -> Yaml:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError(f"{where} is {value!r}, which is not a mapping.", "Write it as in the documentation of TFJob.")
    return dict(value)


def _note_placeholders(document: Yaml, notes: list[str]) -> None:
    """Name what a template has left to be filled in, which stays as it is."""
    found = list(dict.fromkeys(_placeholders(document)))
    if found:
        notes.append(
            f"{name_some(found, most=6)}: not filled in, and left unchanged. Fill it in before you start the job."
        )


def _placeholders(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [each for entry in value.values() for each in _placeholders(entry)]
    if isinstance(value, list):
        return [each for entry in value for each in _placeholders(entry)]
    # In a shell's command a $ is the shell's.
    return _PLACEHOLDER.findall(value) if isinstance(value, str) and " " not in value else []
