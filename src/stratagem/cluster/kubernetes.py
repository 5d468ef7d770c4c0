"""Kubernetes: the pods behind label selectors."""

from __future__ import annotations

import enum
import importlib
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from stratagem.cluster.resolver import ClusterResolver
from stratagem.cluster.spec import ClusterSpec, Task, join_address
from stratagem.core.errors import ClusterError, StartupError

HOSTNAME: Final = "HOSTNAME"
"""Name of this machine; the name of the pod, or its beginning."""


class KubernetesExecutableLocation(enum.Enum):
    """Place of the program that lists the pods: inside the cluster or outside."""

    WITHIN_CLUSTER = 0
    OFF_CLUSTER = 1


class KubernetesClusterResolver(ClusterResolver):
    """Ask Kubernetes for the running pods (`tf.distribute.cluster_resolver.KubernetesClusterResolver`).

    Pods are ordered by name, and numbers in names by value. Inside a pod of the cluster, the pod's name (its host name)
    determines the task type and index. Elsewhere, set `task_type` and `task_id`.

    Args:
        job_to_label_mapping: For each job the label selectors of its pods; None means {"worker":
            ["job-name=tensorflow"]}.
        tf_server_port: Port of every task.
        rpc_layer: The part before "://" in the result of `master`.
        override_client: A `kubernetes.client.CoreV1Api` to use instead of a new one.
        executable_location: WITHIN_CLUSTER uses the pod's service account, OFF_CLUSTER the kubeconfig.
        hostname: Name of this pod; None means the variable HOSTNAME.

    Raises:
        ClusterError: No pod has the labels, or the `kubernetes` package is missing.
        StartupError: A pod is not running yet.

    Example:
        >>> resolver = KubernetesClusterResolver({"worker": ["job-name=train"]})
        >>> resolver.rpc_layer
        'grpc'
    """

    def __init__(
        self,
        job_to_label_mapping: Mapping[str, Sequence[str]] | None = None,
        tf_server_port: int = 8470,
        rpc_layer: str | None = "grpc",
        override_client: Any = None,
        executable_location: KubernetesExecutableLocation = KubernetesExecutableLocation.WITHIN_CLUSTER,
        *,
        hostname: str | None = None,
    ) -> None:
        self._job_to_labels = job_to_label_mapping or {"worker": ["job-name=tensorflow"]}
        self._port = tf_server_port
        self._rpc_layer = rpc_layer
        self._client = override_client
        self._location = KubernetesExecutableLocation(executable_location)
        self._hostname = os.environ.get(HOSTNAME, "") if hostname is None else hostname

    def cluster_spec(self) -> ClusterSpec:
        """Return the pods that have the labels now."""
        return ClusterSpec(
            {job: [join_address(_address(pod), self._port) for pod in pods] for job, pods in self._pods().items()}
        )

    def _own_task(self) -> Task | None:
        if self._location is KubernetesExecutableLocation.OFF_CLUSTER:
            return None
        tasks = {
            pod.metadata.name: Task(job, index) for job, pods in self._pods().items() for index, pod in enumerate(pods)
        }
        if self._hostname in tasks:
            return tasks[self._hostname]
        # The pods of an indexed Job are called name-0-x7k2p, and their hosts name-0.
        own = [task for name, task in tasks.items() if self._hostname and name.startswith(f"{self._hostname}-")]
        return own[0] if len(own) == 1 else None

    def _pods(self) -> dict[str, list[Any]]:
        client = self._api()
        return {job: self._running_pods(client, job, labels) for job, labels in self._job_to_labels.items()}

    def _running_pods(self, client: Any, job: str, labels: Sequence[str]) -> list[Any]:
        pods = []
        for label in labels:
            found = client.list_pod_for_all_namespaces(label_selector=label).items
            pods += sorted(found, key=lambda pod: _by_number(pod.metadata.name))
        for pod in pods:
            if pod.status.phase != "Running" or not _address(pod):
                raise StartupError(
                    f'Pod "{pod.metadata.name}" is not running; phase: "{pod.status.phase}". It is of job {job!r}.',
                    "It has no address that other pods could use.",
                    "Start the program only when all pods are running, for instance with a gang-scheduled Job.",
                )
        if not pods:
            raise ClusterError(
                f"No pod has the labels {list(labels)} of job {job!r}.",
                "Pass the labels of your pods: "
                'KubernetesClusterResolver(job_to_label_mapping={"worker": ["job-name=NAME"]}).',
            )
        return pods

    def _api(self) -> Any:
        if self._client is None:
            try:
                kubernetes = importlib.import_module("kubernetes")
            except ImportError:
                raise ClusterError(
                    "The package `kubernetes` is not installed.",
                    "Run `pip install kubernetes`, or describe the cluster in TF_CONFIG.",
                ) from None
            if self._location is KubernetesExecutableLocation.WITHIN_CLUSTER:
                kubernetes.config.load_incluster_config()
            else:
                kubernetes.config.load_kube_config()
            self._client = kubernetes.client.CoreV1Api()
        return self._client


def _address(pod: Any) -> Any:
    """Return the address of a pod, None where it has none yet.

    Of a client that knows pods by their machines alone (stand-ins in tests that were written for TensorFlow), the
    machine's, which TensorFlow takes.
    """
    address = getattr(pod.status, "pod_ip", _UNKNOWN)
    return address if address is None or isinstance(address, str) else pod.status.host_ip


_UNKNOWN: Final = object()


def _by_number(name: str) -> list[tuple[str, int]]:
    """Order "worker-10" after "worker-2"."""
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", name)]
