"""Settings that JAX and XLA's compilers read from the environment when they start."""

from __future__ import annotations

import json
import os
from typing import Final

from stratagem.core import environment
from stratagem.plan.place import Place

SETTINGS: Final = {
    environment.JAX_PLATFORMS: "cpu",  # what the program computes before its first step is computed here
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",  # the plugin refuses to load where there is no driver
    "TPU_SKIP_MDS_QUERY": "1",  # which would wait for the metadata server of Google's cloud
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",  # libtpu looks for the host's own, and says that it found none
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_MIN_LOG_LEVEL": "3",
    "TPU_STDERR_LOG_LEVEL": "3",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # nothing runs on a TPU, so two processes may compile for one
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
"""Variables that are the same for every place."""


def prepare(place: Place) -> None:
    """Set what JAX and the compilers read. JAX must not have been imported.

    Args:
        place: The devices to compile for.
    """
    os.environ.update(SETTINGS)
    # The cluster of this shell is not the one that is planned, and nobody of it would come.
    if os.environ.pop(environment.TF_CONFIG, None) or place.hosts > 1:
        os.environ[environment.TF_CONFIG] = cluster_of(place)
    if place.hardware.platform == "tpu":
        os.environ.pop("XLA_FLAGS", None)  # libtpu has flags of its own, and aborts at one that it does not know
    os.environ[environment.NUM_CPU_DEVICES] = str(place.devices if place.hardware.platform == "cpu" else 1)


def cluster_of(place: Place) -> str:
    """Return the TF_CONFIG of the first of a place's hosts, which a program may read to count its workers.

    Args:
        place: The devices to compile for.

    Example:
        >>> from stratagem.plan.place import place_of
        >>> cluster_of(place_of("2x8xh100"))
        '{"cluster": {"worker": ["host-0:2222", "host-1:2222"]}, "task": {"type": "worker", "index": 0}}'
    """
    workers = [f"host-{number}:2222" for number in range(place.hosts)]
    return json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": 0}})
