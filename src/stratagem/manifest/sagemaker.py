"""A training job of SageMaker, as a program that asks for it."""

from __future__ import annotations

from typing import Any, Final

from stratagem.core import environment, exits
from stratagem.core.errors import InputError
from stratagem.manifest import cluster
from stratagem.manifest.asked import Asked

INSTANCES: Final = {0: "ml.m5.2xlarge", 1: "ml.g5.2xlarge", 4: "ml.g5.12xlarge", 8: "ml.g5.48xlarge"}
"""An instance with so many GPUs, of those that most accounts may use."""

CHECKPOINTS: Final = "/opt/ml/checkpoints"
"""The folder that SageMaker copies to S3 while a job runs, and back when it starts again."""

_TEXT: Final = '''\
"""A training job of SageMaker, written by

    {written_by}

Not run at Amazon: the request was checked against the published model of the service, and its command and hosts trained
in network namespaces. `pip install boto3` is needed, and the role and the BUCKET below are yours.

Start it with `python FILE`. Each instance is one worker, with all its GPUs. It finds the others in a file that
SageMaker lays into every container, so the image needs no toolkit of Amazon's, only Stratagem and the program.
"""

import secrets
import time

import boto3

request = {request}

if __name__ == "__main__":
    boto3.client("sagemaker").create_training_job(**request)
    print(request["TrainingJobName"])
'''


class _Code(str):
    """An expression that stands in the program as it is."""


def write(asked: Asked) -> str:
    """Return a program that starts workers as a training job.

    Args:
        asked: The job. Its storage is an address in S3.

    Raises:
        InputError: No instance is known with so many GPUs, or the storage is not in S3.

    Example:
        >>> '"InstanceCount": 2' in write(Asked(("train.py",), "train", image="train:1", workers=2))
        True
    """
    if asked.gpus not in INSTANCES:
        raise InputError(
            f"--gpus is {asked.gpus}.",
            "A worker has all GPUs of its instance, and no instance is known here with so many.",
            f"Ask for one of {', '.join(map(str, INSTANCES))}, and change InstanceType in the file.",
        )
    if asked.storage and not asked.storage.startswith("s3://"):
        raise InputError(
            f"--storage is {asked.storage!r}.",
            "SageMaker keeps what a job writes in S3.",
            "Write --storage s3://BUCKET/FOLDER.",
        )
    return _TEXT.format(written_by=asked.written_by, request=_written(_request(asked), 0))


def _request(asked: Asked) -> dict[str, Any]:
    """Return what `create_training_job` takes. A key that begins with "#" is a comment."""
    variables: dict[str, Any] = {
        "# The secret keeps strangers out of the cluster. Anybody who may describe the job can read it.": None,
        environment.SECRET: _Code("secrets.token_hex(32)"),
        **cluster.settings(None, "", on_cpus=not asked.gpus),
    }
    if asked.port:
        variables[environment.PORT] = str(asked.port)
    bucket = asked.storage or "s3://BUCKET/" + asked.name
    return {
        "TrainingJobName": _Code(f"f\"{asked.name}-{{time.strftime('%Y%m%d-%H%M%S')}}\""),
        "RoleArn": "arn:aws:iam::000000000000:role/ROLE",
        "AlgorithmSpecification": {
            "TrainingImage": asked.image,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": asked.command,
        },
        "ResourceConfig": {
            "InstanceType": INSTANCES[asked.gpus],
            "InstanceCount": asked.workers,
            "VolumeSizeInGB": 50,
        },
        "Environment": variables,
        "# SageMaker encrypts the traffic between instances. JAX and Gloo do not.": None,
        "EnableInterContainerTrafficEncryption": True,
        "StoppingCondition": {"MaxRuntimeInSeconds": 86400},
        f"# True uses spot instances. If one is taken back, all workers save and exit with {exits.PREEMPTED}.": None,
        "# SageMaker restarts them within MaxWaitTimeInSeconds of StoppingCondition.": None,
        "EnableManagedSpotTraining": False,
        "# Only after errors of SageMaker itself. It does not restart a job because of an exit code.": None,
        "RetryStrategy": {"MaximumRetryAttempts": asked.max_restarts or 1},
        f"# Let BackupAndRestore write to {CHECKPOINTS}: SageMaker copies it to S3 and back.": None,
        "CheckpointConfig": {"S3Uri": f"{bucket}/checkpoints", "LocalPath": CHECKPOINTS},
        "OutputDataConfig": {"S3OutputPath": f"{bucket}/output"},
    }


def _written(value: Any, indent: int) -> str:
    """Return a value as Python over several lines."""
    space = " " * (indent + 4)
    if isinstance(value, dict):
        lines = [
            f"{space}{key}" if key.startswith("#") else f'{space}"{key}": {_written(entry, indent + 4)},'
            for key, entry in value.items()
        ]
        return "\n".join(["{", *lines, " " * indent + "}"])
    if isinstance(value, list):
        return f"[{', '.join(_written(each, indent) for each in value)}]"
    return value if isinstance(value, _Code) else _literal(value)


def _literal(value: Any) -> str:
    """Return a single value as Python writes it, with double quotes where that needs no escape."""
    text = repr(value)
    return f'"{value}"' if isinstance(value, str) and text == f"'{value}'" and '"' not in value else text
