"""`ElasticOptions`: how the number of workers may change while a model trains."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from stratagem.core.errors import InputError

BELOW_MIN_SECONDS: Final = 600.0
"""How long a run with too few workers waits for others, if the user names no time."""

Batch = Literal["global", "per_worker"]
"""Choice of what keeps its number of rows when the number of workers changes."""

Shards = Literal["copies", "backup"]
"""Choice of where the shards of a lost worker come from."""


@dataclass(frozen=True)
class ElasticOptions:
    """What may change while a model trains, and how far.

    Give it to `MultiWorkerMirroredStrategy(elastic=...)`, and start the program with `stratagem run --spares` or
    `--elastic`. With `ParameterServerStrategy(elastic=...)` it says how many workers there must be
    (docs/parameter_servers.md).

    Args:
        min_workers: Training waits when there are fewer workers than this.
        max_workers: Workers that come later are taken in up to this number; None stands for the number at the start.
            They are started with STRATAGEM_ELASTIC, see docs/elastic.md.
        below_min_seconds: How long a run with too few workers waits for others. After that those who are left do one
            more step, behind which `BackupAndRestore` and `ElasticState.run(save=...)` save, and the run ends with exit
            code 43.
        batch: What keeps its number of rows when the number of workers changes. "global": the batch of all workers, so
            that the numbers stay those of one process, and each worker gets more or fewer rows. "per_worker": the rows
            of each worker, as in Horovod, so that a batch has more or fewer. The program makes its batches for the
            number of workers at the start.
        shards: Where the shards of a lost worker come from, with `shard=`. "copies": each worker keeps a copy of the
            shards of another one, which it gets after every step. "backup": nobody keeps copies. A lost worker ends
            the run with exit code 43, and `stratagem run --max-restarts` resumes it from the backup of
            `BackupAndRestore`. Workers that join get their shards from the others in either case. Without `shard=` it
            means nothing.

    Raises:
        InputError: A value cannot be used.

    Example:
        >>> ElasticOptions(min_workers=2).largest(4)
        4
    """

    min_workers: int = 1
    max_workers: int | None = None
    below_min_seconds: float = BELOW_MIN_SECONDS
    batch: Batch = "global"
    shards: Shards = "copies"

    def __post_init__(self) -> None:
        if type(self.min_workers) is not int or self.min_workers < 1:
            raise InputError(
                f"min_workers is {self.min_workers!r}.",
                "Training needs a worker, and waits as long as there are fewer than min_workers.",
                "Write a whole number, 1 or more, for instance min_workers=2.",
            )
        if self.max_workers is not None and (type(self.max_workers) is not int or self.max_workers < self.min_workers):
            raise InputError(
                f"max_workers is {self.max_workers!r}, min_workers is {self.min_workers}.",
                "No number of workers would be allowed.",
                f"Write a whole number, {self.min_workers} or more. Or leave max_workers out: then the number at the "
                "start is the largest.",
            )
        seconds = self.below_min_seconds
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
            raise InputError(
                f"below_min_seconds is {seconds!r}.",
                "A run with too few workers would wait for others forever, or for an undefined time.",
                f"Write a number of seconds, for instance below_min_seconds={BELOW_MIN_SECONDS:g}.",
            )
        if self.batch not in get_args(Batch):
            raise InputError(
                f"batch is {self.batch!r}.",
                "It says what keeps its number of rows when the number of workers changes.",
                'Write batch="global" or batch="per_worker".',
            )
        if self.shards not in get_args(Shards):
            raise InputError(
                f"shards is {self.shards!r}.",
                "It says where the shards of a lost worker come from.",
                'Write shards="copies" or shards="backup".',
            )

    def check(self, workers: int) -> None:
        """Refuse a number of workers at the start that these options do not allow.

        Args:
            workers: With how many workers the run is started.

        Raises:
            InputError: It is below the least or above the largest.
        """
        most = self.largest(workers)
        if not self.min_workers <= workers <= most:
            raise InputError(
                f"The run is started with {workers} workers; min_workers is {self.min_workers}, max_workers is {most}.",
                "It would begin with a number of workers that its own options do not allow.",
                f"Start it with {self.min_workers} to {most} workers, or change min_workers or max_workers.",
            )

    def encode(self) -> list[float | str | None]:
        """Return the options as a list for JSON."""
        return [self.min_workers, self.max_workers, self.below_min_seconds, self.batch, self.shards]

    @classmethod
    def decode(cls, fields: Any) -> ElasticOptions:
        """Return the options that `encode` wrote; `ValueError` when it is none."""
        if not isinstance(fields, list) or len(fields) != 5:
            raise ValueError(f"{fields!r} are no options")
        return cls(*fields)

    def __str__(self) -> str:
        most = "" if self.max_workers is None else f", max_workers={self.max_workers}"
        batch = "" if self.batch == "global" else f", batch={self.batch!r}"
        shards = "" if self.shards == "copies" else f", shards={self.shards!r}"
        return f"min_workers={self.min_workers}{most}, below_min_seconds={self.below_min_seconds:g}{batch}{shards}"

    def largest(self, workers: int) -> int:
        """Return the largest number of workers.

        Args:
            workers: With how many workers the run is started.
        """
        return max(workers, self.min_workers) if self.max_workers is None else self.max_workers
