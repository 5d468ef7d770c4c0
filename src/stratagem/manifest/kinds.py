"""Kinds of manifests: who writes each, and which options it uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from stratagem.core.errors import InputError
from stratagem.manifest import compose, indexed_job, jobset, sagemaker, slurm, trainjob
from stratagem.manifest.asked import Asked

_OF_SOME: Final = ("workers_per_node", "ps", "evaluator", "port", "namespace", "cpus", "memory")
"""Options that not every kind uses."""


class Kind(NamedTuple):
    """A kind of manifest.

    Args:
        write: Writes it.
        uses: Which of the options that not every kind uses it does use.
        needs_image: Whether there must be an image.
        elsewhere: What to do for what it does not do.
    """

    write: Callable[[Asked], str]
    uses: frozenset[str]
    needs_image: bool
    elsewhere: str


KINDS: Final[Mapping[str, Kind]] = {
    "slurm": Kind(
        slurm.write,
        frozenset(("workers_per_node", "port", "cpus", "memory")),
        False,
        "Let `stratagem run --ps N --evaluator` start the tasks of one node, in a batch script of your own",
    ),
    "jobset": Kind(
        jobset.write, frozenset(("ps", "evaluator", "port", "namespace", "cpus", "memory")), True, "Leave it out"
    ),
    "trainjob": Kind(
        trainjob.write,
        frozenset(("namespace", "cpus", "memory")),
        True,
        "All pods of a TrainJob are workers, on a port of Trainer's: write --for jobset, or leave it out",
    ),
    "indexed-job": Kind(
        indexed_job.write,
        frozenset(("port", "namespace", "cpus", "memory")),
        True,
        "All pods of an Indexed Job are workers: write --for jobset, or leave it out",
    ),
    "sagemaker": Kind(
        sagemaker.write, frozenset(("port",)), True, "All instances are workers, with all that they have: leave it out"
    ),
    "compose": Kind(compose.write, frozenset(("ps", "evaluator", "port", "cpus", "memory")), False, "Leave it out"),
}


def manifest(kind: str, asked: Asked) -> str:
    """Return the manifest of a job.

    Args:
        kind: One of `KINDS`.
        asked: The job.

    Raises:
        InputError: The kind cannot do what was asked for, or lacks something.

    Example:
        >>> manifest("slurm", Asked(("train.py",), "train")).splitlines()[0]
        '#!/bin/bash'
    """
    how = KINDS[kind]
    plain = Asked(asked.program, asked.name)
    for option in _OF_SOME:
        if option not in how.uses and getattr(asked, option) != getattr(plain, option):
            word = f"--{option.replace('_', '-')}"
            raise InputError(f"--for {kind} has no use for {word}.", f"{how.elsewhere}.")
    if how.needs_image and not asked.image:
        raise InputError(
            f"--for {kind} was asked for without --image.",
            "Name an image that has the program, Keras and Stratagem; deploy/Dockerfile builds one.",
        )
    return how.write(asked)
