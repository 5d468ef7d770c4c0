"""Options of a dataset, set by attribute as in tf.data."""

from __future__ import annotations

import enum
from typing import Any

from stratagem.core.errors import InputError, explain
from stratagem.data import check

AUTOTUNE = -1
"""Stands for "as the library thinks best" in `num_parallel_calls` and `buffer_size`."""


class AutoShardPolicy(enum.IntEnum):
    """The way a dataset is divided among workers (`tf.data.experimental.AutoShardPolicy`).

    OFF: every worker reads everything. AUTO: the library chooses FILE or DATA. FILE: each worker reads its files. DATA:
        each worker reads its rows of every global batch. HINT: the program marks the place with `shard(SHARD_HINT,
        SHARD_HINT)`.
    """

    OFF = -1
    AUTO = 0
    FILE = 1
    DATA = 2
    HINT = 3


class DistributeOptions:
    """Options for distributing a dataset (`tf.data.experimental.DistributeOptions`).

    Example:
        >>> options = DistributeOptions()
        >>> options.auto_shard_policy.name
        'AUTO'
    """

    __slots__ = ("_policy",)

    def __init__(self) -> None:
        self._policy: AutoShardPolicy | None = None

    @property
    def auto_shard_policy(self) -> AutoShardPolicy:
        """How the dataset is divided among workers; AUTO unless set."""
        return AutoShardPolicy.AUTO if self._policy is None else self._policy

    @auto_shard_policy.setter
    def auto_shard_policy(self, policy: AutoShardPolicy) -> None:
        try:
            self._policy = AutoShardPolicy(policy)
        except ValueError:
            raise InputError(
                f"auto_shard_policy is {policy!r}.",
                "Write stratagem.data.AutoShardPolicy.AUTO, DATA, FILE, HINT or OFF.",
            ) from None

    @property
    def auto_shard(self) -> bool:
        """Whether the dataset is divided at all (TensorFlow 2.0 and 2.1); False is the policy OFF."""
        return self.auto_shard_policy is not AutoShardPolicy.OFF

    @auto_shard.setter
    def auto_shard(self, divided: bool) -> None:
        self._policy = AutoShardPolicy.AUTO if divided else AutoShardPolicy.OFF

    def merged(self, later: DistributeOptions) -> DistributeOptions:
        """Return these options with those that `later` sets replaced."""
        out = DistributeOptions()
        out._policy = self._policy if later._policy is None else later._policy
        return out


class Options:
    """Options of a dataset (`tf.data.Options`).

    You can set `deterministic` as in tf.data, but the order of elements is always deterministic. `reader_processes` is
    the number of processes that read batches for each worker, if something reads ahead, as `fit` does. 0, the default,
    reads in threads of the worker.

    Example:
        >>> options = Options()
        >>> options.experimental_distribute.auto_shard_policy = AutoShardPolicy.OFF
        >>> options.experimental_distribute.auto_shard_policy.name
        'OFF'
    """

    __slots__ = ("_reader_processes", "deterministic", "experimental_distribute")

    def __init__(self) -> None:
        self.deterministic = True
        self.experimental_distribute = DistributeOptions()
        self._reader_processes: int | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _ATTRIBUTES and name not in Options.__slots__:  # a pickle sets the slots
            raise AttributeError(
                explain(
                    f"Options has no attribute {name!r}.",
                    "Setting it would have no effect.",
                    f"Remove the line; the attributes are {', '.join(_ATTRIBUTES)}.",
                )
            )
        object.__setattr__(self, name, value)

    @property
    def reader_processes(self) -> int:
        """Number of processes that read batches for each worker; 0 unless set."""
        return self._reader_processes or 0

    @reader_processes.setter
    def reader_processes(self, count: int) -> None:
        remedy = "Write how many processes each worker may start, such as 2, or 0."
        self._reader_processes = check.integer("reader_processes", count, 0, remedy)

    def merged(self, later: Options) -> Options:
        """Return a copy of these options, in which the options that `later` sets are replaced."""
        out = Options()
        out.deterministic = later.deterministic
        out.experimental_distribute = self.experimental_distribute.merged(later.experimental_distribute)
        out._reader_processes = self._reader_processes if later._reader_processes is None else later._reader_processes
        return out


_ATTRIBUTES = ("deterministic", "experimental_distribute", "reader_processes")
