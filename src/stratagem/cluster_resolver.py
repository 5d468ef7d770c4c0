"""Cluster resolvers, under the names of `tf.distribute.cluster_resolver`."""

from stratagem.cluster.kubernetes import KubernetesClusterResolver, KubernetesExecutableLocation
from stratagem.cluster.ranks import (
    HorovodClusterResolver,
    JAXClusterResolver,
    MPICHClusterResolver,
    OpenMPIClusterResolver,
    TorchrunClusterResolver,
    TrainerClusterResolver,
)
from stratagem.cluster.resolver import ClusterResolver, SimpleClusterResolver, UnionResolver
from stratagem.cluster.sagemaker import SageMakerClusterResolver
from stratagem.cluster.slurm import SlurmClusterResolver
from stratagem.cluster.tf_config import TFConfigClusterResolver

__all__ = [
    "ClusterResolver",
    "HorovodClusterResolver",
    "JAXClusterResolver",
    "KubernetesClusterResolver",
    "KubernetesExecutableLocation",
    "MPICHClusterResolver",
    "OpenMPIClusterResolver",
    "SageMakerClusterResolver",
    "SimpleClusterResolver",
    "SlurmClusterResolver",
    "TFConfigClusterResolver",
    "TorchrunClusterResolver",
    "TrainerClusterResolver",
    "UnionResolver",
]
