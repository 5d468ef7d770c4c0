"""Request for a manifest: a program, how many tasks of which type, and what each of them needs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from stratagem.core.errors import InputError

PORT: Final = 2222
"""Default port of tasks. All may have the same one, because every pod and service has its own address."""

MOST_WORKERS: Final = 4096
"""More are a slip of the finger."""

_NAME: Final = re.compile(r"[a-z](?:[a-z0-9-]*[a-z0-9])?")
_LONGEST_NAME: Final = 40
"""A name of Kubernetes has 63 characters at most, of which a pod of a JobSet adds some: -evaluator-0-4095."""


@dataclass(frozen=True)
class Asked:
    """A job as the options of `stratagem manifest` describe it.

    Args:
        program: Words of the command behind `python`: a file or `-m` and a module, and the program's own arguments.
        name: Name of the job.
        image: Image of containers that has the program and Stratagem; None where none was named.
        workers: How many workers train together.
        workers_per_node: How many of them run on one machine, where the kind lets one choose.
        gpus: GPUs of each worker.
        ps: How many parameter servers; with them there is a chief too.
        evaluator: Whether a task evaluates beside training.
        port: Where tasks listen; None where it was left open.
        namespace: Namespace of Kubernetes; None is that of the caller.
        storage: Files that all tasks share; the kind says what this names.
        cpus: Processors of each task; None asks for none.
        memory: Memory of each task, as 16Gi; None asks for none.
        max_restarts: How often all tasks may be started again after a failure.
        written_by: The command line, for the comment at the top.

    Raises:
        InputError: A name or a number cannot be used.

    Example:
        >>> Asked(("train.py",), "train", workers=2, ps=1).counts
        {'chief': 1, 'worker': 2, 'ps': 1}
    """

    program: tuple[str, ...]
    name: str
    image: str | None = None
    workers: int = 2
    workers_per_node: int = 1
    gpus: int = 0
    ps: int = 0
    evaluator: bool = False
    port: int | None = None
    namespace: str | None = None
    storage: str | None = None
    cpus: int | None = None
    memory: str | None = None
    max_restarts: int = 3
    written_by: str = "stratagem manifest"

    def __post_init__(self) -> None:
        check_name(self.name)
        if not 1 <= self.workers <= MOST_WORKERS:
            raise InputError(f"--workers is {self.workers}.", f"Ask for 1 to {MOST_WORKERS} workers.")
        if self.workers % self.workers_per_node:
            raise InputError(
                f"--workers is {self.workers}, --workers-per-node is {self.workers_per_node}.",
                "Some machine would have fewer workers than the others.",
                "Ask for a multiple of what one machine has.",
            )
        if self.memory is not None and not re.fullmatch(r"[1-9][0-9]*(Mi|Gi|Ti)", self.memory):
            raise InputError(f"--memory is {self.memory!r}.", "Write a whole number with Mi, Gi or Ti, as in 16Gi.")

    @property
    def counts(self) -> dict[str, int]:
        """Number of tasks of each type. The evaluator comes last, and does not belong to the cluster."""
        counts = {"chief": 1} if self.ps else {}
        counts["worker"] = self.workers
        if self.ps:
            counts["ps"] = self.ps
        return counts | ({"evaluator": 1} if self.evaluator else {})

    @property
    def command(self) -> list[str]:
        """The command of each task."""
        return ["python", *self.program]


def check_name(name: str, where: str = "--name") -> None:
    """Refuse a name that Kubernetes would refuse, or that leaves no room for what is added to it.

    Args:
        name: The name of a job.
        where: Where it is written.

    Raises:
        InputError: It is such a name.
    """
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        raise InputError(
            f"{name!r} cannot be the name of a job.",
            "Host names are made of it.",
            f"Write {where} with small letters, digits and dashes, at most {_LONGEST_NAME}, a letter first.",
        )


def name_of(program: str) -> str:
    """Return a name for a job that runs a program.

    Args:
        program: A file or a module.

    Example:
        >>> name_of("experiments/Train_MNIST.py"), name_of("package.train"), name_of("42.py")
        ('train-mnist', 'train', 'job-42')
    """
    last = program.removesuffix(".py").replace(".", "/").rstrip("/").rpartition("/")[2].lower()
    words = "-".join(re.findall(r"[a-z0-9]+", last)) or "job"
    return (words if words[0].isalpha() else f"job-{words}")[:_LONGEST_NAME].rstrip("-")
