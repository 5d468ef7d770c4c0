"""A compose file: the tasks as containers of one machine, to try an image before it goes to a cluster."""

from __future__ import annotations

from typing import Any, Final

from stratagem.core import environment
from stratagem.manifest import cluster
from stratagem.manifest.asked import PORT, Asked
from stratagem.manifest.yaml_text import Anchor, Merged, Note, documents

_HEAD: Final = """\
Tasks as containers of one machine, for Docker Compose or Podman, written by
    {written_by}

Not run with a daemon: the file was checked against the published schema, and its commands, variables and host names
trained in network namespaces.

Create the secret once, beside this file. It keeps strangers out of the cluster:
    openssl rand -hex 32 > secret
    chmod 644 secret  # a container's user reads it; keep its folder to yourself (chmod 700)
Start, see what all tasks print, and end with Ctrl-C:
    docker compose -f FILE up{build}
"""


def write(asked: Asked) -> str:
    """Return the compose file of all tasks.

    Args:
        asked: The job. Its storage is a folder of this machine, or the name of a volume. Without an image it is built
            from the Dockerfile beside the file.

    Example:
        >>> "worker-1:2222" in write(Asked(("train.py",), "train", workers=2))
        True
    """
    port = asked.port or PORT
    addresses = {task: [f"{task}-{index}:{port}" for index in range(count)] for task, count in asked.counts.items()}
    services: dict[str, Any] = {}
    for task, count in asked.counts.items():
        for index in range(count):
            services[f"{task}-{index}"] = _service(asked, addresses, task, index)
    document: dict[str, Any] = {
        "name": asked.name,
        "x-variables": Note(Anchor("variables", _variables(asked)), "Variables of all tasks."),
        "x-task": Anchor("task", _task(asked)),
        "services": services,
        "secrets": {"stratagem": {"file": "./secret"}},
    }
    if asked.storage and not _is_folder(asked.storage):
        document["volumes"] = {asked.storage: {}}
    return documents(_HEAD.format(written_by=asked.written_by, build="" if asked.image else " --build"), document)


def _variables(asked: Asked) -> dict[str, Any]:
    return {environment.SECRET_FILE: cluster.SECRETS, **cluster.settings(None, "", on_cpus=not asked.gpus)}


def _task(asked: Asked) -> dict[str, Any]:
    """Return what the services of all tasks have alike."""
    task: dict[str, Any] = {"image": asked.image or f"{asked.name}:latest"}
    if asked.image is None:
        task["build"] = "."
    return {
        **task,
        "command": [word.replace("$", "$$") for word in asked.command],  # for Compose, $ begins a variable
        "init": True,
        "secrets": ["stratagem"],
        **({"volumes": [f"{asked.storage}:{cluster.STORAGE}"]} if asked.storage else {}),
        "restart": Note(
            f"on-failure:{asked.max_restarts}" if asked.max_restarts else "no",
            "Compose does not look at exit codes: it also restarts after an exception of the program.",
        ),
        "stop_grace_period": Note(
            f"{cluster.SAVING_SECONDS}s", "After SIGTERM all workers stop after the same step, save, and exit with 42."
        ),
    }


def _service(asked: Asked, addresses: dict[str, list[str]], task: str, index: int) -> dict[str, Any]:
    """Return the service of one task."""
    config = cluster.tf_config(addresses, task, str(index))
    variables: dict[str, Any] = {"<<": Merged("variables"), environment.TF_CONFIG: config}
    if asked.storage:
        own = cluster.settings(cluster.STORAGE, f"{task}-{index}", on_cpus=not asked.gpus)
        variables |= {name: value for name, value in own.items() if name not in _variables(asked)}
    service: dict[str, Any] = {"<<": Merged("task"), "environment": variables}
    if resources := _resources(asked, task, index):
        service["deploy"] = {"resources": resources}
    return service


def _resources(asked: Asked, task: str, index: int) -> dict[str, Any]:
    """Return limits of a task, and its GPUs: the workers of a machine divide them in order, the chief comes first."""
    limits = {
        name: value
        for name, value in (("cpus", asked.cpus and str(asked.cpus)), ("memory", asked.memory and asked.memory[:-1]))
        if value
    }
    resources: dict[str, Any] = {"limits": limits} if limits else {}
    if asked.gpus and task in ("chief", "worker"):
        position = index + (1 if task == "worker" and asked.ps else 0)
        own = [str(gpu) for gpu in range(position * asked.gpus, (position + 1) * asked.gpus)]
        devices = [{"driver": "nvidia", "device_ids": own, "capabilities": ["gpu"]}]
        resources["reservations"] = {"devices": devices}
    return resources


def _is_folder(storage: str) -> bool:
    return storage.startswith((".", "/", "~"))
