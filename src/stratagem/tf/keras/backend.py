"""`tf.keras.backend`: Keras's, and the functions of Keras 2's `K`, over `keras.ops`.

Source of the semantics: https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/keras/backend
"""

from __future__ import annotations

from typing import Final

from stratagem.tf.keras.namespace import lazy

_SAME: Final = """
    abs all any cast ceil cos exp floor log logsumexp max mean min shape sign sin square stack std sum var
"""
_OPS: Final = {
    "elu": "elu",
    "ndim": "ndim",
    "sigmoid": "sigmoid",
    "softmax": "softmax",
    "softplus": "softplus",
    "softsign": "softsign",
    "tanh": "tanh",
}
_OWN: Final = """
    argmax argmin cumprod prod sqrt
    batch_dot batch_flatten batch_get_value batch_set_value binary_crossentropy categorical_crossentropy clip
    count_params dot dropout flatten gather get_value hard_sigmoid int_shape l2_normalize learning_phase
    permute_dimensions print_tensor random_normal random_uniform set_learning_phase set_value
    sparse_categorical_crossentropy switch truncated_normal update update_add update_sub variable
"""
_WITH_OTHER_ARGUMENTS: Final = """
    arange batch_normalization bias_add cast_to_floatx concatenate constant cumsum dtype equal expand_dims eye
    greater greater_equal in_top_k is_sparse less less_equal maximum minimum not_equal one_hot ones ones_like pow
    relu repeat repeat_elements reshape reverse round squeeze stop_gradient temporal_padding tile transpose zeros
    zeros_like
"""
_NAMES: Final = {
    **{name: f"keras.ops:{name}" for name in _SAME.split()},
    **{name: f"keras.ops:{of}" for name, of in _OPS.items()},
    **{name: f"stratagem.tf.keras.old_backend:{name}" for name in _OWN.split()},
    **{name: f"stratagem.tf.keras.old_operations:{name}" for name in _WITH_OTHER_ARGUMENTS.split()},
    "clear_session": "keras.utils:clear_session",
    "manual_variable_initialization": "stratagem.tf.keras.old_backend:manual_variable_initialization",
}
"""What is not as in Keras 3."""

__getattr__, __dir__ = lazy(__name__, _NAMES, behind="keras.backend")
