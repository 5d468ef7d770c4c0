"""Private modules of TensorFlow from which older programs import: where their names live."""

from __future__ import annotations

from typing import Final

_BEHIND: Final = {
    ".compat.v1": """
        framework.constant_op framework.dtypes framework.ops framework.random_seed framework.tensor_shape
        framework.tensor_spec framework.tensor_util ops.array_ops ops.check_ops ops.clip_ops ops.control_flow_ops
        ops.math_ops ops.random_ops ops.variables
    """,
    ".compat.v1.app": "platform.app",
    ".compat.v1.flags": "platform.flags",
    ".compat.v1.gfile": "platform.gfile",
    ".compat.v1.logging": "platform.tf_logging",
    ".data": "data.ops.dataset_ops",
    ".distribute": """
        distribute.distribute_lib distribute.distribution_strategy_context distribute.mirrored_strategy
        distribute.reduce_util
    """,
    ".distribute.cluster_resolver": """
        distribute.cluster_resolver.cluster_resolver distribute.cluster_resolver.kubernetes_cluster_resolver
        distribute.cluster_resolver.slurm_cluster_resolver distribute.cluster_resolver.tfconfig_cluster_resolver
        distribute.cluster_resolver.tpu_cluster_resolver
    """,
    ".errors": "framework.errors framework.errors_impl",
    ".image": "ops.image_ops",
    ".nest": "util.nest",
    ".strings": "ops.string_ops",
}
"""The public module that has the names of a private one: `array_ops.zeros` is `tf.zeros`, in TensorFlow 1's form.

Modules whose functions take the same arguments in another sense are left out: the second argument of `nn_ops.dropout`
is what it keeps, and that of `tf.nn.dropout` what it drops.
"""


def _tables() -> dict[str, dict[str, str]]:
    """Return the table of each private module, and empty ones of the packages that they lie in."""
    tables = {f"python.{module}": {home: "*"} for home, modules in _BEHIND.items() for module in modules.split()}
    tables["python.client.device_lib"] = {".config.devices": "list_local_devices"}
    parts = [module.split(".") for module in tables]
    packages = {".".join(path[:length]) for path in parts for length in range(1, len(path))}
    return {**{package: {} for package in sorted(packages)}, **tables}


PRIVATE: Final[dict[str, dict[str, str]]] = _tables()
