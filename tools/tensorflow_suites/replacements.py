"""Public equivalents of private names that many tests use, where TensorFlow does not export the name itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from absl import logging
from tools.tensorflow_suites.shims.listening import check_alive
from tools.tensorflow_suites.verdicts import GRAPHS, PRIVATE, NotApplicable

import stratagem.tf as tf
from stratagem.cluster_resolver import SageMakerClusterResolver
from stratagem.replica.on_read import OnReadVariable
from stratagem.strategy.extended import StrategyExtended


def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing: variables have their values as soon as they are made."""


def _variable(*arguments: Any, use_resource: bool | None = None, **named: Any) -> Any:
    """Make a variable; it is a resource in TensorFlow 2 whatever one says."""
    return tf.Variable(*arguments, **named)


def _true(*_: Any) -> bool:
    """Return True: batches are global, for every strategy."""
    return True


def _is_tpu_strategy(strategy: Any) -> bool:
    """Return whether a strategy is one for TPUs."""
    return isinstance(strategy, tf.distribute.TPUStrategy)


def _num_gpus() -> int:
    """Return the number of GPUs."""
    return len(tf.config.list_physical_devices("GPU"))


class _InParts(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return len(getattr(instance, "variables", ())) > 1


class _ShardedVariable(metaclass=_InParts):
    """Class for `isinstance`: a variable in several parts. TensorFlow exports none that makes one of variables."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise NotApplicable(PRIVATE, "ShardedVariable, made of variables")


_LOGGING: Final = "tensorflow.python.platform.tf_logging"


class _IsTensor(type):
    """Metaclass of the protocol of tensors and variables."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return tf.is_tensor(instance)


class _Tensor(metaclass=_IsTensor):
    """A class of all tensors and variables."""


class _OfSavedGraphs(type):
    """Metaclass of a name of graphs."""

    def __getattr__(cls, name: str) -> Any:
        raise NotApplicable(GRAPHS, "how a saved graph holds variables")


class _VariablePolicy(metaclass=_OfSavedGraphs):
    """A name for ways in which a saved graph holds variables."""


class _IsExtended(type):
    """Metaclass of classes that tests tell strategies apart by."""

    kind: type | tuple[type, ...]

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(getattr(instance, "_strategy", None), cls.kind)


def _extended_of(kind: type | tuple[type, ...]) -> type:
    """Return a class for the `extended` of one kind of strategy."""
    return _IsExtended("Extended", (), {"kind": kind})


class _IsComposite(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, tf.RaggedTensor | tf.SparseTensor)


class _CompositeTensor(metaclass=_IsComposite):
    """A class of tensors in several parts. Iterators and variables are none here."""


def _jobs_of(cluster_spec: Any) -> Mapping[str, Any]:
    """Return the tasks of each job of a strategy's cluster."""
    if not isinstance(cluster_spec, tf.train.ClusterSpec):
        raise NotApplicable(PRIVATE, "what is no ClusterSpec: a test of the helper itself")
    return cluster_spec.as_dict()


def _worker_count(cluster_spec: Any, task_type: str) -> int:
    """Return how many workers there are, the chief among them."""
    return sum(len(_jobs_of(cluster_spec).get(job, ())) for job in ("chief", "worker"))


def _id_in_cluster(cluster_spec: Any, task_type: str, task_id: int) -> int:
    """Return which of the workers a task is; the chief is the first."""
    chiefs = len(_jobs_of(cluster_spec).get("chief", ()))
    return task_id + (chiefs if task_type == "worker" else 0)


def _select_replica(replica: int, structure: Any) -> Any:
    """Return what a replica of this worker has of a structure."""
    return tf.nest.map_structure(
        lambda value: value.values[replica] if isinstance(value, tf.distribute.DistributedValues) else value, structure
    )


def _make_input_context(extended: Any) -> Any:
    """Return which part of the input is this worker's."""
    strategy = extended._strategy
    resolver = strategy.cluster_resolver
    spec, kind, index = resolver.cluster_spec(), resolver.task_type, resolver.task_id
    return tf.distribute.InputContext(
        max(1, _worker_count(spec, kind)), _id_in_cluster(spec, kind, index or 0), strategy.num_replicas_in_sync
    )


setattr(StrategyExtended, "_make_input_context", _make_input_context)  # noqa: B010


class _LossesUtils:
    """A name for the module that `tf_keras.losses` has of its own."""

    ReductionV2 = tf.keras.losses.Reduction


_DISTRIBUTE: Final = "tensorflow.python.distribute"


class _OfStratagem(type):
    """Metaclass of the name: values that a strategy has made belong to it."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, tf.distribute.DistributedValues)


class _DistributedValues(metaclass=_OfStratagem):
    """A name for a test of types; what a test makes with it is TensorFlow's own kind of values.

    Args:
        _: One value for each replica.
    """

    def __init__(self, *_: Any) -> None:
        raise NotApplicable(PRIVATE, "DistributedValues made of a list")


class _IsPerReplica(type):
    """Metaclass of the name of per-replica values."""

    def __call__(cls, components: Sequence[Any]) -> Any:
        strategy = tf.distribute.get_strategy()
        if strategy.num_replicas_in_sync != len(components):
            raise NotApplicable(PRIVATE, "PerReplica made of a list outside the scope of its strategy")
        return strategy.experimental_distribute_values_from_function(
            lambda context: components[context.replica_id_in_sync_group]
        )

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, tf.distribute.DistributedValues)


class _PerReplica(metaclass=_IsPerReplica):
    """A name for values that a test makes of a list: one for each replica of the strategy whose scope is open."""


def _is_sync_on_read(variable: Any) -> bool:
    """Return whether each replica has a value of its own."""
    return isinstance(variable, OnReadVariable)


def _is_mirrored(variable: Any) -> bool:
    """Return whether a strategy made a variable with one value."""
    return isinstance(variable, tf.Variable) and not _is_sync_on_read(variable) and hasattr(variable, "values")


@contextlib.contextmanager
def _policy_scope(policy: Any) -> Iterator[None]:
    """Set a policy of dtypes for a while."""
    before = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy(policy)
    try:
        yield
    finally:
        tf.keras.mixed_precision.set_global_policy(before)


def _always_record_summaries() -> Any:
    """Return a context in which summaries are written."""
    return tf.summary.record_if(True)


replacements: Final[Mapping[str, Any]] = {
    f"{_DISTRIBUTE}.tpu_strategy.TPUExtended": _extended_of(tf.distribute.TPUStrategy),
    f"{_DISTRIBUTE}.collective_all_reduce_strategy.CollectiveAllReduceExtended": _extended_of(
        tf.distribute.MultiWorkerMirroredStrategy
    ),
    # The one of TensorFlow 1.
    f"{_DISTRIBUTE}.parameter_server_strategy.ParameterServerStrategyExtended": _extended_of(()),
    f"{_DISTRIBUTE}.multi_worker_util.worker_count": _worker_count,
    f"{_DISTRIBUTE}.multi_worker_util.id_in_cluster": _id_in_cluster,
    f"{_DISTRIBUTE}.distribute_utils.select_replica": _select_replica,
    "tensorflow.python.framework.composite_tensor.CompositeTensor": _CompositeTensor,
    "tensorflow.python.types.core.Tensor": _Tensor,
    "tensorflow.python.eager.context._reset_context": _nothing,
    "tensorflow.python.framework.ops.convert_to_tensor": tf.convert_to_tensor,
    "tensorflow.python.saved_model.save_options.VariablePolicy": _VariablePolicy,
    "tensorflow.python.ops.variables.global_variables_initializer": _nothing,
    "tensorflow.python.ops.variables.variables_initializer": _nothing,
    "tensorflow.python.ops.variables.VariableV1": _variable,
    "tensorflow.python.ops.variable_v1.VariableV1": _variable,
    "tensorflow.python.ops.variable_scope.variable": _variable,
    "tensorflow.python.distribute.distribute_lib._get_default_strategy": tf.distribute.get_strategy,
    "tensorflow.compat.v1.global_variables_initializer": _nothing,
    "tf_keras.saving.legacy.save.load_model": tf.keras.models.load_model,
    "tf_keras.saving.legacy.save.save_model": tf.keras.models.save_model,
    "tf_keras.distribute.distributed_training_utils.global_batch_size_supported": _true,
    "tensorflow.python.framework.sparse_tensor.is_sparse": tf.keras.backend.is_sparse,
    "tf_keras.losses.losses_utils": _LossesUtils,
    "tf_keras.backend.is_tpu_strategy": _is_tpu_strategy,
    "tf_keras.mixed_precision.policy.policy_scope": _policy_scope,
    "tf_keras.optimizers.adam_legacy": tf.keras.optimizers.legacy,
    "tensorflow.python.eager.context.num_gpus": _num_gpus,
    "tensorflow.python.eager.context.check_alive": check_alive,
    "tensorflow.python.eager.context.async_wait": _nothing,
    **{f"{_LOGGING}.{name}": getattr(logging, name) for name in ("info", "warning", "debug")},
    "tensorflow.python.distribute.sharded_variable.ShardedVariable": _ShardedVariable,
    "tensorflow.python.distribute.cluster_resolver.sagemaker_cluster_resolver.SageMakerClusterResolver": (
        SageMakerClusterResolver
    ),
    "tensorflow.python.distribute.distribute_lib._get_default_replica_context": tf.distribute.get_replica_context,
    "tensorflow.python.distribute.values.DistributedValues": _DistributedValues,
    "tensorflow.python.distribute.values.PerReplica": _PerReplica,
    f"{_DISTRIBUTE}.distribute_utils.is_mirrored": _is_mirrored,
    f"{_DISTRIBUTE}.distribute_utils.is_sync_on_read": _is_sync_on_read,
    "tensorflow.python.eager.context.set_global_seed": tf.random.set_seed,
    "tensorflow.python.ops.init_ops_v2.GlorotUniform": tf.keras.initializers.GlorotUniform,
    "tensorflow.python.ops.summary_ops_v2.always_record_summaries": _always_record_summaries,
}
