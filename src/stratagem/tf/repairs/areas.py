"""Replacements for whole areas of TensorFlow."""

from __future__ import annotations

from typing import Final

_DENSE: Final = (
    "Use a dense tensor: Dataset.padded_batch pads rows to one length, tf.one_hot and tf.gather work by index, and "
    "tf.io.FixedLenFeature reads a feature of a known shape. XLA compiles for known shapes."
)
IN_DATASET: Final = (
    "Look values up where the data is read: tf.keras.layers.StringLookup or IntegerLookup in a function given to "
    "Dataset.map. See docs/keras.md, 'Words'."
)
_DTENSOR: Final = (
    "Use a strategy for data parallelism; for tensors cut over devices use JAX itself: jax.sharding.NamedSharding, "
    "keras.distribution.ModelParallel."
)
_CONVERT: Final = "Save with model.save('model.keras') and convert on a machine that has TensorFlow."
_QUANTIZE: Final = "Use Keras: model.quantize('int8'), keras.quantizers."
_EXTENSION: Final = "Use a dict, a tuple or a dataclass registered with jax.tree_util.register_dataclass: they nest."
_LIBRARY: Final = "JAX loads compiled code through jax.ffi.ffi_call; there are no TensorFlow kernels to load."
_RAW: Final = "Use the function of the same purpose: tf.nn, tf.math, keras.ops or jax.lax."
_ENGINE: Final = "It tunes TensorFlow's own runtime; leave the line out."

TABLE: Final = {
    "tf.lite tf.mlir tf.xla tf.tools tf.experimental.tensorrt": _CONVERT,
    """tf.quantization tf.fake_quant_with_min_max_args tf.quantize tf.quantize_v2 tf.dequantize tf.quantized_concat
    tf.qint8 tf.qint16 tf.qint32 tf.quint8 tf.quint16 tf.QUANTIZED_DTYPES tf.dtypes.QUANTIZED_DTYPES
    tf.fake_quant_with_min_max_vars tf.fake_quant_with_min_max_args_gradient tf.fake_quant_with_min_max_vars_gradient
    tf.fake_quant_with_min_max_vars_per_channel tf.fake_quant_with_min_max_vars_per_channel_gradient""": _QUANTIZE,
    """tf.RaggedTensor tf.RaggedTensorSpec tf.ragged tf.SparseTensor tf.SparseTensorSpec tf.SparseTensorValue tf.sparse
    tf.IndexedSlices tf.IndexedSlicesSpec tf.io.SparseFeature tf.SparseFeature tf.io.serialize_sparse
    tf.io.serialize_many_sparse tf.io.deserialize_many_sparse tf.ragged_fill_empty_rows
    tf.ragged_fill_empty_rows_grad tf.edit_distance tf.experimental.DynamicRaggedShape tf.experimental.RowPartition
    tf.experimental.StructuredTensor tf.strings.split tf.sets tf.sparse_tensor_to_dense
    tf.sparse_to_dense tf.sparse_add tf.sparse_concat tf.sparse_fill_empty_rows tf.sparse_mask tf.sparse_matmul
    tf.sparse_maximum tf.sparse_merge tf.sparse_minimum tf.sparse_reduce_max tf.sparse_reduce_max_sparse
    tf.sparse_reduce_sum tf.sparse_reduce_sum_sparse tf.sparse_reorder tf.sparse_reset_shape tf.sparse_reshape
    tf.sparse_retain tf.sparse_segment_mean tf.sparse_segment_sqrt_n tf.sparse_segment_sum tf.sparse_slice
    tf.sparse_softmax tf.sparse_split tf.sparse_tensor_dense_matmul tf.sparse_to_indicator tf.sparse_transpose
    tf.serialize_sparse tf.serialize_many_sparse tf.deserialize_many_sparse""": _DENSE,
    "tf.lookup tf.feature_column.categorical_column_with_vocabulary_file": IN_DATASET,
    "tf.dtensor tf.experimental.dtensor": _DTENSOR,
    "tf.raw_ops": _RAW,
    "tf.load_library tf.load_op_library tf.sysconfig tf.experimental.register_filesystem_plugin": _LIBRARY,
    """tf.experimental.ExtensionType tf.experimental.BatchableExtensionType tf.experimental.ExtensionTypeBatchEncoder
    tf.experimental.ExtensionTypeSpec tf.experimental.extension_type tf.experimental.dispatch_for_api
    tf.experimental.dispatch_for_binary_elementwise_apis tf.experimental.dispatch_for_binary_elementwise_assert_apis
    tf.experimental.dispatch_for_unary_elementwise_apis tf.experimental.unregister_dispatch_for tf.TypeSpec
    tf.type_spec_from_value tf.register_tensor_conversion_function tf.NoneTensorSpec tf.OptionalSpec tf.types
    tf.TensorArraySpec""": _EXTENSION,
    """tf.experimental.Optional tf.data.experimental.Optional tf.data.experimental.from_variant
    tf.data.experimental.to_variant""": "Write iterator.get_next_as_optional(), which has has_value() and get_value().",
    "tf.experimental.async_scope tf.experimental.async_clear_error": "Leave it out: JAX computes in the background.",
    "tf.experimental.numpy": "Write numpy or jax.numpy, which it follows.",
    "tf.experimental.dlpack": "Write jax.dlpack.from_dlpack(x); JAX's arrays have __dlpack__.",
    "tf.experimental.enable_strict_mode tf.experimental.function_executor_type": _ENGINE,
    "tf.TensorArray": (
        "Collect values in a list and tf.stack it; inside a compiled loop write tf.scan, tf.map_fn or "
        "keras.ops.fori_loop with array.at[i].set(value)."
    ),
    "tf.CriticalSection": "Leave it out: a compiled step runs on its own, and variables are assigned in order.",
    "tf.gradients tf.hessians": "Write tf.GradientTape, or jax.grad, jax.hessian.",
    "tf.autodiff": "Write jax.jvp for tangents forward, tf.GradientTape for gradients.",
    "tf.autograph": (
        "Functions are not rewritten. A loop or condition on values of tensors is written with tf.while_loop, tf.cond "
        "(docs/tensorflow.md)."
    ),
    "tf.tpu": (
        "Write tf.distribute.TPUStrategy(); each core is a replica, and JAX finds the TPUs by itself. Embeddings: "
        "keras.layers.Embedding."
    ),
    "tf.audio": "Read sounds with Python's wave module or scipy.io.wavfile in a function given to Dataset.map.",
    "tf.feature_column": (
        "Write Keras's preprocessing layers (Normalization, Discretization, CategoryEncoding, HashedCrossing), or see "
        "docs/estimator.md for feature columns of Estimators."
    ),
    "tf.DeviceSpec tf.device": "Name devices as text, to a strategy: MirroredStrategy(['GPU:0', 'GPU:1']).",
    "tf.variable_creator_scope": "Variables follow the strategy in whose scope() they are made; leave it out.",
}
"""Names, or namespaces with all that is in them, and their repair."""
