"""Public values that several layers share: reduce operations, options, contexts."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Final, Literal

from stratagem.core.errors import InputError


class ReduceOp(enum.Enum):
    """The operation that combines the values of the replicas (`tf.distribute.ReduceOp`, plus MIN and MAX)."""

    SUM = "sum"
    MEAN = "mean"
    MIN = "min"
    MAX = "max"

    @classmethod
    def of(cls, op: ReduceOp | str) -> ReduceOp:
        """Return `op` as a `ReduceOp`; TensorFlow accepts "sum" and "MEAN" as well.

        Args:
            op: A `ReduceOp` or its name in any case.

        Raises:
            InputError: The name is not one of SUM, MEAN, MIN, MAX.

        Example:
            >>> ReduceOp.of("SUM")
            <ReduceOp.SUM: 'sum'>
        """
        if isinstance(op, cls):
            return op
        try:
            return cls(str(op).lower())
        except ValueError:
            raise InputError(f"reduce_op is {op!r}.", "Write stratagem.ReduceOp.SUM, MEAN, MIN or MAX.") from None


class CommunicationImplementation(enum.Enum):
    """The way in which bytes move between workers (`tf.distribute.experimental.CommunicationImplementation`).

    If all workers have one CPU device each, AUTO uses shared memory between the workers of a host, and connections of
    their own between hosts. In all other cases, and with RING and NCCL, XLA's collectives are used: Gloo on CPUs, NCCL
    on GPUs.
    """

    AUTO = "AUTO"
    RING = "RING"
    NCCL = "NCCL"


CompressionName = Literal["bf16", "int8", "powersgd"]
"""Ways in which gradients can travel in fewer bytes."""

_COMPRESSIONS: Final = ("bf16", "int8", "powersgd")
_RANK: Final = 4


@dataclass(frozen=True)
class CommunicationOptions:
    """Options for how gradients travel between replicas (`tf.distribute.experimental.CommunicationOptions`).

    TensorFlow has no compression. Each of the three kinds leaves a part of the gradient out. The replica keeps that
    part and adds it to the next gradient, so it comes late but is not lost (error feedback: Karimireddy et al. 2019,
    https://arxiv.org/abs/1901.09847). Results differ from those of one device, but all replicas keep the same weights.

    Args:
        bytes_per_pack: Size in bytes of the packs into which gradients are joined before they are summed over replicas.
            0 chooses: one pack for each dtype, packs of 6 MB on several GPUs, and no packs where they would only cost
            copies.
        timeout_seconds: Longest time a step may wait for the other workers, in seconds. None means
            the default of the cluster.
        implementation: AUTO, RING or NCCL.
        compression: How float32 gradients are compressed; None sends them as they are. "bf16": 2 bytes for each number
            instead of 4. "int8": 1 byte for each number, and 4 bytes for each 256 numbers. "powersgd": two narrow
            matrices in place of each matrix (Vogels et al. 2019, https://arxiv.org/abs/1905.13727).
        compression_rank: Columns of the narrow matrices of "powersgd"; None means 4.

    Example:
        >>> CommunicationOptions(bytes_per_pack=50 * 1024 * 1024).bytes_per_pack
        52428800
    """

    bytes_per_pack: int = 0
    timeout_seconds: float | None = None
    implementation: CommunicationImplementation = CommunicationImplementation.AUTO
    compression: CompressionName | None = None
    compression_rank: int | None = None

    @property
    def rank(self) -> int:
        """Columns of the narrow matrices of "powersgd"."""
        return self.compression_rank or _RANK

    def __post_init__(self) -> None:
        self._check_compression()
        if self.bytes_per_pack < 0:
            raise InputError(f"bytes_per_pack is {self.bytes_per_pack}.", "Write a size in bytes, or 0 for one pack.")
        if self.timeout_seconds is not None and self.timeout_seconds <= 0:
            raise InputError(
                f"timeout_seconds is {self.timeout_seconds}.",
                "Write a positive number of seconds, or None for the default.",
            )
        if not isinstance(self.implementation, CommunicationImplementation):
            raise InputError(
                f"implementation is {self.implementation!r}.", "Write CommunicationImplementation.AUTO, RING or NCCL."
            )

    def _check_compression(self) -> None:
        if self.compression not in (None, *_COMPRESSIONS):
            raise InputError(
                f"compression is {self.compression!r}.",
                f"Write {', '.join(map(repr, _COMPRESSIONS))}, or None to send them as they are.",
            )
        if self.compression_rank is None:
            return
        if self.compression != "powersgd":
            raise InputError(
                f"compression_rank is {self.compression_rank!r} and compression is {self.compression!r}.",
                'Only "powersgd" has a rank, so compression_rank would have no effect.',
                'Write compression="powersgd", or leave the rank out.',
            )
        if not isinstance(self.compression_rank, int) or self.compression_rank < 1:
            raise InputError(
                f"compression_rank is {self.compression_rank!r}.",
                "Write a small whole number. The paper on PowerSGD trains with 1 to 4.",
            )


def checked_options(options: Any) -> CommunicationOptions:
    """Return what a program gave as `communication_options`; the defaults for None.

    Raises:
        InputError: They are none.
    """
    if options is not None and not isinstance(options, CommunicationOptions):
        raise InputError(
            f"communication_options is {options!r}, of type {type(options).__name__}.",
            "Write stratagem.CommunicationOptions(implementation=stratagem.CommunicationImplementation.RING).",
        )
    return options or CommunicationOptions()


@dataclass(frozen=True)
class InputContext:
    """Facts about the worker for an input function (`tf.distribute.InputContext`).

    Args:
        num_input_pipelines: Number of workers that divide the data; 1 with parameter servers, where each worker reads
            all.
        input_pipeline_id: Index of this worker among them, from 0.
        num_replicas_in_sync: Number of replicas over which gradients are summed.
    """

    num_input_pipelines: int = 1
    input_pipeline_id: int = 0
    num_replicas_in_sync: int = 1

    def __str__(self) -> str:
        total = self.num_input_pipelines
        return f"tf.distribute.InputContext(input pipeline id {self.input_pipeline_id}, total: {total})"

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Return the batch size of one replica.

        Args:
            global_batch_size: Rows in a batch over all replicas.

        Raises:
            InputError: The replicas cannot share the batch equally.

        Example:
            >>> InputContext(num_replicas_in_sync=4).get_per_replica_batch_size(128)
            32
        """
        if global_batch_size % self.num_replicas_in_sync:
            raise InputError(
                f"global_batch_size is {global_batch_size}, num_replicas_in_sync is {self.num_replicas_in_sync}.",
                f"Use a multiple of {self.num_replicas_in_sync}.",
            )
        return global_batch_size // self.num_replicas_in_sync


@dataclass(frozen=True)
class ValueContext:
    """Facts about the replica for a value function (`tf.distribute.experimental.ValueContext`).

    Args:
        replica_id_in_sync_group: Index of the replica that the value is for, from 0.
        num_replicas_in_sync: Number of replicas.
    """

    replica_id_in_sync_group: int = 0
    num_replicas_in_sync: int = 1


class InputReplicationMode(enum.Enum):
    """Whether an input function is called for each worker or each replica (`tf.distribute.InputReplicationMode`).

    PER_WORKER: once on each worker, whose replicas take its batches in turn. PER_REPLICA: once for each
    replica; only with `distribute_datasets_from_function`, on one worker.
    """

    PER_WORKER = "PER_WORKER"
    PER_REPLICA = "PER_REPLICA"


@dataclass(frozen=True)
class InputOptions:
    """Options for reading a distributed dataset (`tf.distribute.InputOptions`).

    Args:
        experimental_fetch_to_device: Accepted as in TensorFlow; elements are always on the devices.
        experimental_replication_mode: Whether an input function is called for each worker or for each replica.
        experimental_place_dataset_on_device: Accepted or refused as in TensorFlow; the host reads datasets.
        experimental_per_replica_buffer_size: Number of batches for each replica to read ahead in the background; 0
            reads each batch on request.

    Example:
        >>> InputOptions(experimental_per_replica_buffer_size=0).experimental_replication_mode.name
        'PER_WORKER'
    """

    experimental_fetch_to_device: bool = True
    experimental_replication_mode: InputReplicationMode = InputReplicationMode.PER_WORKER
    experimental_place_dataset_on_device: bool = False
    experimental_per_replica_buffer_size: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.experimental_replication_mode, InputReplicationMode):
            raise InputError(
                f"experimental_replication_mode is {self.experimental_replication_mode!r}.",
                "Write stratagem.InputReplicationMode.PER_WORKER or PER_REPLICA.",
            )
        if self.experimental_per_replica_buffer_size < 0:
            raise InputError(
                f"experimental_per_replica_buffer_size is {self.experimental_per_replica_buffer_size}.",
                "The number of batches to read ahead cannot be below 0.",
                "Write a number of batches, or 0 to read each batch only when it is needed.",
            )


@dataclass(frozen=True)
class RunOptions:
    """Options of `strategy.run` (`tf.distribute.RunOptions`), accepted without effect.

    TensorFlow uses them on TPUs only. Here a program is compiled for each shape of batch, and a partial batch runs on
    exactly its rows.

    Args:
        experimental_enable_dynamic_batch_size: Accepted as in TensorFlow.
        experimental_bucketizing_dynamic_shape: Accepted as in TensorFlow.
        experimental_xla_options: Accepted as in TensorFlow.
    """

    experimental_enable_dynamic_batch_size: bool = True
    experimental_bucketizing_dynamic_shape: bool = False
    experimental_xla_options: object = None
