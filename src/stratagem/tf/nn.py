"""`tf.nn`: functions of neural networks, and the scaling of losses over replicas."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {
    "avg_pool": "stratagem.tf.tensors.windows:avg_pool",
    "avg_pool1d": "stratagem.tf.tensors.windows:avg_pool1d",
    "avg_pool2d": "stratagem.tf.tensors.windows:avg_pool2d",
    "avg_pool3d": "stratagem.tf.tensors.windows:avg_pool3d",
    "batch_normalization": "stratagem.tf.tensors.neural:batch_normalization",
    "bias_add": "stratagem.tf.tensors.neural:bias_add",
    "compute_average_loss": "stratagem.nn:compute_average_loss",
    "conv1d": "stratagem.tf.tensors.windows:conv1d",
    "conv2d": "stratagem.tf.tensors.windows:conv2d",
    "conv2d_transpose": "stratagem.tf.tensors.windows:conv2d_transpose",
    "conv3d": "stratagem.tf.tensors.windows:conv3d",
    "convolution": "stratagem.tf.tensors.windows:convolution",
    "crelu": "stratagem.tf.tensors.neural:crelu",
    "depth_to_space": "stratagem.tf.tensors.arranging:depth_to_space",
    "depthwise_conv2d": "stratagem.tf.tensors.windows:depthwise_conv2d",
    "dropout": "stratagem.tf.tensors.neural:dropout",
    "elu": "stratagem.tf.tensors.neural:elu",
    "embedding_lookup": "stratagem.tf.tensors.neural:embedding_lookup",
    "gelu": "stratagem.tf.tensors.neural:gelu",
    "in_top_k": "stratagem.tf.tensors.neural:in_top_k",
    "l2_loss": "stratagem.tf.tensors.neural:l2_loss",
    "l2_normalize": "stratagem.tf.tensors.neural:l2_normalize",
    "leaky_relu": "stratagem.tf.tensors.neural:leaky_relu",
    "local_response_normalization": "stratagem.tf.tensors.neural:local_response_normalization",
    "log_poisson_loss": "stratagem.tf.tensors.neural:log_poisson_loss",
    "log_softmax": "stratagem.tf.tensors.neural:log_softmax",
    "lrn": "stratagem.tf.tensors.neural:lrn",
    "max_pool": "stratagem.tf.tensors.windows:max_pool",
    "max_pool1d": "stratagem.tf.tensors.windows:max_pool1d",
    "max_pool2d": "stratagem.tf.tensors.windows:max_pool2d",
    "max_pool3d": "stratagem.tf.tensors.windows:max_pool3d",
    "moments": "stratagem.tf.tensors.neural:moments",
    "pool": "stratagem.tf.tensors.windows:pool",
    "relu": "stratagem.tf.tensors.neural:relu",
    "relu6": "stratagem.tf.tensors.neural:relu6",
    "scale_regularization_loss": "stratagem.nn:scale_regularization_loss",
    "selu": "stratagem.tf.tensors.neural:selu",
    "separable_conv2d": "stratagem.tf.tensors.windows:separable_conv2d",
    "sigmoid": "stratagem.tf.tensors.elementwise:sigmoid",
    "sigmoid_cross_entropy_with_logits": "stratagem.tf.tensors.neural:sigmoid_cross_entropy_with_logits",
    "silu": "stratagem.tf.tensors.neural:silu",
    "softmax": "stratagem.tf.tensors.neural:softmax",
    "softmax_cross_entropy_with_logits": "stratagem.tf.tensors.neural:softmax_cross_entropy_with_logits",
    "softplus": "stratagem.tf.tensors.elementwise:softplus",
    "softsign": "stratagem.tf.tensors.elementwise:softsign",
    "space_to_depth": "stratagem.tf.tensors.arranging:space_to_depth",
    "sparse_softmax_cross_entropy_with_logits": "stratagem.tf.tensors.neural:sparse_softmax_cross_entropy_with_logits",
    "swish": "stratagem.tf.tensors.neural:swish",
    "tanh": "stratagem.tf.tensors.elementwise:tanh",
    "top_k": "stratagem.tf.tensors.neural:top_k",
    "weighted_cross_entropy_with_logits": "stratagem.tf.tensors.neural:weighted_cross_entropy_with_logits",
    "zero_fraction": "stratagem.tf.tensors.reductions:zero_fraction",
}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
