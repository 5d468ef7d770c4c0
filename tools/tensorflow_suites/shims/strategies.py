"""Stand-in for the list of strategies that TensorFlow's tests run with. A CPU stands in each GPU's place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tools.tensorflow_suites.shims.combinations import NamedDistribution

import stratagem.tf as tf


def _mirrored(*devices: str) -> Callable[[], Any]:
    return lambda: tf.distribute.MirroredStrategy(list(devices))


def _central(*devices: str) -> Callable[[], Any]:
    return lambda: tf.distribute.experimental.CentralStorageStrategy(list(devices))


def _servers(workers: int, servers: int) -> Callable[[], Any]:
    def make() -> Any:
        from tools.tensorflow_suites.shims.clusters import Cluster

        return tf.distribute.ParameterServerStrategy(Cluster(workers, servers).cluster_resolver)

    return make


def _make_of_several() -> Any:
    # As TensorFlow's tests make it: some ask its resolver for the GPUs.
    environment = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        environment.cluster_spec(),
        task_type=environment.task_type,
        task_id=environment.task_id,
        num_accelerators={"GPU": 0},
    )
    return tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)


def _get_multi_worker_mirrored_creator(required_gpus: int, **_: Any) -> Callable[[], Any]:
    """Return what makes a strategy of several workers, for combinations that a file has of its own."""
    return _make_of_several


def _deferred_pool_runner(**_: Any) -> None:
    """Return nothing in the place of a pool of processes: `__main__` starts them."""


def _several(name: str, workers: int, needs: str = "") -> NamedDistribution:
    return NamedDistribution(name, _make_of_several, num_workers=workers - 1, has_chief=True, needs=needs)


default_strategy = NamedDistribution("Default", tf.distribute.get_strategy)
one_device_strategy = NamedDistribution("OneDeviceCPU", lambda: tf.distribute.OneDeviceStrategy("/cpu:0"))
one_device_strategy_gpu = NamedDistribution("OneDeviceGPU", lambda: tf.distribute.OneDeviceStrategy("/cpu:1"), 1)
one_device_strategy_on_worker_1 = NamedDistribution("OneDeviceOnWorker1CPU", lambda: None, needs="a remote worker")
one_device_strategy_gpu_on_worker_1 = NamedDistribution("OneDeviceOnWorker1GPU", lambda: None, needs="a remote worker")
mirrored_strategy_with_one_cpu = NamedDistribution("Mirrored1CPU", _mirrored("/cpu:0"))
mirrored_strategy_with_one_gpu = NamedDistribution("Mirrored1GPU", _mirrored("/cpu:1"), 1)
mirrored_strategy_with_gpu_and_cpu = NamedDistribution("MirroredCPUAndGPU", _mirrored("/cpu:1", "/cpu:0"), 1)
mirrored_strategy_with_two_cpus = NamedDistribution("Mirrored2CPUs", _mirrored("/cpu:0", "/cpu:1"))
mirrored_strategy_with_two_gpus = NamedDistribution("Mirrored2GPUs", _mirrored("/cpu:1", "/cpu:2"), 2)
mirrored_strategy_with_two_gpus_no_merge_call = NamedDistribution(
    "Mirrored2GPUsNoMergeCall", lambda: None, needs="two GPUs"
)
mirrored_strategy_with_cpu_1_and_2 = NamedDistribution("Mirrored2CPU", _mirrored("/cpu:1", "/cpu:2"))
central_storage_strategy_with_two_gpus = NamedDistribution("CentralStorage2GPUs", _central("/cpu:1", "/cpu:2"), 2)
central_storage_strategy_with_gpu_and_cpu = NamedDistribution(
    "CentralStorageCPUAndGPU", _central("/cpu:1", "/cpu:0"), 1
)
multi_worker_mirrored_2x1_cpu = _several("MultiWorkerMirrored2x1CPU", 2)
multi_worker_mirrored_4x1_cpu = _several("MultiWorkerMirrored4x1CPU", 4)
multi_worker_mirrored_2x1_gpu = _several("MultiWorkerMirrored2x1GPU", 2, "a GPU")
multi_worker_mirrored_2x1_gpu_noshare = _several("MultiWorkerMirrored2x1GPUNoShare", 2, "a GPU")
multi_worker_mirrored_2x2_gpu = _several("MultiWorkerMirrored2x2GPU", 2, "GPUs")
multi_worker_mirrored_2x2_gpu_no_merge_call = _several("MultiWorkerMirrored2x2GPUNoMergeCall", 2, "GPUs")


def parameter_server_strategy_fn(
    name: str, num_workers: int, num_ps: int, required_gpus: int = 0, variable_partitioner: Any = None
) -> NamedDistribution:
    """Return a strategy of parameter servers."""
    needs = "a GPU" if required_gpus else ""
    return NamedDistribution(name, _servers(num_workers, num_ps), num_workers=num_workers, num_ps=num_ps, needs=needs)


parameter_server_strategy_3worker_2ps_cpu = parameter_server_strategy_fn("ParameterServer3Worker2PSCPU", 3, 2)
parameter_server_strategy_1worker_2ps_cpu = parameter_server_strategy_fn("ParameterServer1Worker2PSCPU", 1, 2)
parameter_server_strategy_3worker_2ps_1gpu = parameter_server_strategy_fn("ParameterServer3Worker2PS1GPU", 3, 2, 1)
parameter_server_strategy_1worker_2ps_1gpu = parameter_server_strategy_fn("ParameterServer1Worker2PS1GPU", 1, 2, 1)

tpu_strategy, tpu_strategy_packed_var, tpu_strategy_spmd, tpu_strategy_one_step, tpu_strategy_one_core = (
    NamedDistribution(name, lambda: None, required_tpu=True)
    for name in ("TPU", "TPUPackedVar", "TPUUseSPMD", "TPUOneStep", "TPUOneCore")
)
tpu_strategy_one_step_one_core, cloud_tpu_strategy = (
    NamedDistribution(name, lambda: None, required_tpu=True) for name in ("TPUOneStepOneCore", "CloudTPU")
)

graph_and_eager_modes = ["graph", "eager"]
strategies_minus_tpu: Sequence[NamedDistribution] = [
    default_strategy,
    one_device_strategy,
    one_device_strategy_gpu,
    mirrored_strategy_with_gpu_and_cpu,
    mirrored_strategy_with_two_gpus,
    central_storage_strategy_with_gpu_and_cpu,
]
strategies_minus_default_and_tpu = [
    one_device_strategy,
    one_device_strategy_gpu,
    mirrored_strategy_with_gpu_and_cpu,
    mirrored_strategy_with_two_gpus,
]
tpu_strategies = [tpu_strategy, tpu_strategy_one_step, tpu_strategy_packed_var, cloud_tpu_strategy]
all_strategies_minus_default = strategies_minus_default_and_tpu + tpu_strategies
all_strategies = [*strategies_minus_tpu, *tpu_strategies]
two_replica_strategies = [
    mirrored_strategy_with_gpu_and_cpu,
    mirrored_strategy_with_two_gpus,
    multi_worker_mirrored_2x1_cpu,
    multi_worker_mirrored_2x1_gpu,
    tpu_strategy,
    tpu_strategy_one_step,
    central_storage_strategy_with_gpu_and_cpu,
]
four_replica_strategies = [multi_worker_mirrored_2x2_gpu, multi_worker_mirrored_4x1_cpu]
multidevice_strategies = [
    mirrored_strategy_with_gpu_and_cpu,
    mirrored_strategy_with_two_gpus,
    tpu_strategy,
    tpu_strategy_one_step,
]
multiworker_strategies = [
    multi_worker_mirrored_2x1_cpu,
    multi_worker_mirrored_2x1_gpu,
    multi_worker_mirrored_2x2_gpu,
]
multi_worker_mirrored_strategies = multiworker_strategies
parameter_server_strategies_single_worker = [
    parameter_server_strategy_1worker_2ps_cpu,
    parameter_server_strategy_1worker_2ps_1gpu,
]
parameter_server_strategies_multi_worker = [
    parameter_server_strategy_3worker_2ps_cpu,
    parameter_server_strategy_3worker_2ps_1gpu,
]


def set_virtual_cpus_to_at_least(count: int) -> None:
    """Do nothing: the process has as many devices as the suites ask for."""
