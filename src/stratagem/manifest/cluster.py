"""The cluster in a manifest: TF_CONFIG, and the other variables that a task reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from stratagem.core import environment
from stratagem.core.tunables import NO_CACHE

SECRETS: Final = "/run/secrets/stratagem"
"""Path of the cluster's secret in a container: the file with Compose, its folder in a pod."""

STORAGE: Final = "/mnt/storage"
"""Folder in a container for the files that all tasks share."""

STARTUP_SECONDS: Final = 1800
"""Seconds for which tasks wait for each other, while images are pulled and machines are found."""

SAVING_SECONDS: Final = 120
"""Seconds of a task between SIGTERM and SIGKILL, to end its step and save."""


def tf_config(addresses: Mapping[str, Sequence[str]], task: str, index: str) -> str:
    """Return TF_CONFIG of a task, over lines that a person can read.

    Args:
        addresses: Addresses of the tasks of each type; the evaluator's is left out, as nobody talks to it.
        task: Type of the task.
        index: Its number, or a variable that Kubernetes puts in its place.

    Example:
        >>> print(tf_config({"worker": ["train-0.train:2222", "train-1.train:2222"]}, "worker", "$(TASK_INDEX)"))
        {
          "cluster": {
            "worker": ["train-0.train:2222", "train-1.train:2222"]
          },
          "task": {"type": "worker", "index": $(TASK_INDEX)}
        }
    """
    jobs = ",\n".join(
        f'    "{job}": {json.dumps(list(tasks))}' for job, tasks in addresses.items() if job != "evaluator"
    )
    return f'{{\n  "cluster": {{\n{jobs}\n  }},\n  "task": {{"type": "{task}", "index": {index}}}\n}}'


def settings(storage: str | None, task: str, *, on_cpus: bool) -> dict[str, str]:
    """Return what every task reads beside its place in the cluster and the secret.

    Args:
        storage: Folder that all tasks share, None without one. Compiled programs are kept there.
        task: What the task's own folder there is called. JAX writes compiled programs in place, and on CPUs finds only
            those of the same task, so each task has a folder.
        on_cpus: Whether tasks compute on CPUs. They get the tunable that glibc needs before 2.39; where it is not
            needed, a step of a small model takes as long with it.
    """
    variables = {
        environment.KERAS_BACKEND: "jax",
        environment.PYTHONUNBUFFERED: "1",
        environment.STARTUP_TIMEOUT: str(STARTUP_SECONDS),
        **({environment.GLIBC_TUNABLES: NO_CACHE} if on_cpus else {}),
    }
    if storage is not None:
        folder = f"{storage}/compiled/{task}"
        variables |= {
            environment.COMPILATION_CACHE_DIR: folder,
            environment.OWN_PROGRAMS: folder,
            environment.CACHE_MIN_SECONDS: "0",
            environment.CACHE_OF_XLA: "none",  # their folder would become a part of JAX's key
        }
    return variables
