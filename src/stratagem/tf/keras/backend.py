"""`tf.keras.backend`: Keras's, and the functions of Keras 2's `K`, each a name for one of `keras.ops`.

Source of the semantics: https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/keras/backend
"""

from __future__ import annotations

from typing import Final

from stratagem.tf.keras.namespace import lazy

_SAME: Final = """
    abs all any arange cast ceil concatenate cos cumsum equal exp expand_dims eye floor
    greater greater_equal less less_equal log logsumexp max maximum mean min minimum not_equal ones ones_like
    repeat reshape round shape sign sin square squeeze stack std sum tile transpose var zeros zeros_like
"""
_OPS: Final = {
    "elu": "elu",
    "in_top_k": "in_top_k",
    "ndim": "ndim",
    "one_hot": "one_hot",
    "pow": "power",
    "relu": "relu",
    "sigmoid": "sigmoid",
    "softmax": "softmax",
    "softplus": "softplus",
    "softsign": "softsign",
    "stop_gradient": "stop_gradient",
    "tanh": "tanh",
}
_OWN: Final = """
    argmax argmin cumprod prod sqrt
    batch_dot batch_flatten batch_get_value batch_set_value binary_crossentropy categorical_crossentropy clip
    count_params dot dropout flatten gather get_value hard_sigmoid int_shape l2_normalize learning_phase
    permute_dimensions print_tensor random_normal random_uniform set_learning_phase set_value
    sparse_categorical_crossentropy switch truncated_normal update update_add update_sub variable
"""
_NAMES: Final = {
    **{name: f"keras.ops:{name}" for name in _SAME.split()},
    **{name: f"keras.ops:{of}" for name, of in _OPS.items()},
    **{name: f"stratagem.tf.keras.old_backend:{name}" for name in _OWN.split()},
    "clear_session": "keras.utils:clear_session",
    "manual_variable_initialization": "stratagem.tf.keras.old_backend:manual_variable_initialization",
}
"""What is not as in Keras 3."""

__getattr__, __dir__ = lazy(__name__, _NAMES, behind="keras.backend")
