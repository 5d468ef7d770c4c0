"""`tf.compat.v1`: what Estimator programs use of it. What has no other meaning there is `tf`'s."""

from __future__ import annotations

from typing import Final

from stratagem.tf.compat.v1.operations import OPERATIONS
from stratagem.tf.namespace import lazy

_NAMES: Final = {
    # modules
    **{
        name: f"stratagem.tf.compat.v1.{name}"
        for name in (
            "app",
            "data",
            "estimator",
            "flags",
            "gfile",
            "layers",
            "logging",
            "losses",
            "metrics",
            "python_io",
            "summary",
            "train",
        )
    },
    # switches
    **{
        name: f"stratagem.tf.compat.v1.switches:{name}"
        for name in (
            "disable_control_flow_v2",
            "disable_eager_execution",
            "disable_resource_variables",
            "disable_tensor_equality",
            "disable_v2_behavior",
            "disable_v2_tensorshape",
            "enable_control_flow_v2",
            "enable_eager_execution",
            "enable_resource_variables",
            "enable_tensor_equality",
            "enable_v2_behavior",
            "enable_v2_tensorshape",
            "reset_default_graph",
        )
    },
    # scopes and collections of a model_fn
    **{
        name: f"stratagem.estimator.graph:{name}"
        for name in (
            "AUTO_REUSE",
            "GraphKeys",
            "add_to_collection",
            "control_dependencies",
            "get_collection",
            "get_variable",
            "global_variables",
            "name_scope",
            "trainable_variables",
            "variable_scope",
        )
    },
    # what a RunConfig is given
    "ConfigProto": "stratagem.tf.compat.v1.session_config:ConfigProto",
    "GPUOptions": "stratagem.tf.compat.v1.session_config:GPUOptions",
    "GraphOptions": "stratagem.tf.compat.v1.session_config:GraphOptions",
    "OptimizerOptions": "stratagem.tf.compat.v1.session_config:OptimizerOptions",
    # what has moved
    **OPERATIONS,
    "FixedLenFeature": "stratagem.io:FixedLenFeature",
    "FixedLenSequenceFeature": "stratagem.io:FixedLenSequenceFeature",
    "VarLenFeature": "stratagem.io:VarLenFeature",
    "VERSION": "stratagem.tf.version:VERSION",
    "constant_initializer": "stratagem.tf.keras.old_initializers:OldConstantInitializer",
    "decode_csv": "stratagem.tf.io.text:decode_csv",
    "decode_raw": "stratagem.io:decode_raw",
    "group": "stratagem.estimator:group",
    "matching_files": "stratagem.tf.io.files:matching_files",
    "parse_example": "stratagem.io:parse_example",
    "parse_single_example": "stratagem.io:parse_single_example",
    "read_file": "stratagem.tf.io.files:read_file",
    "write_file": "stratagem.tf.io.files:write_file",
}
"""What is not as in `tf`."""

__getattr__, __dir__ = lazy(__name__, _NAMES, behind="stratagem.tf")
